"""Algebra on graphs is algebra on boolean matrices; closed forms stay closed; huge rules stay
small.
"""

import numpy as np
import pytest
import torch
from brute_force import block_diagonal, edge_sets, listings, table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphattn.convert import from_edge_index, from_mask
from graphattn.errors import GraphError, GraphIndexError
from graphattn.graph import AttentionGraph, disjoint_union
from graphattn.graph.forms import band, of_function, partition, product, rectangle
from graphattn.graphs import (
    block_sparse,
    causal,
    composite,
    global_tokens,
    random_neighbours,
    sliding_window,
    window_partition,
)
from graphattn.graphs.grid.axes import cells
from graphattn.graphs.grid.cells_and_windows import axis_neighbourhood

SOME = settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
SIDES = st.integers(0, 7)


@st.composite
def graphs(draw, T=None, S=None):
    """A graph, listed (perhaps with copies) or a rule, and its mask."""
    T = draw(SIDES) if T is None else T
    S = draw(SIDES) if S is None else S
    copies = listings(T, S, repeats=True)
    edges, mask = draw(st.one_of(edge_sets(T, S, 1), listings(T, S), copies))
    return AttentionGraph(edges, draw(st.sampled_from(["a", "a | b", "a - b"]))), mask


def squares(least=0):
    return st.integers(least, 7).flatmap(lambda n: graphs(n, n))


def pairs_of_graphs():
    return st.tuples(SIDES, SIDES).flatmap(lambda size: st.tuples(graphs(*size), graphs(*size)))


def same(graph: AttentionGraph, mask: np.ndarray) -> None:
    """The graph has these edges, each once, however it is asked."""
    expected = torch.from_numpy(np.ascontiguousarray(mask))
    assert torch.equal(graph.mask(), expected)
    assert graph.num_edges == int(mask.sum())
    assert not graph.has_repeated_edges
    assert sorted(graph.edge_index.t().tolist()) == sorted(expected.nonzero().flip(1).tolist())
    assert torch.equal(graph.in_degree, expected.sum(1))
    assert torch.equal(graph.out_degree, expected.sum(0))


@SOME
@given(pairs_of_graphs())
def test_or_and_minus_not(case):
    (a, x), (b, y) = case
    same(a | b, x | y)
    same(a & b, x & y)
    same(a - b, x & ~y)
    same(~a, ~x)
    same(~~a, x)
    same(a - (a & b), x & ~y)
    for graph in (a | b, a & b, a - b, ~a):
        assert graph.is_rule == (not graph.edges.is_listed)
        assert len(repr(graph).splitlines()) == 1


@SOME
@given(pairs_of_graphs())
def test_equals(case):
    (a, x), (b, y) = case
    copies = a.has_repeated_edges or b.has_repeated_edges
    if not copies:
        assert a.equals(b) == np.array_equal(x, y)
    elif a.equals(b):
        assert sorted(a.edge_index.t().tolist()) == sorted(b.edge_index.t().tolist())
    assert a.equals(a.materialise())


@SOME
@given(
    st.tuples(SIDES, SIDES, SIDES).flatmap(
        lambda n: st.tuples(graphs(n[0], n[1]), graphs(n[1], n[2]))
    )
)
def test_composition_is_the_boolean_product(case):
    (a, x), (b, y) = case
    same(a @ b, (x.astype(int) @ y.astype(int)) > 0)


@SOME
@given(graphs())
def test_reverse_is_the_transpose(case):
    graph, mask = case
    turned = graph.reverse()
    assert torch.equal(turned.mask(), torch.from_numpy(np.ascontiguousarray(mask.T)))
    assert turned.num_edges == graph.num_edges
    assert turned.reverse().equals(graph)
    if not graph.is_rule:
        assert torch.equal(turned.edge_index, graph.edge_index.flip(0))


@SOME
@given(squares(least=2), st.sampled_from([1, 2, 2, 3, 4]))
def test_k_hop(case, k):
    graph, mask = case
    walks, reach = mask.astype(int), mask.copy()
    for _ in range(k - 1):
        walks = ((walks @ mask) > 0).astype(int)
        reach |= walks > 0
    np.fill_diagonal(reach, mask.diagonal())  # walking there and back adds no self-loop
    if graph.has_repeated_edges and k == 1:
        assert torch.equal(graph.k_hop(1).mask(), torch.from_numpy(reach))
    else:
        assert torch.equal(graph.k_hop(k).mask(), torch.from_numpy(reach))
        assert graph.has_repeated_edges or graph.k_hop(k).num_edges == int(reach.sum())


@SOME
@given(squares())
def test_self_loops(case):
    graph, mask = case
    eye = np.eye(len(mask), dtype=bool)
    added, dropped = graph.with_self_loops(), graph.without_self_loops()
    assert torch.equal(added.mask(), torch.from_numpy(mask | eye))
    assert torch.equal(dropped.mask(), torch.from_numpy(mask & ~eye))
    missing = int((eye & ~mask).sum())
    assert added.num_edges == graph.num_edges + missing
    if not graph.is_rule:
        assert torch.equal(added.edge_index[:, : graph.num_edges], graph.edge_index)
        assert torch.equal(dropped.edge_index, graph.edge_index[:, graph.source != graph.target])


@SOME
@given(graphs(), st.data())
def test_subgraph(case, data):
    graph, mask = case
    targets, sources = (
        data.draw(st.lists(st.integers(0, n - 1), unique=True)) if n else []
        for n in (len(mask), mask.shape[1])
    )
    smaller = graph.subgraph(targets=targets, sources=sources)
    expected = mask[np.ix_(np.array(targets, dtype=int), np.array(sources, dtype=int))]
    assert torch.equal(smaller.mask(), torch.from_numpy(expected))
    members = torch.zeros(len(mask), dtype=torch.bool)
    members[targets] = True
    by_mask = graph.subgraph(targets=members)
    assert torch.equal(by_mask.mask(), torch.from_numpy(mask[members.numpy()]))
    if graph.is_square:
        assert torch.equal(
            graph.subgraph(targets).mask(),
            torch.from_numpy(mask[targets][:, targets])
            if targets
            else torch.zeros(0, 0, dtype=torch.bool),
        )


@SOME
@given(graphs(), st.data())
def test_relabel(case, data):
    graph, mask = case
    targets, sources = (data.draw(st.permutations(range(n))) for n in mask.shape)
    expected = np.zeros_like(mask)
    for t, s in np.argwhere(mask):
        expected[targets[t], sources[s]] = True
    moved = graph.relabel(targets=targets, sources=sources)
    assert torch.equal(moved.mask(), torch.from_numpy(expected))
    assert moved.num_edges == graph.num_edges
    if not graph.is_rule:
        assert moved.source.tolist() == [sources[s] for s in graph.source.tolist()]
        assert moved.target.tolist() == [targets[t] for t in graph.target.tolist()]


@SOME
@given(st.lists(graphs(), max_size=4))
def test_disjoint_union(cases):
    union = disjoint_union([graph for graph, _ in cases])
    expected = block_diagonal([mask for _, mask in cases])
    assert torch.equal(union.mask(), torch.from_numpy(expected))
    assert union.num_edges == sum(graph.num_edges for graph, _ in cases)
    assert union.is_rule == (bool(cases) and all(graph.is_rule for graph, _ in cases))
    if cases and not union.is_rule:
        assert union.source[: cases[0][0].num_edges].tolist() == cases[0][0].source.tolist()


def test_a_disjoint_union_with_padded_sources():
    listed = from_edge_index([[0, 4], [1, 0]], num_sources=5, num_targets=2)
    for parts, starts in (
        ([causal(3), from_mask(torch.ones(2, 4).bool())], (0, 7, 15)),
        ([causal(3), listed], (6, 1, 9)),
    ):
        union = disjoint_union(parts, starts)
        expected = torch.zeros(sum(part.num_targets for part in parts), starts[-1]).bool()
        first = 0
        for part, start in zip(parts, starts, strict=False):
            block = expected[first : first + part.num_targets, start : start + part.num_sources]
            block |= part.mask()
            first += part.num_targets
        assert torch.equal(union.mask(), expected)
        assert union.is_rule == all(part.is_rule for part in parts)
    for wrong in ((0, 7), (0, 7, 10), (-1, 7, 15)):
        with pytest.raises(GraphError, match="source_starts must be the first sources of 2 graphs"):
            disjoint_union([causal(3), from_mask(torch.ones(2, 4).bool())], wrong)


def rule(edges, name="rule"):
    return AttentionGraph(edges, name)


# --- composition

PRODUCTS = [
    (band(11, 11, 0, 3), band(11, 11, -1, 2)),
    (cells(11, 3, 2), cells(11, 3, 2)),
    (partition(torch.tensor([0, 1, 0, 2, 1])), partition(torch.tensor([5, 7, 5, 9, 7]))),
    (product((band(3, 3, -1, 1), cells(5, 2))), product((band(3, 3, 0, 1), cells(5, 2)))),
    (band(7, 5), of_function(5, 3, lambda t, s: (t + s) % 4 == 1)),
    (of_function(7, 5, lambda t, s: (t + 2 * s) % 4 == 1), band(5, 3)),
    (band(11, 11, 1, 3), band(11, 11, -2, -1)),  # without loops, a stop may fall off the sequence
    (band(11, 11, 0, 4, 2), band(11, 11, 0, 3)),
    (band(11, 7, 0, 3), band(7, 13, -1, 2)),
    (band(11, 11, 0, 3, 1, 2), band(11, 11, 0, 3)),
    (cells(11, 3), cells(11, 3, 1)),
    (cells(11, 3), cells(11, 4)),
    (partition(torch.tensor([0, 1, 0])), partition(torch.tensor([0, 1, 1]))),
    (partition(torch.tensor([0, 1]), torch.tensor([0, 1, 2])), partition(torch.tensor([0, 1, 2]))),
    (product((band(3, 3, 1, 1), cells(5, 2))), product((band(3, 3, -1, -1), cells(5, 2)))),
    (product((cells(3, 2), cells(5, 2))), product((cells(5, 2), cells(3, 2)))),
    (axis_neighbourhood(7, 3), axis_neighbourhood(7, 3)),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("a", "b"), PRODUCTS, ids=range(len(PRODUCTS)))
def test_a_composition_of_rules_is_a_rule_and_the_product_of_the_masks(a, b):
    composed = rule(a) @ rule(b)
    assert composed.is_rule
    expected = rule(a).mask().long() @ rule(b).mask().long() > 0
    assert torch.equal(composed.mask(), expected)
    assert composed.num_edges == int(expected.sum())


@pytest.mark.slow
def test_two_layers_of_large_windows_join_ends_alone():
    """A list of the stops between would hold 257 * 10**5 of them."""
    window = rule(band(10**5, 10**5, -128, 128), "window")
    assert (window @ window).equals(rule(band(10**5, 10**5, -256, 256)))


def test_two_layers_of_a_window_are_a_wider_window():
    window = rule(band(1009, 1009, 0, 2), "window")
    assert (window @ window).equals(rule(band(1009, 1009, 0, 4)))
    assert window.k_hop(5).is_rule
    assert window.k_hop(5).equals(rule(band(1009, 1009, 0, 10)))


@SOME
@given(squares(least=2))
def test_k_hop_of_many_ends_where_nobody_new_is_reached(case):
    (graph, mask), reach = case, case[1].copy()
    for _ in range(len(mask)):
        reach |= (reach.astype(int) @ mask) > 0
    np.fill_diagonal(reach, mask.diagonal())
    assert torch.equal(graph.k_hop(10**3).mask(), torch.from_numpy(reach))


@pytest.mark.sample(3)
@pytest.mark.parametrize("k", [2, 3, 7, 12, 10**5])
def test_k_hop_of_a_window_is_a_window(k):
    window = rule(band(97, 97, -1, 2), "window")
    assert window.k_hop(k).is_rule
    assert window.k_hop(k).equals(rule(band(97, 97, -k, 2 * k)))
    assert not window.k_hop(k).equals(rule(band(97, 97, -k + 1, 2 * k))) or k > 97


# --- size

BIG = 300_000
LARGE = 60_000


def test_a_large_rule_costs_nothing():
    causal = rule(band(LARGE, LARGE, 0), "causal")
    longformer = rule(band(LARGE, LARGE, -128, 128), "window") | rule(
        rectangle(LARGE, LARGE, ((0, LARGE),), ((0, 16),)), "global"
    )
    assert causal.num_edges == LARGE * (LARGE + 1) // 2
    # global sources that the window has anyway
    hidden = sum(min(t + 129, 16) - max(0, t - 128) for t in range(144))
    assert longformer.num_edges == 257 * LARGE - 128 * 129 + 16 * LARGE - hidden
    assert len(repr(longformer).splitlines()) == 1
    assert causal.k_hop(5).num_edges == causal.num_edges


@pytest.mark.parametrize(
    ("ask", "num_bytes"),
    [
        (lambda g: g.edge_index, 16 * (BIG * (BIG + 1) // 2)),
        (lambda g: g.source, 16 * (BIG * (BIG + 1) // 2)),
        (lambda g: g.mask(), BIG * BIG),
        (lambda g: g.block_counts((1, 1)), 8 * BIG * BIG),
        (lambda g: g._block_classes((2, 5)), 8 * (BIG // 2) * (BIG // 5)),
        (lambda g: g.materialise(), 16 * (BIG * (BIG + 1) // 2)),
    ],
)
def test_what_is_too_large_is_refused_with_its_bytes(ask, num_bytes):
    with pytest.raises(GraphError, match=f"would take {num_bytes:,} bytes"):
        ask(rule(band(BIG, BIG, 0), "causal"))


def test_materialise_lifts_and_lowers_the_limit():
    graph = rule(band(7, 7, 0))
    with pytest.raises(GraphError, match="would take 448 bytes"):
        graph.materialise(max_bytes=447)
    assert graph.materialise(max_bytes=448).num_edges == 28
    assert graph.materialise(max_bytes=None).num_edges == 28


# --- order


def test_listed_edges_keep_their_order():
    a = from_edge_index([[4, 0, 2], [1, 6, 3]], num_sources=5, num_targets=7)
    b = from_edge_index([[1, 0, 4], [5, 6, 0]], num_sources=5, num_targets=7)
    assert (a | b).edge_index.tolist() == [[4, 0, 2, 1, 4], [1, 6, 3, 5, 0]]
    assert (b | a).edge_index.tolist() == [[1, 0, 4, 4, 2], [5, 6, 0, 1, 3]]
    rest = rule(band(7, 5, 0))
    assert (a & rest).edge_index.tolist() == [[0, 2], [6, 3]]
    assert (rest & a).edge_index.tolist() == [[0, 2], [6, 3]]
    assert (a - rest).edge_index.tolist() == [[4], [1]]


def test_copies_disappear_by_set_algebra_and_survive_renumbering():
    edges = [[1, 0, 1, 2, 1], [2, 0, 2, 1, 2]]
    graph = from_edge_index(edges, num_nodes=3, duplicates="keep")
    other, everything, nothing = (
        rule(band(3, 3, -1, 1)),
        rule(band(3, 3)),
        from_edge_index([[], []], num_nodes=3),
    )
    once = [[1, 0, 2], [2, 0, 1]]
    for same_edges in (
        graph & everything,
        everything & graph,
        graph & graph,
        graph | graph,
        graph | nothing,
    ):
        assert same_edges.edge_index.tolist() == once
    assert (graph - nothing).edge_index.tolist() == once
    assert (graph & other).num_edges == (other & graph).num_edges == 3
    assert (graph | other).num_edges == other.num_edges == 7
    assert (~graph).num_edges == 6
    assert (~~graph).num_edges == 3
    assert (graph @ everything).num_edges == 9
    assert graph.k_hop(2).num_edges == len({(1, 2), (0, 0), (2, 1)})
    for still_five in (
        graph.reverse(),
        graph.relabel([2, 0, 1]),
        graph.subgraph([0, 1, 2]),
        graph.materialise(),
    ):
        assert still_five.num_edges == 5
        assert still_five.has_repeated_edges
    assert graph.with_self_loops().num_edges == 7
    assert graph.without_self_loops().num_edges == 4
    assert disjoint_union([graph, everything]).num_edges == 14
    assert not graph.equals(graph | nothing)
    assert graph.equals(graph.reverse().reverse())


def test_a_rules_order_is_by_target_then_source():
    edges = rule(band(5, 3, -1)).edge_index
    assert edges.flip(0).t().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [1, 2]] + [
        [t, s] for t in (2, 3, 4) for s in range(3)
    ]


def test_a_subgraph_in_order_keeps_intervals(monkeypatch):
    """No source is looked at by itself."""
    monkeypatch.delattr("graphattn.graph.runs.from_unsorted")
    graph = causal(101)
    for sources in (range(5, 101), [*range(5, 40), *range(50, 101)]):
        part = graph.subgraph(targets=range(9, 101), sources=sources)
        _, lo, hi = part.edges.rows(torch.arange(92))
        assert torch.equal(hi - lo, graph.mask()[9:, torch.tensor(sources)].sum(1))


def test_subgraph_and_relabel_number_in_the_order_given():
    graph = from_edge_index([[0, 1, 2, 3], [1, 2, 3, 0]], num_nodes=4)
    assert graph.subgraph([3, 0, 1]).edge_index.tolist() == [[1, 0], [2, 1]]
    assert graph.relabel([2, 0, 3, 1]).edge_index.tolist() == [[2, 0, 3, 1], [0, 3, 1, 2]]


# --- looking


def test_print_is_the_mask():
    lines = str(from_mask([[True, False, True], [False, True, False]])).splitlines()
    assert lines == [
        "AttentionGraph(mask: 3 sources -> 2 targets, 3 edges, density 0.5, listed)",
        "█ · █",
        "· █ ·",
    ]


def test_sources_that_no_target_reads_are_said():
    mask = torch.tensor([[True, False, False, True], [False, False, False, True]])
    assert repr(from_mask(mask)).endswith("listed, unread sources: 2)")
    assert "unread" not in repr(from_mask(mask.any(0, keepdim=True)[:, [0, 3]]))
    square = from_edge_index([[0], [1]], num_nodes=4)  # a node may be read in a later layer
    assert "unread" not in repr(square)


@pytest.mark.parametrize("sizes", [(71, 71), (11, 67), (83, 7)])
def test_the_part_that_a_downsampled_print_names_is_printed_pair_by_pair(sizes):
    graph = rule(band(*sizes, 0), "causal")
    named = str(graph).splitlines()[-1].partition("one by one: ")[2].removesuffix(")")
    part = eval(named, {"graph": graph})
    lines = str(part).splitlines()
    assert len(lines) == 1 + min(sizes[0], 32)
    assert lines[1].count("█") == int(part.mask()[0].sum())


def test_print_of_a_large_graph_is_downsampled():
    lines = str(rule(band(1000, 500, 0), "causal")).splitlines()
    assert lines[0].startswith("AttentionGraph(causal: 500 sources -> 1000 targets, ")
    assert lines[-2:] == [
        "(each cell is 32 targets x 32 sources; · none, ░ ▒ ▓ some, █ all)",
        "(the pairs of a part, one by one: graph.subgraph(targets=range(32), sources=range(32)))",
    ]
    cells = [line.split() for line in lines[1:-2]]
    assert (len(cells), len(cells[0])) == (32, 16)
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            half = "▓" if i == 15 else "▒"  # the last column of cells is narrower
            assert cell == ("·" if j > i else "█" if j < i else half)


def test_print_of_nothing_and_of_the_uncountable():
    assert str(rule(band(0, 3), "none")).splitlines()[1] == "(no pairs: 0 targets, 3 sources)"
    costly = rule(of_function(10**6, 10**6, lambda t, s: t == s), "function")
    assert repr(costly) == "AttentionGraph(function: 1000000 nodes, edges not counted, rule)"
    assert str(costly).splitlines()[1:] == [
        "(1,000,000 x 1,000,000 pairs: too many to draw)",
        "(the pairs of a part, one by one: graph.subgraph(range(32)))",
    ]


@pytest.mark.parametrize("size", [33, 64, 65, 127, 2_000])
def test_print_is_of_single_pairs_up_to_64_nodes_and_no_line_is_long(size):
    lines = str(rule(band(size, size, 0, 2))).splitlines()[1:]
    assert max(map(len, lines)) <= 130
    drawn = [line.split() for line in lines if not line.startswith("(")]
    assert (len(drawn) == size) == (size <= 64)
    assert len(drawn) == len(drawn[0])


def test_long_names_are_cut():
    graph = rule(band(3, 3), "a rather long name of a graph")
    for _ in range(5):
        graph = graph | rule(band(3, 3, 0), "another one")
    assert len(graph.name) <= 72
    assert graph.name.endswith("... | another one")


def test_names_of_graphs_of_graphs_are_cut_once_and_between_words():
    near = sliding_window(20, 5, causal=False) | global_tokens(20, (0, 3, 19))
    layout = near | random_neighbours(20, 2, 7, avoid=near)
    blocks = block_sparse(layout, 4)
    begin = "block_sparse(sliding_window(20, 5, causal=False) | "
    for graph in (blocks, blocks.with_self_loops(), composite([[blocks, causal(80)]])):
        assert begin[:24] in graph.name
        assert graph.name.count("...") == 1
        assert len(graph.name) <= 72
    assert blocks.name.startswith(begin)
    assert blocks.name.endswith("..., 4)")


def test_the_end_of_a_long_name_is_shown():
    rows, columns = (window_partition((6, 8), window) for window in ((1, 8), (6, 1)))
    graph = (rows | columns).with_global_tokens(1)
    assert graph.name.endswith(".with_global_tokens(1)")
    assert graph.name.startswith("(window_partition((6, 8), (1, 8)) | ")
    assert len(graph.name) <= 72


def test_names_show_the_algebra():
    a, b, c = (rule(band(3, 3), name) for name in "abc")
    assert ((a | b) | c).name == "a | b | c"
    assert ((a | b) & c).name == "(a | b) & c"
    assert (a - (b - c)).name == "a - (b - c)"
    assert (~(a @ b)).name == "~(a @ b)"
    assert a.reverse().name == "reverse(a)"


# --- refusals

A, B = rule(band(7, 5)), rule(band(7, 7))
REFUSALS = [
    (
        lambda: A | B,
        r"\| needs the same nodes on both sides, got \(targets, sources\) \(7, 5\) and \(7, 7\)",
    ),
    (lambda: A & B, "& needs the same nodes"),
    (lambda: A - B, "- needs the same nodes"),
    (
        lambda: A @ B,
        "@ needs the sources of the left graph to be the targets of the right one, got 5 sources "
        "and 7",
    ),
    (
        lambda: A | torch.ones(7, 5),
        r"\| joins two AttentionGraphs, got Tensor; .*graphattn.from_mask\(mask != 0\)",
    ),
    (
        lambda: A - torch.ones(7, 5).bool(),
        r"- joins .* got Tensor; a bool mask .* with graphattn.from_mask\(mask\)",
    ),
    (lambda: A & torch.ones(7, 5).long(), r"got Tensor; .* graphattn.from_mask\(mask != 0\)"),
    (
        lambda: A & torch.ones(2, 5).long(),
        r"got Tensor; .* graphattn.from_edge_index\(edge_index, num_nodes=N\)",
    ),
    (lambda: A.num_nodes, "num_nodes needs a square graph.*7 targets and 5 sources"),
    (lambda: A.k_hop(2), "k_hop needs a square graph"),
    (lambda: A.with_self_loops(), "with_self_loops needs a square graph"),
    (lambda: A.without_self_loops(), "without_self_loops needs a square graph"),
    (lambda: A.subgraph([0]), r"subgraph\(nodes\) needs a square graph"),
    (lambda: B.k_hop(0), "k must be a whole number >= 1, got 0"),
    (lambda: B.k_hop(1.5), "k must be a whole number >= 1, got 1.5"),
    (
        lambda: B.subgraph([0], targets=[1]),
        "takes nodes for both sides, or targets= and sources=, not both forms",
    ),
    (lambda: B.subgraph([0, 3, 0]), "must be distinct, got a node twice"),
    (lambda: B.subgraph([0.5]), "must be integers .*got float32"),
    (
        lambda: B.subgraph([True, False]),
        r"subgraph: targets as a bool mask must have shape \(7,\), got a Tensor \(2,\)",
    ),
    (lambda: B.relabel([0, 1]), "needs a permutation of all 7 targets, got 2 numbers"),
    (lambda: A.block_counts((0, 3)), "a side of tile must be a whole number >= 1"),
    (lambda: disjoint_union([A, "b"]), "disjoint_union needs an AttentionGraph, got str"),
    (lambda: A.contains(0.0, 1), "target must be integers .*got float32"),
]


@pytest.mark.parametrize(("ask", "words"), REFUSALS, ids=range(len(REFUSALS)))
def test_refusals(ask, words):
    with pytest.raises(GraphError, match=words):
        ask()


@pytest.mark.parametrize(
    ("t", "s", "words"),
    [(7, 0, r"target must be in \[0, 7\)"), (0, 5, "source .* got 5"), (0, -1, "got -1 to")],
)
def test_contains_refuses_nodes_that_are_not_there(t, s, words):
    with pytest.raises(GraphIndexError, match=words):
        A.contains(t, s)
    with pytest.raises(GraphIndexError):
        B.subgraph([t, s + 8])


def test_a_union_of_rules_is_lazy():
    asked = []

    def seen(t, s):
        asked.append(1)
        return t == s

    union = rule(of_function(7, 7, seen)) | rule(band(7, 7, 0))
    assert asked == []
    assert torch.equal(union.mask(), torch.from_numpy(table(7, 7, lambda t, s: s <= t)))
    assert asked
