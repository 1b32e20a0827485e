"""Patched models are their masks also with weights that are tied, offloaded, quantised or in
bfloat16.
"""

import pytest
import torch
from tiny_models import tiny_model
from transformers import AutoModelForCausalLM

import graphattn as ga

N = 11
WINDOW = ga.graphs.sliding_window(N, 4, causal=True)


def tied(family):
    return tiny_model(family, torch.float32, AutoModelForCausalLM, tie_word_embeddings=True)


def on_disk(family, folder):
    """A model whose second layer lies on disk until it is called."""
    from accelerate import disk_offload

    model = tiny_model(family, torch.float32, AutoModelForCausalLM)
    disk_offload(model.model.layers[1], folder, execution_device="cpu")
    return model


def quantised(family):
    model = tiny_model(family, torch.float32, AutoModelForCausalLM)
    with pytest.warns(DeprecationWarning, match="quantiz"):
        return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8)


def bfloat16(family):
    return tied(family).to(torch.bfloat16)


@pytest.mark.parametrize(
    ("make", "family"),
    [
        (tied, "gpt2"),
        (tied, "llama"),
        (bfloat16, "gpt2"),
        (bfloat16, "llama"),
        (quantised, "llama"),
        (on_disk, "llama"),
    ],
)
@torch.no_grad()
def test_a_patched_model_is_its_mask(make, family, tmp_path):
    model = make(family, tmp_path) if make is on_disk else make(family)
    tokens = torch.randint(3, 30, (2, N), generator=torch.Generator().manual_seed(1))
    own = model(tokens).logits
    expected = model(tokens, attention_mask=WINDOW.mask().expand(2, 1, -1, -1)).logits
    with ga.patched(model, ga.graphs.causal(...)):
        assert torch.equal(model(tokens).logits, own)
    with ga.patched(model, WINDOW):
        logits = model(tokens).logits
    torch.testing.assert_close(logits, expected, rtol=0, atol=2e-2 if make is bfloat16 else 1e-5)
    assert not torch.allclose(logits, own, rtol=0, atol=1e-3)
    assert torch.equal(model(tokens).logits, own)


def test_weights_stay_tied():
    model = tied("gpt2")
    ga.patch(model, WINDOW)
    assert model.lm_head.weight is model.transformer.wte.weight
