"""Llama, Mistral and Qwen2 of transformers: grouped heads, rotary positions, RMS norms, SwiGLU, windows."""

import pytest
import torch
from text_models import changed, same, same_gradients, shaken

import graphattn as ga
from graphattn import graphs
from graphattn.errors import OptionError
from graphattn.models import from_hf, llama

pytest.importorskip("transformers", minversion="5.0")
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.models.llama import modeling_llama
from transformers.models.mistral import modeling_mistral
from transformers.models.qwen2 import modeling_qwen2

pytestmark = pytest.mark.usefixtures("one_thread")

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
    "attn_implementation": "sdpa",
}
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "wide heads, biases, tied": (
        LlamaForCausalLM,
        LlamaConfig,
        {"head_dim": 10, "attention_bias": True, "tie_word_embeddings": True},
    ),
    "biases in the feed-forward": (
        LlamaForCausalLM,
        LlamaConfig,
        {"mlp_bias": True, "num_key_value_heads": 1, "pad_token_id": 3},
    ),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": 3}),
    "qwen2": (
        Qwen2ForCausalLM,
        Qwen2Config,
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
}


def theirs(name="llama", **more):
    torch.manual_seed(0)
    model, config, options = MODELS[name]
    return shaken(model(config(**{**SMALL, **options, **more})))


def tokens():
    return torch.randint(V, (B, N), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def in_float64(monkeypatch):
    """Their norms and angles without the rounding to float32 in between."""

    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    def angles(self, x, position_ids):
        dim = getattr(self.config, "head_dim", None) or D
        frequency = 1.0 / 500.0 ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        turn = (position_ids[..., None] * frequency).repeat(1, 1, 2)
        return turn.cos(), turn.sin()

    for module, kind in ((modeling_llama, "Llama"), (modeling_mistral, "Mistral"), (modeling_qwen2, "Qwen2")):
        monkeypatch.setattr(getattr(module, f"{kind}RMSNorm"), "forward", norm)
        monkeypatch.setattr(getattr(module, f"{kind}RotaryEmbedding"), "forward", angles)


@pytest.mark.parametrize("name", MODELS)
def test_models_of_transformers(name, in_float64):
    model = theirs(name)
    mine, given = from_hf(model), tokens()
    output, expected = mine(given), model(given).logits
    same(output, expected)
    same_gradients(mine, model, output, expected)
    assert sum(p.numel() for p in mine.parameters()) == sum(p.numel() for p in model.parameters())
    at = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 8])
    if name != "mistral" and name != "qwen2":  # there, positions that go back begin another document
        same(mine(given, positions=at), model(given, position_ids=at[None]).logits)


def test_as_it_comes_it_rounds_to_float32_in_between():
    model, given = theirs(), tokens()
    same(from_hf(model)(given), model(given).logits, 1e-5)


def test_another_graph_is_another_mask_there(in_float64):
    model, given = theirs(), tokens()
    mine, strided = from_hf(model), graphs.causal(N) & graphs.strided(N, 3)
    same(mine(given, strided), model(given, attention_mask=strided.mask()[None, None]).logits)
    less = graphs.causal(N) - ga.from_edge_index([[2], [6]], num_sources=N, num_targets=N)
    assert changed(mine(given), mine(given, [graphs.causal(N), less])) == [False] * 6 + [True] + [False] * 2


def test_a_window_is_a_graph():
    mine, plain, given = from_hf(theirs("mistral")), from_hf(theirs("mistral", sliding_window=None)), tokens()
    assert repr(mine.graph[0]) == "Pattern(sliding_window(..., 3))"
    same(mine(given), plain(given, graphs.sliding_window(N, 3)), 0.0)
    assert changed(mine(given), plain(given)) == [False] * 3 + [True] * 6
    schedule = from_hf(theirs("qwen2")).graph
    assert [layer.name for layer in schedule] == ["causal(..., ...)", "sliding_window(..., 4)"]


def test_sizes_of_the_paper():
    with torch.device("meta"):
        assert sum(p.numel() for p in llama().parameters()) == 6_738_415_616
        seventy = llama(32000, 8192, 64, 80, 28672, num_kv_heads=8)  # Llama 2 70B
        assert sum(p.numel() for p in seventy.parameters()) == 68_976_648_192


def test_refusals():
    scaled = {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}
    with pytest.raises(OptionError, match=r'rope_parameters must have rope_type "default"'):
        from_hf(theirs(rope_parameters=scaled))
    with pytest.raises(OptionError, match=r"activation must be .*'mish'"):
        from_hf(theirs(hidden_act="mish"))
