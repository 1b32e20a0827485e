"""Layers that mix tokens without attention are named where a graph is said to be the model's."""

import pytest
import torch
import transformers
from families import FAMILIES
from tiny_models import tiny_model

import graphattn as ga
from graphattn.hf.modules import mixers

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
HYBRIDS = {
    "Qwen3NextGatedDeltaNet": lambda: transformers.Qwen3NextConfig(
        **SIZES,
        num_hidden_layers=4,
        head_dim=8,
        layer_types=["linear_attention"] * 3 + ["full_attention"],
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        shared_expert_intermediate_size=24,
    ),
    "Lfm2ShortConv": lambda: transformers.Lfm2Config(
        **SIZES, num_hidden_layers=4, layer_types=["conv"] * 3 + ["full_attention"]
    ),
}


@pytest.mark.parametrize("name", HYBRIDS)
def test_what_stands_in_the_place_of_attention_is_named(name):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(HYBRIDS[name]()).eval()
    assert mixers(model) == {name: 3}
    assert f"{name} x 3 may mix tokens" in repr(ga.patch(model, ga.graphs.self_loops(...)))
    tokens = torch.randint(1, 60, (1, 9))
    other = tokens.clone()
    other[0, 4] = (other[0, 4] + 1) % 60 + 1
    moved = model(tokens, use_cache=False).logits != model(other, use_cache=False).logits
    assert bool(moved[0, 5:].any())  # although attention reads each token alone
    assert f"{name} x 3 may mix tokens" in str(ga.hf.audit_config(HYBRIDS[name]()))


@pytest.mark.parametrize("family", FAMILIES)
def test_models_whose_layers_are_all_attention_have_none(family):
    assert mixers(tiny_model(family)) == {}
