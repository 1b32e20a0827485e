"""Positions and biases of models in ``transformers``, whose own functions are run with random
weights.
"""

import pytest
import torch

import graphattn as ga
from graphattn.nn import (
    ALiBi,
    Rotary,
    SinusoidalPosition,
    T5Bias,
    grid_positions,
)

pytest.importorskip("transformers", minversion="5.15")
from transformers import GPTNeoXConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
from transformers.models.t5.modeling_t5 import T5Attention

B, N, H, D = 2, 13, 3, 16
# (B, N)
AT = torch.stack(
    (torch.arange(N), torch.randperm(N, generator=torch.Generator().manual_seed(1)) + 300)
)


def heads_first(x):
    return x.transpose(1, 2)


def queries_and_keys():
    torch.manual_seed(0)
    return torch.randn(2, B, N, H, D)


def near(found, wanted, atol=1e-5):
    torch.testing.assert_close(found, wanted, rtol=0, atol=atol)


def test_partial_rotary_of_gpt_neox():
    query, key = queries_and_keys()
    config = GPTNeoXConfig(hidden_size=H * D, num_attention_heads=H)
    config.rope_parameters = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
    }
    cos, sin = neox.GPTNeoXRotaryEmbedding(config)(query, AT)
    assert cos.shape[-1] == 4
    wanted, _ = neox.apply_rotary_pos_emb(heads_first(query), heads_first(key), cos, sin)
    near(Rotary(D, rotary_dim=4)(query, AT), heads_first(wanted))
    assert not torch.allclose(Rotary(D)(query, AT), heads_first(wanted), atol=0.1)


def test_interleaved_rotary_and_sinusoids_of_gptj():
    query, _ = queries_and_keys()
    table = gptj.create_sinusoidal_positions(400, D)
    sin, cos = table[AT].chunk(2, -1)
    near(Rotary(D, layout="interleaved")(query, AT), gptj.apply_rotary_pos_emb(query, sin, cos))
    near(SinusoidalPosition(D, layout="half")(torch.zeros(400, D)), table)
    assert not torch.allclose(SinusoidalPosition(D)(torch.zeros(400, D)), table, atol=0.1)


@pytest.mark.skipif(
    not hasattr(qwen, "Qwen2VLVisionRotaryEmbedding"), reason="transformers 5.15 has no such class"
)
def test_rotary_of_two_axes_of_qwen2_vl():
    query, key = queries_and_keys()
    query, key, at = query[0, :12], key[0, :12], grid_positions((3, 4))
    config = Qwen2VLVisionConfig(embed_dim=H * D, num_heads=H)
    config.rope_parameters = {"rope_type": "axial", "rope_theta": 10000.0}
    config.num_attention_heads = H
    cos, sin = qwen.Qwen2VLVisionRotaryEmbedding(config)(query, at)
    wanted, _ = qwen.apply_rotary_pos_emb_vision(query, key, cos, sin)
    near(Rotary(D, num_axes=2)(query, at), wanted)
    assert not torch.allclose(Rotary(D, num_axes=2)(query, at.flip(1)), wanted, atol=0.1)


@pytest.mark.parametrize("num_heads", [1, 3, 8, 12])
def test_alibi_of_bloom_gives_its_weights_and_not_its_scores(num_heads):
    torch.manual_seed(0)
    score = torch.randn(num_heads, N, N)
    graph = ga.graphs.causal(N)
    assert ALiBi(num_heads).bfloat16().slopes.tolist() == ALiBi(num_heads).slopes.tolist()
    outside = torch.full((N, N), -torch.inf).triu(1)
    theirs = build_alibi_tensor(torch.ones(1, N), num_heads, torch.float32)  # (H, 1, N)
    mine = torch.zeros(N, N, num_heads)
    mine[graph.target, graph.source] = ALiBi(num_heads)(graph)
    mine = mine.movedim(-1, 0)
    near(torch.softmax(score + mine + outside, -1), torch.softmax(score + theirs + outside, -1))
    assert not torch.allclose(score + mine + outside, score + theirs + outside)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("num_buckets", "max_distance"), [(32, 128), (32, 100), (8, 20), (64, 1000)]
)
def test_buckets_of_t5(num_buckets, max_distance, bidirectional):
    offset = torch.arange(-2000, 2001)
    wanted = T5Attention._relative_position_bucket(offset, bidirectional, num_buckets, max_distance)
    bias = T5Bias(H, num_buckets, max_distance, bidirectional=bidirectional)
    assert torch.equal(bias.bucket(offset), wanted)
    assert not torch.equal(bias.bucket(-offset), wanted)
