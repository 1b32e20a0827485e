"""Positions and biases of models in ``transformers``, whose own functions are run with random weights."""

import pytest
import torch

import graphattn as ga
from graphattn.nn import (
    ALiBi,
    LearnedPosition,
    Rotary,
    SinusoidalPosition,
    SwinBias,
    SwinV2Bias,
    T5Bias,
    grid_positions,
)

pytest.importorskip("transformers", minversion="5.0")
from transformers import BertConfig, GPTNeoXConfig, LlamaConfig, Swinv2Config, T5Config
from transformers.models.bert.modeling_bert import BertEmbeddings
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention
from transformers.models.t5.modeling_t5 import T5Attention

B, N, H, D = 2, 13, 3, 16
AT = torch.stack((torch.arange(N), torch.randperm(N, generator=torch.Generator().manual_seed(1)) + 300))  # (B, N)


def heads_first(x):
    return x.transpose(1, 2)


def queries_and_keys():
    torch.manual_seed(0)
    return torch.randn(2, B, N, H, D)


def near(found, wanted, atol=1e-5):
    torch.testing.assert_close(found, wanted, rtol=0, atol=atol)


def test_rotary_of_llama():
    query, key = queries_and_keys()
    config = LlamaConfig(
        hidden_size=H * D, num_attention_heads=H, rope_parameters={"rope_type": "default", "rope_theta": 500.0}
    )
    cos, sin = llama.LlamaRotaryEmbedding(config)(query, AT)
    wanted = llama.apply_rotary_pos_emb(heads_first(query), heads_first(key), cos, sin)
    rotary = Rotary(D, base=500.0)
    for mine, theirs in zip((rotary(query, AT), rotary(key, AT)), wanted, strict=True):
        near(mine, heads_first(theirs), atol=1e-4)  # their angles are float32: off by 3e-5 at position 312
        assert not torch.allclose(Rotary(D, base=500.0, layout="interleaved")(query, AT), heads_first(theirs), atol=0.1)


def test_partial_rotary_of_gpt_neox():
    query, key = queries_and_keys()
    config = GPTNeoXConfig(hidden_size=H * D, num_attention_heads=H)
    config.rope_parameters = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}
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


def test_learned_positions_of_bert():
    theirs = BertEmbeddings(BertConfig(vocab_size=5, hidden_size=D, max_position_embeddings=20)).eval()
    theirs.LayerNorm = torch.nn.Identity()
    mine, word = LearnedPosition(20, D), torch.randint(5, (B, N))
    mine.load_state_dict(theirs.position_embeddings.state_dict())
    features = theirs.word_embeddings(word) + theirs.token_type_embeddings.weight[0]
    near(mine(features), theirs(word))


@pytest.mark.parametrize("num_heads", [1, 3, 8, 12])
def test_alibi_of_bloom_gives_its_weights_and_not_its_scores(num_heads):
    torch.manual_seed(0)
    score = torch.randn(num_heads, N, N)
    graph = ga.graphs.causal(N)
    outside = torch.full((N, N), -torch.inf).triu(1)
    theirs = build_alibi_tensor(torch.ones(1, N), num_heads, torch.float32)  # (H, 1, N)
    mine = torch.zeros(N, N, num_heads)
    mine[graph.target, graph.source] = ALiBi(num_heads)(graph)
    mine = mine.movedim(-1, 0)
    near(torch.softmax(score + mine + outside, -1), torch.softmax(score + theirs + outside, -1))
    assert not torch.allclose(score + mine + outside, score + theirs + outside)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (32, 100), (8, 20), (64, 1000)])
def test_buckets_of_t5(num_buckets, max_distance, bidirectional):
    offset = torch.arange(-2000, 2001)
    wanted = T5Attention._relative_position_bucket(offset, bidirectional, num_buckets, max_distance)
    bias = T5Bias(H, num_buckets, max_distance, bidirectional=bidirectional)
    assert torch.equal(bias.bucket(offset), wanted)
    assert not torch.equal(bias.bucket(-offset), wanted)


@pytest.mark.parametrize("decoder", [False, True])
def test_bias_of_t5(decoder):
    config = T5Config(d_model=H * D, num_heads=H, d_kv=D, is_decoder=decoder, relative_attention_num_buckets=8)
    config.relative_attention_max_distance = 11
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    torch.nn.init.normal_(theirs.relative_attention_bias.weight)
    mine = T5Bias(H, 8, 11, bidirectional=not decoder)
    mine.table.load_state_dict(theirs.relative_attention_bias.state_dict())
    wanted = theirs.compute_bias(40, 40)[0].movedim(0, -1)  # (T, S, H)
    for graph in (ga.graphs.full(40), ga.graphs.sliding_window(40, 7), ga.graphs.causal(40)):
        assert torch.equal(mine(graph), wanted[graph.target, graph.source])
    assert not torch.equal(mine(ga.graphs.full(40)), wanted.transpose(0, 1).flatten(0, 1))


@pytest.mark.parametrize("window", [(4, 4), (3, 5), (1, 6)])
def test_bias_of_swin(window):
    theirs = SwinRelativePositionBias(H, window)
    mine, area = SwinBias(window, H), window[0] * window[1]
    torch.nn.init.normal_(theirs.relative_position_bias_table)
    mine.table.load_state_dict({"weight": theirs.relative_position_bias_table})
    wanted = theirs()[0].movedim(0, -1)  # (area, area, H)
    assert torch.equal(mine(ga.graphs.cell_partition(window, window)).view(area, area, H), wanted)
    cells = mine(ga.graphs.cell_partition((2 * window[0], 3 * window[1]), window)).view(-1, H)
    assert torch.equal(
        cells.view(2 * window[0], 3 * window[1], area, H)[: window[0], : window[1]].flatten(0, 1), wanted
    )
    assert not torch.equal(mine(ga.graphs.full(area), window).view(area, area, H), wanted.transpose(0, 1))


@pytest.mark.parametrize("trained", [0, 8])
def test_bias_of_swin_v2_in_their_attention(trained):
    torch.manual_seed(0)
    config = Swinv2Config(attention_probs_dropout_prob=0.0)
    theirs = Swinv2SelfAttention(config, H * 4, H, 5, [trained, trained]).eval()
    mine = SwinV2Bias((5, 5), H, pretrained_window=(trained, trained) if trained else None)
    for parameter in theirs.continuous_position_bias_mlp.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    mine.mlp.load_state_dict(theirs.continuous_position_bias_mlp.state_dict())
    for zeroed in (theirs.query.weight, theirs.query.bias):  # cosine 0: weights are those of the bias alone
        torch.nn.init.zeros_(zeroed)
    _, weights = theirs(torch.randn(1, 25, H * 4), output_attentions=True)
    graph = ga.graphs.cell_partition((5, 5), (5, 5))
    found = torch.softmax(mine(graph).view(25, 25, H).movedim(-1, 0), -1)
    near(found, weights[0])
    other = SwinV2Bias((5, 5), H, pretrained_window=(3, 3))
    other.mlp.load_state_dict(mine.mlp.state_dict())
    assert not torch.allclose(torch.softmax(other(graph).view(25, 25, H).movedim(-1, 0), -1), weights[0], atol=1e-2)
