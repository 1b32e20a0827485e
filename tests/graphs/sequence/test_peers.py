"""Layers of other libraries, run here, give attention on the graphs that the catalogue names for
them.
"""

import pytest
import torch

from graphattn import attention, from_edge_index, graphs
from graphattn.graphs import zoo

transformers = pytest.importorskip("transformers")
generator = torch.Generator().manual_seed(13)


def randn(*shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def attend(layer, x, graph, **options):
    """Attention of a layer of ``query``, ``key`` and ``value`` on one sequence (N, C)."""
    heads = (x.shape[0], layer.num_attention_heads, -1)
    query, key, value = (part(x).view(heads) for part in (layer.query, layer.key, layer.value))
    return attention(query, key, value, graph, backend="message_passing", **options).flatten(1)


@pytest.mark.parametrize("causal", [True, False])
def test_reformers_hashed_attention(causal):
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

    config = transformers.ReformerConfig(
        hidden_size=8,
        num_attention_heads=1,
        attention_head_size=8,
        lsh_attn_chunk_length=3,
        num_hashes=1,
        num_buckets=4,
        is_decoder=causal,
        lsh_attention_probs_dropout_prob=0.0,
        use_cache=False,
    )
    layer, n = LSHSelfAttention(config).double().eval(), 15
    x, buckets = randn(n, 8), torch.randint(0, 4, (n,), generator=generator)
    theirs = layer(x[None], buckets=buckets[None, None]).hidden_states[0]
    query, value = layer.query_key(x), layer.value(x)
    key = layer._len_and_dim_norm(query, layer.attention_head_size**0.5)

    def mine(**options):
        graph = graphs.lsh_buckets(buckets, 3, causal=causal, **options)
        return attention(query[:, None], key[:, None], value[:, None], graph, scale=1.0)[:, 0]

    assert torch.allclose(mine(same_bucket=False, wrap=True), theirs, atol=1e-12)
    for other in (
        {"same_bucket": False},
        {"wrap": True},
        {"same_bucket": False, "wrap": True, "self_loops": "always"},
    ):
        assert not torch.allclose(mine(**other), theirs, atol=1e-3)


@pytest.mark.parametrize("causal", [True, False])
def test_reformers_local_attention_wraps_unless_causal(causal):
    from transformers.models.reformer.modeling_reformer import LocalSelfAttention

    config = transformers.ReformerConfig(
        hidden_size=8,
        num_attention_heads=2,
        attention_head_size=4,
        local_attn_chunk_length=3,
        is_decoder=causal,
        local_attention_probs_dropout_prob=0.0,
        use_cache=False,
    )
    layer, x = LocalSelfAttention(config).double().eval(), randn(15, 8)
    theirs = layer(x[None]).hidden_states[0]
    wrapped = attend(layer, x, graphs.block_local(15, 3, look_back=1, causal=causal, wrap=True))
    plain = attend(layer, x, graphs.block_local(15, 3, look_back=1, causal=causal))
    assert torch.allclose(wrapped, theirs, atol=1e-12)
    assert torch.allclose(plain, theirs, atol=1e-12) == causal


def big_bird(blocks, block, random, monkeypatch):
    """One layer of BigBird, whose random blocks are those of ``random``, as a function of x (N,
    C).
    """
    from transformers.models.big_bird import modeling_big_bird as code

    config = transformers.BigBirdConfig(
        hidden_size=8, num_attention_heads=2, block_size=block, num_random_blocks=2
    )
    layer = code.BigBirdBlockSparseAttention(config).double()
    if random is not None:
        drawn = random.source.view(blocks - 2, 2).numpy()
        monkeypatch.setattr(layer, "_bigbird_block_rand_mask_with_head", lambda **_: [drawn, drawn])
    seen = code.BigBirdModel.create_masks_for_block_sparse_attn(
        torch.ones(1, blocks * block).double(), block
    )
    names = ("from_blocked_mask", "band_mask", "from_mask", "to_mask")
    masks = dict(zip(names, seen, strict=True), to_blocked_mask=seen[0])
    return layer, lambda x: layer(x[None], **masks)[0][0]


def big_bird_layout(blocks):
    near = graphs.sliding_window(blocks, 3, causal=False) | graphs.global_tokens(
        blocks, (0, blocks - 1)
    )
    return near, graphs.random_neighbours(blocks, 2, 7, avoid=near)


def test_big_bird_in_training(monkeypatch):
    blocks, block = 11, 3
    near, random = big_bird_layout(blocks)
    assert random.in_degree.tolist() == [0, *[2] * (blocks - 2), 0]
    layer, theirs = big_bird(blocks, block, random, monkeypatch)
    x = randn(blocks * block, 8)
    assert torch.allclose(
        attend(layer, x, graphs.block_sparse(near | random, block)), theirs(x), atol=1e-12
    )
    assert not torch.allclose(
        attend(layer, x, graphs.block_sparse(near, block)), theirs(x), atol=1e-3
    )


def test_big_birds_code_draws_from_its_first_blocks(monkeypatch):
    """Of blocks that the window and the global blocks leave, as ours, but of the first 2 r + 5."""
    blocks, block, r = 23, 3, 2
    near = big_bird_layout(blocks)[0]
    layer, _ = big_bird(blocks, block, None, monkeypatch)
    layer.train()
    plan = layer._get_rand_attn_plan(blocks * block, block, r)
    drawn = layer._bigbird_block_rand_mask_with_head(
        blocks * block, blocks * block, block, block, 1, *plan
    )[0]
    assert drawn.max() < 2 * r + 5 < blocks
    queries = torch.arange(1, blocks - 1).repeat_interleave(r)
    far = near.mask()[queries, torch.from_numpy(drawn).flatten().long()]
    assert not far.any()
    assert graphs.random_neighbours(blocks, r, 7, avoid=near).source.max() > 2 * r + 5


def test_multi_edges_of_big_bird_eval(monkeypatch):
    """In eval its random blocks are all block 0: those edges are there three times, and the graph
    is a multigraph.
    """
    blocks, block = 11, 3
    near = big_bird_layout(blocks)[0]
    layer, theirs = big_bird(blocks, block, None, monkeypatch)
    layer.eval()
    x = randn(blocks * block, 8)
    once = graphs.block_sparse(near, block)
    middle = (once.source < block) & (once.target >= block) & (once.target < (blocks - 1) * block)
    again = once.edge_index[:, middle]
    edges = torch.cat((once.edge_index, again, again), 1)
    many = from_edge_index(edges, num_sources=33, num_targets=33, duplicates="keep")
    assert many.has_repeated_edges
    assert torch.allclose(attend(layer, x, many), theirs(x), atol=1e-12)
    assert not torch.allclose(attend(layer, x, once), theirs(x), atol=1e-3)
    times = torch.where(middle, 3.0, 1.0).double().log()  # the same as a bias of log multiplicity
    assert torch.allclose(
        attend(layer, x, once.materialise(), score_bias=times), theirs(x), atol=1e-12
    )


@pytest.mark.parametrize("option", ["add_zero_attn", "add_bias_kv"])
def test_multihead_attentions_extra_source(option):
    mha = torch.nn.MultiheadAttention(8, 2, bias=True, **{option: True}).double()
    x = randn(7, 8)
    query, key, value = torch.nn.functional.linear(x, mha.in_proj_weight, mha.in_proj_bias).chunk(
        3, -1
    )
    extra = (
        [torch.zeros(1, 8).double()] * 2
        if option == "add_zero_attn"
        else [mha.bias_k[0], mha.bias_v[0]]
    )
    key, value = torch.cat((key, extra[0])), torch.cat((value, extra[1]))
    graph = zoo()["add_zero_attn, bias_kv"].graph().subgraph(targets=range(7), sources=range(8))
    mine = attention(*(part.view(-1, 2, 4) for part in (query, key, value)), graph).flatten(1)
    assert torch.allclose(mha.out_proj(mine), mha(x, x, x)[0], atol=1e-12)
