"""Edges listed one by one: what AttentionGraph and from_edge_index take, keep and refuse."""

import numpy as np
import pytest
import torch

from graphattn.convert import from_edge_index
from graphattn.errors import GraphError, GraphIndexError, ShapeError
from graphattn.graph import AttentionGraph, listed
from graphattn.graph.forms import band

S, T = 5, 7


def edges_with(position: int, source: int, target: int) -> torch.Tensor:
    """A full graph's edges with one of them replaced."""
    edge_index = torch.stack((torch.arange(S).repeat(T), torch.arange(T).repeat_interleave(S)))
    edge_index[:, position] = torch.tensor([source, target])
    return edge_index


def build(edge_index, **kwargs):
    return from_edge_index(edge_index, num_sources=S, num_targets=T, **kwargs)


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (9, 2, r"source 9 is outside \[0, 5\) \(5 sources\)"),
        (1, T, r"target 7 is outside \[0, 7\) \(7 targets\)"),
        (-1, 2, "source -1 .* negative ones, which are not wrapped"),
        (2, -1, "target -1 .* negative ones, which are not wrapped"),
    ],
)
def test_an_index_out_of_range_is_named_and_none_wraps(source, target, words):
    with pytest.raises(GraphIndexError, match=f"edge 17: {words}"):
        build(edges_with(17, source, target))


def test_the_first_index_outside_is_refused_and_the_last_inside_is_not():
    with pytest.raises(GraphIndexError, match="edge 3: source 5"):
        build(edges_with(3, S, 6))
    assert build(torch.tensor([[S - 1], [T - 1]])).num_edges == 1


def test_swapped_rows_are_recognised():
    swapped = torch.tensor([[6, 0, 3], [1, 4, 2]])
    with pytest.raises(GraphIndexError, match=r"Rows swapped\? Then use edge_index.flip\(0\)"):
        build(swapped)
    assert build(swapped.flip(0)).num_edges == 3


def test_index_errors_are_graph_errors_value_errors_and_index_errors():
    for kind in (GraphError, ValueError, IndexError):
        with pytest.raises(kind):
            build(edges_with(0, 9, 0))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize(("source", "target"), [(9, 0), (0, 9), (-1, 0), (2**31, 0)])
def test_out_of_range_on_cuda_leaves_the_context_usable(source, target):
    with pytest.raises(GraphIndexError, match="edge 17"):
        build(edges_with(17, source, target).cuda())
    x = torch.arange(3.0, device="cuda")
    torch.cuda.synchronize()
    assert (x @ x).item() == 5.0


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.bool, torch.uint8, torch.complex64]
)
def test_float_bool_uint8_complex_edges(dtype):
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(GraphError, match=f"must be integers .*got {kind}"):
        build(torch.zeros(2, 3, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_other_integers_become_int64(dtype):
    graph = build(torch.tensor([[4, 0, 1], [6, 6, 2]], dtype=dtype))
    assert graph.edge_index.dtype == torch.int64
    assert graph.edge_index.tolist() == [[4, 0, 1], [6, 6, 2]]


def test_edges_as_rows():
    with pytest.raises(GraphError, match=r"expected \[2, E\], got \[7, 2\]; pass edge_index.t\(\)"):
        build(torch.zeros(7, 2, dtype=torch.int64))


@pytest.mark.parametrize("shape", [(3, 5), (2,), (2, 3, 1), (1, 7), ()])
def test_other_shapes(shape):
    with pytest.raises(GraphError, match=r"shape \(2, E\)"):
        build(torch.zeros(shape, dtype=torch.int64))


@pytest.mark.parametrize("value", [None, "edges", [[0, 1], [1]], {"a": 1}])
def test_what_is_no_tensor_at_all(value):
    with pytest.raises(GraphError, match="edge_index"):
        build(value)


def test_two_by_two_is_sources_then_targets():
    graph = build(torch.tensor([[4, 0], [1, 6]]))
    assert graph.source.tolist() == [4, 0]
    assert graph.target.tolist() == [1, 6]
    assert graph.mask().nonzero().tolist() == [[1, 4], [6, 0]]


@pytest.mark.parametrize(
    "empty",
    [
        torch.empty(2, 0),
        torch.empty(2, 0, dtype=torch.bool),
        torch.empty(0, 2),
        torch.empty(0),
        [],
        [[], []],
        np.empty((2, 0)),
    ],
    ids=str,
)
def test_no_edges_in_any_dtype(empty):
    graph = build(empty)
    assert graph.edge_index.dtype == torch.int64
    assert graph.edge_index.shape == (2, 0)
    assert (graph.num_sources, graph.num_targets, graph.num_edges) == (S, T, 0)


def test_no_edges_of_a_wrong_shape_are_still_refused():
    with pytest.raises(GraphError, match=r"got \[3, 0\]"):
        build(torch.empty(3, 0))


REPEATED = torch.tensor([[1, 4, 0, 4, 1, 4], [2, 3, 2, 3, 6, 3]])


def test_repeated_edges_name_the_first_pair():
    with pytest.raises(
        GraphError,
        match=r'edges 1 and 3 are both 4 -> 3: repeated edges.*duplicates="merge".*"keep"',
    ):
        build(REPEATED)


def test_keep_counts_copies():
    graph = build(REPEATED, duplicates="keep")
    assert graph.has_repeated_edges
    assert graph.num_edges == 6
    assert torch.equal(graph.edge_index, REPEATED)
    assert graph.in_degree.tolist() == [0, 0, 2, 3, 0, 0, 1]
    assert graph.out_degree.tolist() == [1, 2, 0, 0, 3]
    assert "repeated edges" in repr(graph)


def test_merge_drops_copies_and_keeps_the_order():
    graph = build(REPEATED, duplicates="merge")
    assert not graph.has_repeated_edges
    assert graph.edge_index.tolist() == [[1, 4, 0, 1], [2, 3, 2, 6]]


def test_any_other_word_is_refused():
    with pytest.raises(
        GraphError, match='duplicates must be "error", "keep" or "merge", got \'drop\''
    ):
        build(REPEATED, duplicates="drop")


def test_self_loops_are_neither_added_nor_removed():
    with_one = torch.tensor([[0, 1, 2], [1, 1, 0]])
    graph = from_edge_index(with_one, num_nodes=3)
    assert torch.equal(graph.edge_index, with_one)
    for same in (
        graph | graph,
        graph & graph,
        graph.reverse().reverse(),
        graph.relabel([0, 1, 2]),
        graph.subgraph([0, 1, 2]),
    ):
        assert same.equals(graph)
    there_and_back = from_edge_index([[0, 1], [1, 0]], num_nodes=2)
    assert there_and_back.k_hop(2).equals(there_and_back)


def test_direction_is_respected():
    graph = from_edge_index([[0, 0, 1], [1, 2, 2]], num_nodes=3)
    assert graph.mask().tolist() == [
        [False, False, False],
        [True, False, False],
        [True, True, False],
    ]
    assert bool(graph.contains(target=2, source=0))
    assert not bool(graph.contains(target=0, source=2))
    assert torch.equal(graph.reverse().mask(), graph.mask().t())
    assert torch.equal(graph.reverse().edge_index, graph.edge_index.flip(0))
    assert graph.in_degree.tolist() == [0, 1, 2]
    assert graph.out_degree.tolist() == [2, 1, 0]


def test_int32_indices_where_a_key_leaves_int32():
    nodes = 70_000
    assert (61_356 * nodes + 47_296) % 2**32 == 0  # the key of (0, 0), if it were kept in 32 bits
    edges = torch.tensor(
        [[0, 47_296, 69_999, 69_998], [0, 61_356, 69_999, 69_999]], dtype=torch.int32
    )
    graph = from_edge_index(edges, num_nodes=nodes)
    assert graph.num_edges == 4
    assert graph.contains(edges[1], edges[0]).all()
    assert not graph.contains(edges[1], edges[0].flip(0)).any()
    assert sorted(graph.reverse().reverse().materialise().edge_index.t().tolist()) == sorted(
        edges.t().tolist()
    )
    assert (graph | graph.reverse()).num_edges == 6
    assert (graph @ graph).contains(69_999, 69_999)
    from graphattn.graph.edges import Edges

    walked = Edges.pairs(graph.edges)  # by runs, not by the stored list
    assert torch.stack(walked).t().tolist() == sorted(edges.flip(0).t().tolist())


def test_too_many_pairs_are_refused_and_never_wrap():
    side = 2**31 + 2**30
    with pytest.raises(GraphError, match=f"{side * side} pairs.*fewer than 2\\*\\*63"):
        from_edge_index([[0], [0]], num_nodes=side)
    last = 3_037_000_498  # the largest square below 2**63
    graph = from_edge_index([[last, 0], [last, last]], num_nodes=last + 1)
    assert bool(graph.contains(last, last))
    assert bool(graph.contains(last, 0))
    assert not bool(graph.contains(0, last))


def test_a_rule_has_no_such_limit():
    side = 10**10
    graph = AttentionGraph(band(side, side, 0), "causal")
    assert graph.num_edges == side * (side + 1) // 2
    assert bool(graph.contains(side - 1, 0))
    assert not bool(graph.contains(0, side - 1))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_two_devices_are_named():
    here = build(torch.tensor([[0], [1]]))
    there = here.to("cuda")
    with pytest.raises(GraphError, match="cpu and one on cuda:0"):
        here | there
    with pytest.raises(ShapeError, match="target is on cuda:0 and source on cpu"):
        here.contains(torch.tensor([0], device="cuda"), torch.tensor([0]))


def test_a_subgraph_of_a_rule_keeps_its_own_copy_of_the_nodes():
    nodes = torch.tensor([3, 1, 0])
    graph = AttentionGraph(band(5, 5, 0)).subgraph(nodes)
    before = graph.mask()
    nodes.copy_(torch.tensor([0, 1, 3]))
    assert before.equal(graph.mask())


def test_the_callers_own_tensor_stays_theirs():
    mine = torch.tensor([[0, 1], [2, 3]])
    graph = build(mine)
    mine.fill_(4)
    assert graph.edge_index.tolist() == [[0, 1], [2, 3]]


def test_in_inference_mode_too():
    with torch.inference_mode():
        graph = build(torch.tensor([[0, 1], [2, 3]]))
    assert graph.edge_index.tolist() == [[0, 1], [2, 3]]
    with torch.inference_mode():
        assert graph.mask().sum() == 2
        graph.edge_index[0, 0] = 4
        assert graph.edge_index.tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (
            {},
            "num_sources and num_targets must be given.*largest indices are those of 5 sources "
            "and 7 targets",
        ),
        ({"num_sources": 5}, "num_targets must be given"),
        ({"num_targets": 7}, "num_sources must be given"),
        (
            {"num_nodes": 7, "num_targets": 7},
            "num_nodes=7 means that sources and targets are the same nodes",
        ),
        ({"num_nodes": -1}, "num_nodes must be a whole number >= 0, got -1"),
        (
            {"num_sources": 5.0, "num_targets": 7},
            "num_sources must be a whole number >= 0, got 5.0",
        ),
    ],
)
def test_sizes_are_never_guessed(sizes, words):
    with pytest.raises(GraphError, match=words):
        from_edge_index([[4, 0], [1, 6]], **sizes)


def test_isolated_nodes_at_the_end_stay():
    graph = from_edge_index([[0], [1]], num_nodes=13)
    assert graph.num_nodes == 13
    assert graph.in_degree.tolist() == [0, 1] + [0] * 11


def test_k_hop_of_a_multigraph_counts_no_copy_as_a_new_edge():
    edges = torch.tensor([[0, 0, 1, 2], [1, 1, 2, 3]])  # a copy of 0 -> 1, and a chain to 3
    graph = from_edge_index(edges, num_nodes=4, duplicates="keep")
    for k, count in ((1, 3), (2, 5), (3, 6)):
        assert graph.k_hop(k).num_edges == count
        assert torch.equal(graph.k_hop(k).mask(), torch.ones(4, 4).tril(-1).triu(-k).bool())


def test_many_edges_are_kept_in_int32_and_surveyed_without_a_key_of_each(monkeypatch):
    draw = torch.Generator().manual_seed(0)
    target = torch.arange(3000).repeat_interleave(5)
    source = torch.stack([torch.randperm(3000, generator=draw)[:5] for _ in range(3000)]).flatten()
    edges = from_edge_index(torch.stack((source, target)), 3000, 3000).edges
    assert edges.sorted.column.dtype == edges.sorted.place.dtype == torch.int32
    rows = torch.tensor([7, 2999, 11])
    found = edges.rows(rows)
    assert "key" not in vars(edges)
    monkeypatch.setattr(type(edges), "_has_tables", False)
    wanted = edges.rows(rows)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("duplicates", ["keep", "merge"])
def test_ends_of_many_edges_are_kept_in_int32(duplicates, monkeypatch):
    edges = torch.tensor([[4, 0, 1, 2, 4], [1, 2, 2, 3, 1]])
    wanted = from_edge_index(edges, 5, 6, duplicates=duplicates)
    monkeypatch.setattr(listed, "INT32_FROM", wanted.num_edges)
    with torch.inference_mode():
        graph = from_edge_index(edges, 5, 6, duplicates=duplicates)
        graph.edge_index[0, 0] = graph.target[0] = 0  # copies
    assert (wanted.edges.ends.dtype, graph.edges.ends.dtype) == (torch.int64, torch.int32)
    assert not graph.edges.ends.is_inference()
    for one, other in (
        (graph, wanted),
        (graph.reverse(), wanted.reverse()),
        (graph | graph, wanted | wanted),
    ):
        for x, y in zip(
            (one.edge_index, one.source), (other.edge_index, other.source), strict=True
        ):
            assert x.dtype == torch.int64
            assert torch.equal(x, y)
    assert graph.equals(wanted)
