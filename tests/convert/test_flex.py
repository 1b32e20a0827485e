"""FlexAttention: mask functions and block masks, judged by its own functions and by attention
written out.
"""

import functools
import pickle
import shutil
import warnings

import numpy as np
import pytest
import torch
from convert_graphs import PAIRED, REPEATED, SIMPLE, TABLE, counts_of, softmax_over
from torch.nn.attention import flex_attention as flex

from graphattn import graphs
from graphattn.convert import (
    from_block_mask,
    from_edge_index,
    from_mask,
    from_mask_mod,
    from_rule,
    to_block_mask,
    to_mask_mod,
)
from graphattn.errors import GraphError
from graphattn.graph import AttentionGraph, disjoint_union
from graphattn.graph.edges import Edges
from graphattn.graph.forms import band, partition, product
from graphattn.graph.limits import refuse_over
from graphattn.graph.pair_test import _of_intervals, _tiled
from graphattn.graphs.grid.axes import cell_window
from graphattn.graphs.grid.cells_and_windows import axis_neighbourhood

ALL_PAIRED = pytest.mark.parametrize("name", PAIRED)
SOME = pytest.mark.parametrize("name", list(PAIRED)[::3])
ALL_SIMPLE = pytest.mark.parametrize("name", SIMPLE)
BLOCKS = pytest.mark.parametrize("block_size", [2, (3, 2), 128], ids=str)
CPU = torch.device("cpu")


def tables(num_blocks, indices):
    """The set of columns of each row, whatever stands behind them in ``indices``."""
    rows = zip(num_blocks.flatten().tolist(), indices.flatten(0, -2).tolist(), strict=True)
    return [sorted(columns[:n]) for n, columns in rows]


def attend(counts, **how):
    draw = torch.Generator().manual_seed(5)
    T, S = counts.shape
    sizes = ((T, 5), (S, 5), (S, 5))
    query, key, value = (torch.randn(*size, generator=draw, dtype=torch.float64) for size in sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it runs eagerly
        out = flex.flex_attention(query[None, None], key[None, None], value[None, None], **how)[
            0, 0
        ]
    return out, softmax_over(counts, query, key, value)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
@SOME
def test_flex_attention_runs_our_block_mask(name):
    """On the CPU it asks the mask_mod of every pair, whatever the blocks."""
    graph, counts = TABLE[name]
    block_mask = to_block_mask(graph, (3, 2))
    assert block_mask.shape == (1, 1, *counts.shape)
    out, expected = attend(counts, block_mask=block_mask)
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)


@pytest.mark.sample(4)
@ALL_PAIRED
@BLOCKS
def test_block_masks_are_those_of_create_block_mask(name, block_size):
    graph, counts = TABLE[name]
    lookup = torch.from_numpy(counts > 0)
    ours = to_block_mask(graph, block_size)
    theirs = flex.create_block_mask(
        lambda b, h, q, kv: lookup[q, kv], 1, 1, *counts.shape, device="cpu", BLOCK_SIZE=block_size
    )
    assert ours.BLOCK_SIZE == theirs.BLOCK_SIZE
    assert ours.seq_lengths == theirs.seq_lengths
    for part in ("kv", "full_kv", "q", "full_q"):
        mine, other = (
            (getattr(mask, f"{part}_num_blocks"), getattr(mask, f"{part}_indices"))
            for mask in (ours, theirs)
        )
        assert tables(*mine) == tables(*other), part
        assert [x.shape for x in mine] == [x.shape for x in other]
        assert [x.dtype for x in mine] == [x.dtype for x in other]
    assert torch.equal(ours.to_dense(), theirs.to_dense())


@pytest.mark.sample(4)
@ALL_SIMPLE
def test_mask_mods_answer_as_the_graph_does(name):
    graph, counts = TABLE[name]
    if counts.size:  # vmap refuses to map over nothing
        mask = flex.create_mask(to_mask_mod(graph), None, None, *counts.shape, device="cpu")
        assert np.array_equal(mask[0, 0].numpy(), counts > 0)
    t, s = torch.arange(counts.shape[0])[:, None], torch.arange(counts.shape[1])[None, :]
    for dtype in (torch.int32, torch.int64):
        table = to_mask_mod(graph)(torch.zeros(()), torch.zeros(()), t.to(dtype), s.to(dtype))
        assert np.array_equal(table.expand(counts.shape).numpy(), counts > 0)


@pytest.mark.sample(4)
@ALL_SIMPLE
def test_there_and_back(name):
    graph, counts = TABLE[name]
    again = from_mask_mod(to_mask_mod(graph), *counts.shape)
    assert again.is_rule
    assert np.array_equal(counts_of(again), counts)
    if counts.size:
        again = from_block_mask(to_block_mask(graph, (3, 2)))
        assert np.array_equal(counts_of(again), counts)
        assert np.array_equal(counts_of(from_block_mask(to_block_mask(again))), counts)  # of 128


@pytest.mark.sample(4)
@ALL_SIMPLE
def test_look_ups_in_tiles_agree_with_the_closed_form(name):
    graph, counts = TABLE[name]
    t, s = torch.arange(counts.shape[0])[:, None], torch.arange(counts.shape[1])[None, :]
    found = _tiled(graph.edges, CPU)(t, s)
    assert np.array_equal(found.expand(counts.shape).numpy(), counts > 0)


LABELS = torch.tensor([0, 3, 0, 1, 3, 3, 1])
RULES: dict[str, Edges] = {
    "partition": partition(LABELS),
    "neighbourhood": axis_neighbourhood(7, 3, 2),
    "neighbourhood flipped": axis_neighbourhood(7, 4).flip(),
    "strided neighbourhood": axis_neighbourhood(11, 4, stride=3),
    "cell window": cell_window(7, 11, 3, 3, 5, -1),
    "product": product((band(2, 3, 0), axis_neighbourhood(5, 3), partition(LABELS[:3]))),
    "pullback": AttentionGraph(band(7, 7, 0)).relabel([3, 1, 6, 0, 2, 5, 4]).edges,
    "flipped rule": from_rule(lambda t, s: (t * 3 + s) % 5 < 2, 7, 11).edges.flip(),
    "complement": (~AttentionGraph(band(7, 11, 0, 3))).edges,
    "intersection": (AttentionGraph(band(7, 7, 0)) & AttentionGraph(partition(LABELS))).edges,
    "constant": from_rule(lambda t, s: True, 7, 11).edges,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", RULES)
def test_rules_under_vmap(name):
    graph = AttentionGraph(RULES[name])
    mask = flex.create_mask(
        to_mask_mod(graph), None, None, graph.num_targets, graph.num_sources, device="cpu"
    )
    assert torch.equal(mask[0, 0], graph.mask())


def test_windows_and_global_tokens_are_arithmetic():
    """A million nodes: a search would have to list a run for each."""
    for graph in (
        graphs.causal(10**9),
        graphs.sliding_window(10**9, 129, causal=True) | graphs.global_tokens(10**9, [0, 5]),
    ):
        mask_mod = to_mask_mod(graph)
        assert mask_mod(
            0, 0, torch.tensor([10**9 - 1, 7]), torch.tensor([10**9 - 2, 9])
        ).tolist() == [True, False]


def test_a_mixture_of_rules_and_lists_searches_only_the_lists():
    graph = graphs.sliding_window(11, 3, causal=True) | from_edge_index(
        [[9, 2], [1, 8]], num_nodes=11
    )
    mask = flex.create_mask(to_mask_mod(graph), None, None, 11, 11, device="cpu")
    assert torch.equal(mask[0, 0], graph.mask())
    copies = graphs.causal(3) | from_edge_index(
        [[1, 1, 1], [0, 0, 0]], num_nodes=3, duplicates="keep"
    )
    mask = flex.create_mask(to_mask_mod(copies), None, None, 3, 3, device="cpu")
    assert torch.equal(mask[0, 0], copies.mask())
    packed = disjoint_union([graphs.causal(5), graphs.full(2)]) & graphs.sliding_window(
        7, 2, causal=True
    )
    mask = flex.create_mask(to_mask_mod(packed), None, None, 7, 7, device="cpu")
    assert torch.equal(mask[0, 0], packed.mask())


@pytest.mark.slow
def test_a_large_block_mask_is_built_from_counts_alone():
    """A mask of this size would be 10 GB; one row more than a whole number of blocks."""
    nodes = 100_097
    block_mask = to_block_mask(graphs.sliding_window(nodes, 129, causal=True))
    rows = -(-nodes // 128)
    assert block_mask.kv_num_blocks.flatten().tolist() == [1] + [2] * (rows - 1)
    assert block_mask.full_kv_num_blocks.sum() == 0
    causal = to_block_mask(graphs.causal(nodes))
    # the last row reaches over the border
    assert causal.full_kv_num_blocks.flatten().tolist() == [*range(rows - 1), 0]
    assert causal.kv_num_blocks.flatten().tolist() == [1] * (rows - 1) + [rows]


@pytest.mark.parametrize("name", REPEATED)
def test_copies_are_refused(name):
    graph, _ = TABLE[name]
    for convert in (to_mask_mod, to_block_mask):
        with pytest.raises(GraphError, match=r"a mask_mod cannot count copies.*score_mod"):
            convert(graph)


# --- mask functions of others


def test_mask_mods_as_people_write_them():
    document = torch.tensor([0, 0, 1, 1, 1, 2, 2])
    both = flex.and_masks(
        lambda b, h, q, kv: document[q] == document[kv], lambda b, h, q, kv: q >= kv
    )
    graph = from_mask_mod(both, 7)
    expected = flex.create_mask(both, 1, 1, 7, 7, device="cpu")[0, 0]
    assert torch.equal(graph.mask(), expected)
    assert from_mask_mod(flex.noop_mask, 5, 3).num_edges == 15
    assert from_mask_mod(flex.noop_mask, 5, 3).name == "noop_mask"
    assert torch.equal(
        flex.create_mask(to_mask_mod(graph), 1, 1, 7, 7, device="cpu")[0, 0], expected
    )


LENGTHS = torch.tensor([5, 7, 3])
BY_B_OR_H = [
    (
        lambda b, h, q, kv: kv < LENGTHS[b],
        r"must not depend on b.*\(q_idx=0, kv_idx=5\) differs between b = 0 and b = 1",
    ),
    (lambda b, h, q, kv: q - kv < 2 + h, r"must not depend on h.*differs between h = 0 and h = 1"),
    (
        lambda b, h, q, kv: (q >= kv) | (h > 30),
        r"must not depend on h.*differs between h = 0 and h = 31",
    ),
    (
        lambda b, h, q, kv: (q >= kv) & (kv < 9 // (1 - b)),
        r"must not depend on b.*it fails for b = 1: .*B=1 for a single one",
    ),
]


@pytest.mark.parametrize(("mask_mod", "words"), BY_B_OR_H, ids=range(len(BY_B_OR_H)))
def test_a_mask_mod_that_depends_on_batch_or_head_is_refused(mask_mod, words):
    with pytest.raises(GraphError, match=words):
        from_mask_mod(mask_mod, 11)
    zero = torch.tensor(0)
    chosen = from_mask_mod(lambda b, h, q, kv: mask_mod(zero, zero, q, kv), 11)
    expected = flex.create_mask(mask_mod, 1, 1, 11, 11, device="cpu")[0, 0]
    assert torch.equal(chosen.mask(), expected)


@pytest.mark.parametrize(
    ("mask_mod", "words"),
    [
        (lambda b, h, q, kv: q - kv, "must return a bool tensor, got torch.int64"),
        (
            lambda b, h, q, kv: torch.rand_like(q * kv, dtype=torch.float64) > 0.5,
            "treat each pair independently",
        ),
        (lambda q, kv: q > kv, "the rule failed"),
    ],
)
def test_what_is_no_mask_mod(mask_mod, words):
    with pytest.raises(GraphError, match=words):
        from_mask_mod(mask_mod, 7, 5)


def test_block_masks_of_others():
    mask = torch.rand(37, 53, generator=torch.Generator().manual_seed(2)) < 0.2
    mask[16:32, 16:48] = True
    block_mask = flex.create_block_mask(
        lambda b, h, q, kv: mask[q, kv], None, None, 37, 53, device="cpu", BLOCK_SIZE=16
    )
    assert block_mask.full_kv_num_blocks.sum() == 2
    graph = from_block_mask(block_mask)
    assert (graph.num_targets, graph.num_sources) == (37, 53)
    assert graph.equals(from_mask(mask))


def test_a_full_block_does_not_ask_its_mask_mod_and_an_absent_one_neither():
    """Built by hand: row 0 has block 1 full, row 1 has block 0 partial; the mask_mod is causal."""
    one, columns = (
        torch.tensor([[[1, 0]]], dtype=torch.int32),
        torch.tensor([[[[1, 0], [0, 1]]]], dtype=torch.int32),
    )
    block_mask = flex.BlockMask.from_kv_blocks(
        1 - one,
        columns,
        one,
        columns,
        BLOCK_SIZE=(2, 3),
        mask_mod=lambda b, h, q, kv: q >= kv,
        seq_lengths=(4, 6),
    )
    expected = torch.zeros(4, 6, dtype=torch.bool)
    expected[:2, 3:] = True
    expected[2:, :3] = torch.ones(4, 6).tril().bool()[2:, :3]
    assert torch.equal(from_block_mask(block_mask).mask(), expected)


def test_block_masks_that_differ_from_batch_to_batch_are_graphs_of_examples():
    lengths = torch.tensor([8, 5])
    mask_mod = lambda b, h, q, kv: kv < lengths[b]  # noqa: E731
    for side in (2, 128):
        by_batch = flex.create_block_mask(mask_mod, 2, 1, 8, 8, device="cpu", BLOCK_SIZE=side)
        found = from_block_mask(by_batch)
        masks = flex.create_mask(mask_mod, 2, 1, 8, 8, device="cpu")
        assert torch.equal(torch.stack([graph.mask() for graph in found.graphs]), masks[:, 0])
    broadcast = flex.create_block_mask(mask_mod, None, None, 8, 8, device="cpu")
    with pytest.raises(GraphError, match=r"block_mask.mask_mod must not depend on b.* Pass B="):
        from_block_mask(broadcast)
    same = flex.create_block_mask(
        lambda b, h, q, kv: q >= kv, 2, 3, 8, 8, device="cpu", BLOCK_SIZE=2
    )
    assert from_block_mask(same).equals(graphs.causal(8))
    with pytest.raises(GraphError, match="B must be 2, as in block_mask, got 3"):
        from_block_mask(same, B=3)


def test_refusals_of_block_masks():
    with pytest.raises(GraphError, match="needs at least one target and one source, got 0 and 5"):
        to_block_mask(TABLE["zero targets"][0])
    with pytest.raises(GraphError, match="a side of block_size must be a whole number >= 1"):
        to_block_mask(graphs.causal(5), 0)


def test_look_ups_too_large_are_refused(monkeypatch):
    # no closed form: a tile of 32 x 32 bits
    edges = disjoint_union([graphs.causal(5), graphs.causal(8)]).edges
    assert _tiled(edges, CPU)(torch.tensor(5), torch.tensor(5))
    monkeypatch.setattr(
        "graphattn.graph.pair_test.refuse_over",
        functools.partial(refuse_over, limit=4 + 32 * 32 // 8 - 1),
    )
    with pytest.raises(GraphError, match="a mask_mod of these edges would take 132 bytes"):
        _tiled(edges, CPU)


@pytest.mark.parametrize(
    "graph",
    [
        graphs.documents(lengths=(3, 0, 5), causal=True),
        pickle.loads(
            pickle.dumps(
                graphs.sliding_window(40, 5, causal=True, dilation=3)
                | graphs.global_tokens(40, [0, 7])
            )
        ),
        graphs.grid_neighbourhood((6, 5), 3, causal=False),
        AttentionGraph(partition(torch.zeros(3).long(), torch.ones(4).long())),
        AttentionGraph(partition(torch.zeros(3).long(), torch.arange(32) % 2)),
    ],
)
def test_intervals_are_looked_up(graph):
    t, s = torch.arange(graph.num_targets)[:, None], torch.arange(graph.num_sources)[None, :]
    test = _of_intervals(graph.edges, CPU)
    assert test is not None
    assert torch.equal(test(t, s), graph.mask())


def test_rows_of_many_intervals_are_looked_up_in_tiles():
    assert _of_intervals(partition(torch.zeros(3).long(), torch.arange(34) % 2), CPU) is None  # 17


def scattered(nodes, edges):
    draw = torch.Generator().manual_seed(7)
    edge_index = torch.randint(nodes, (2, edges), generator=draw)
    return from_edge_index(edge_index, num_nodes=nodes, duplicates="merge")


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("side", [32, 128, 512])
def test_tiles_of_every_size(side, monkeypatch):
    """Over several tiles and their borders: scattered edges, a full part, and edges that no list
    holds.
    """
    monkeypatch.setattr("graphattn.graph.pair_test._SIDES", (side,))
    monkeypatch.setattr("graphattn.graph.pair_test._ASKED_AT_ONCE", 2 * side**2)
    mask = scattered(601, 5003).mask()
    mask[:512, :512] = True
    packed = disjoint_union(
        [graphs.causal(101), graphs.full(107), graphs.sliding_window(393, 5, causal=True)]
    )
    place = torch.arange(601)
    for graph in (from_mask(mask), from_mask(mask.t()), packed):
        assert torch.equal(_tiled(graph.edges, CPU)(place[:, None], place[None, :]), graph.mask())


def test_the_smallest_tables_are_taken(monkeypatch):
    taken = []
    monkeypatch.setattr(
        "graphattn.graph.pair_test.refuse_over", lambda number, *_: taken.append(number)
    )
    for nodes in (101, 4001):
        place = torch.arange(nodes)
        path = from_edge_index(torch.stack((place[:-1], place[1:])), num_nodes=nodes)
        _tiled(path.edges, CPU)
        touched = {
            side: len({(t // side, (t - 1) // side) for t in range(1, nodes)})
            for side in (32, 128, 512)
        }
        assert taken.pop() == min(
            4 * (-(-nodes // side)) ** 2 + n * side**2 // 8 for side, n in touched.items()
        )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a compiler on the CPU")
def test_compiled_flex_attention_on_the_cpu():
    """Look-ups must stay cheap when a compiler inlines them."""
    graph = scattered(301, 4001)
    draw = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(1, 2, 301, 16, generator=draw) for _ in range(3))
    out = torch.compile(flex.flex_attention)(query, key, value, block_mask=to_block_mask(graph))
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=graph.mask()
    )
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=0)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", ["longformer", "isolated targets", "packed", "cells"])
def test_compiled_flex_attention_on_the_gpu(name):
    graph, counts = TABLE[name]
    graph = graph.to("cuda")
    query, key, value = (
        torch.randn(1, 2, n, 32, device="cuda") for n in (counts.shape[0], *(counts.shape[1],) * 2)
    )
    out = torch.compile(flex.flex_attention)(query, key, value, block_mask=to_block_mask(graph))
    for h in range(2):
        expected = softmax_over(counts, *(x[0, h].cpu() for x in (query, key, value)))
        torch.testing.assert_close(out[0, h].cpu(), expected, atol=2e-3, rtol=0)
