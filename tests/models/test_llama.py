"""Llama in transformers: grouped heads, rotary positions scaled or not."""

import pytest
import torch
from text_models import changed, in_float64, same, same_gradients, shaken

import graphattn as ga
from graphattn import graphs
from graphattn.errors import OptionError
from graphattn.models import from_hf, llama

transformers = pytest.importorskip("transformers", minversion="5.0")

B, N, V, D = 3, 9, 13, 6
SMALL = {
    "vocab_size": V,
    "hidden_size": 24,
    "intermediate_size": 17,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": D,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    "rms_norm_eps": 1e-4,
    "pad_token_id": None,
    "attn_implementation": "eager",
}
OLD = {"rope_theta": 500.0, "factor": 8.0, "original_max_position_embeddings": 60}
LLAMA3 = {**OLD, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LINEAR = {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}
MODELS = {
    "llama": {},
    "wide heads, biases, tied": {"head_dim": 10, "attention_bias": True, "tie_word_embeddings": True},
    "biases in the feed-forward": {"mlp_bias": True, "num_key_value_heads": 1, "pad_token_id": 3},
    "llama 3.1": {"rope_parameters": LLAMA3, "hidden_act": "gelu"},
    "a window of no meaning": (
        {"sliding_window": 3, "layer_types": ["sliding_attention"] * 2, "rope_parameters": LINEAR}
    ),
}


def theirs(name="llama", **more):
    torch.manual_seed(0)
    with in_float64():
        return shaken(transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SMALL, **MODELS[name], **more})))


def tokens():
    return torch.randint(V, (B, N), generator=torch.Generator().manual_seed(1))


@in_float64()
def logits(model, *args, **options):
    return model(*args, **options).logits


@pytest.mark.parametrize("name", MODELS)
def test_models_of_transformers(name):
    model = theirs(name)
    mine, given = from_hf(model), tokens()
    output, expected = mine(given), logits(model, given)
    same(output, expected)
    same_gradients(mine, model, output, expected)
    assert sum(p.numel() for p in mine.parameters()) == sum(p.numel() for p in model.parameters())
    at = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 8])
    same(mine(given, positions=at), logits(model, given, position_ids=at[None]))


def test_as_it_comes_it_rounds_to_float32_in_between():
    model, given = theirs("llama 3.1"), tokens()
    same(from_hf(model)(given), model(given).logits, 1e-5)


def test_another_graph_is_another_mask_there():
    model, given = theirs(attn_implementation="sdpa"), tokens()
    mine, strided = from_hf(model), graphs.causal(N) & graphs.strided(N, 3)
    same(mine(given, strided), logits(model, given, attention_mask=strided.mask()[None, None]))
    less = graphs.causal(N) - ga.from_edge_index([[2], [6]], num_sources=N, num_targets=N)
    assert changed(mine(given), mine(given, [graphs.causal(N), less])) == [False] * 6 + [True] + [False] * 2


def test_sizes_of_the_paper():
    with torch.device("meta"):
        assert sum(p.numel() for p in llama().parameters()) == 6_738_415_616
        seventy = llama(32000, 8192, 64, 80, 28672, num_kv_heads=8)  # Llama 2 70B
        assert sum(p.numel() for p in seventy.parameters()) == 68_976_648_192


def test_dropout_is_that_of_weights():
    mine = from_hf(theirs(attention_dropout=0.25).train())
    block = mine.stack.layers[0]
    assert (block.attention.dropout, block.branch[0].p, block.feed_forward.dropout.p) == (0.25, 0.0, 0.0)
    assert mine.training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rope_parameters": {**LINEAR, "rope_type": "dynamic"}}, "rotate all channels by default, linear, llama3;"),
        ({"rope_parameters": {**LINEAR, "partial_rotary_factor": 0.5}}, "rotate all channels"),
        ({"hidden_act": "mish"}, "activation must be .*'mish'"),
        ({"is_causal": False}, "is_causal = False cannot be read; only True can"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(OptionError, match=message):
        from_hf(theirs(**options))
