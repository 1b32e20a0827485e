"""Blocks for FlexAttention: their bitmaps hold the edges, each once, however rows and columns are
cut.
"""

import pytest
import torch

from graphattn import from_edge_index, from_mask, graphs
from graphattn.plans import block_lists as plans

MAKERS = {
    "window": lambda: graphs.sliding_window(150, 41, causal=True),
    "tokens that read and are read by all": lambda: (
        graphs.sliding_window(331, 33, causal=False) | graphs.global_tokens(331, [5, 200])
    ),
    "listed": lambda: (
        graphs.sliding_window(300, 9, causal=True) | graphs.global_tokens(300, [64])
    ).materialise(),
    "cross": lambda: from_mask(torch.ones(67, 130, dtype=torch.bool)),
    "isolated": lambda: from_edge_index([[0, 2, 90], [1, 1, 40]], num_sources=97, num_targets=41),
}


@pytest.fixture
def small(monkeypatch):
    """Blocks of 32, and rows of more than two of them in pieces."""
    monkeypatch.setattr(plans, "SIDE", 32)
    monkeypatch.setattr(plans, "SHORT", 1)
    monkeypatch.setattr(plans, "LONG", 1)


def told(plan, graph, side=32):
    """How often each pair is told, (T, S), by the blocks of a plan."""
    T, S = graph.num_targets, graph.num_sources
    node = [
        torch.arange(n) if x is None else x.node for x, n in ((plan.target, T), (plan.source, S))
    ]
    real = [torch.zeros(len(n), dtype=torch.bool) for n in node]
    for flags, slots in zip(real, (plan.target, plan.source), strict=True):
        flags[slice(None) if slots is None else slots.slot] = True
    t, s = torch.meshgrid(torch.arange(len(node[0])), torch.arange(len(node[1])), indexing="ij")
    block = t // side, s // side
    bit = (plan.bits[plan.which[block].long(), t % side, s % side // 32] >> (s % 32)) & 1
    told = (bit == 1) & (plan.kinds[block] > 0)
    full = plan.kinds[block] == 2
    assert bool((bit == 1)[full].all())
    assert not bool(told[~(real[0][:, None] & real[1])].any())  # what fills up a block is no node
    return torch.zeros(T, S).index_put(
        (node[0][t[told]], node[1][s[told]]), torch.ones(()), accumulate=True
    )


@pytest.mark.parametrize("name", MAKERS)
def test_each_edge_is_told_once_and_nothing_else_is(small, name):
    graph = MAKERS[name]()
    plan = plans.block_lists(graph)
    assert torch.equal(told(plan, graph), graph.mask().float())
    cut = name in ("tokens that read and are read by all", "listed")
    assert (plan.target is not None, plan.source is not None, plan.pieces is not None) == (cut,) * 3
    assert (plan.isolated is not None, plan.unused is not None) == (name == "isolated",) * 2


def test_partial_blocks_that_look_alike_share_a_bitmap():
    plan = plans.block_lists(graphs.sliding_window(4096, 257, causal=True))
    # two borders of each row of 32, one of the first two rows
    assert int((plan.kinds == 1).sum()) == 62
    assert plan.bits.shape == (8, 128, 4)  # none, all, both borders of the window, and room
    assert plan.target is plan.source is plan.pieces is None


def test_blocks_are_those_of_create_block_mask():
    from torch.nn.attention.flex_attention import create_block_mask

    from graphattn.backends.tiles.flex import block_mask, block_tables

    graph = graphs.sliding_window(700, 200, causal=True) & graphs.random_neighbours(700, 500)
    ours, mask = block_mask(*block_tables(graph, torch.device("cpu"))), graph.mask()
    theirs = create_block_mask(lambda b, h, q, kv: mask[q, kv], None, None, 700, 700, device="cpu")
    assert torch.equal(ours.to_dense(), theirs.to_dense())
    for part in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
        assert torch.equal(getattr(ours, part), getattr(theirs, part)), part
    for part in ("kv_indices", "full_kv_indices", "q_indices", "full_q_indices"):
        assert getattr(ours, part).dtype == torch.int32
        assert getattr(ours, part).shape == getattr(theirs, part).shape
