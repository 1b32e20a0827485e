"""Biases of edges, against their formulas written down edge by edge, and networkx."""

import copy
import math
import pickle
import weakref

import networkx
import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn.errors import GraphError, OptionError, PositionIndexError, ShapeError
from graphattn.nn import ALiBi, EdgeTypeBias, ShortestPathBias, SwinBias, SwinV2Bias, T5Bias

H = 3
EDGES = {name: build for name, build in GRAPHS.items() if build().num_edges}
GRID = {
    "cells": (ga.graphs.window_partition((5, 7), (3, 2), (1, 1), pad=True), (5, 7), (3, 2)),
    "padding that is read": (
        ga.graphs.window_partition((5, 7), (3, 2), (1, 1), read_padding=True),
        (5, 7),
        (3, 2),
    ),
    "neighbourhood": (ga.graphs.grid_neighbourhood((5, 7), (3, 5), causal=False), (5, 7), (3, 5)),
    "video": (ga.graphs.window_partition((2, 4, 6), (2, 2, 3)), (2, 4, 6), (2, 2, 3)),
    "line": (ga.graphs.window_partition((12,), (4,)), (12,), (4,)),
}


def pairs(graph):
    return list(zip(graph.target.tolist(), graph.source.tolist(), strict=True))


def made(kind, **options):
    """A bias whose table is far from zero."""
    torch.manual_seed(0)
    bias = kind(**options)
    for parameter in bias.parameters():
        torch.nn.init.normal_(parameter)
    return bias


# --- sequences


@pytest.mark.parametrize("name", EDGES)
def test_alibi_and_t5_edge_by_edge(name):
    graph, alibi, t5 = (
        GRAPHS[name](),
        ALiBi(H).double(),
        made(T5Bias, num_heads=H, num_buckets=8, max_distance=11),
    )
    wanted = [[-abs(t - s) * m for m in alibi.slopes.tolist()] for t, s in pairs(graph)]
    assert torch.equal(alibi(graph), torch.tensor(wanted, dtype=torch.float64))
    row = {t - s: int(t5.bucket(torch.tensor(s - t))) for t, s in pairs(graph)}
    assert torch.equal(
        t5(graph), torch.stack([t5.table.weight[row[t - s]] for t, s in pairs(graph)])
    )


def test_positions_of_packed_documents_and_beside_a_cache():
    t5, alibi = made(T5Bias, num_heads=H, num_buckets=8, max_distance=11), ALiBi(H)
    within = torch.cat([torch.arange(5), torch.arange(7)])
    assert torch.equal(
        t5(ga.graphs.full(12), within).view(12, 12, H)[5:, 5:], t5(ga.graphs.full(7)).view(7, 7, H)
    )
    # both begin a document
    assert torch.equal(t5(ga.graphs.full(12), within)[5], t5(ga.graphs.full(12))[0])
    for bias in (t5, alibi):
        last = bias(ga.graphs.cross(1, 9), (torch.tensor([8]), torch.arange(9)))
        assert torch.equal(last, bias(ga.graphs.causal(9))[-9:])
        assert not torch.equal(last, bias(ga.graphs.cross(1, 9)))
        batch = torch.stack((torch.arange(9), torch.arange(9) * 2))
        assert torch.equal(bias(ga.graphs.causal(9), batch)[1], bias(ga.graphs.causal(9), batch[1]))


# --- windows


@pytest.mark.parametrize("name", GRID)
def test_swin_is_query_minus_key(name):
    graph, size, window = GRID[name]
    bias = made(SwinBias, window=window, num_heads=H)
    sides = [2 * m - 1 for m in window]
    table = bias.table.weight.view(*sides, H)
    sources = size if graph.is_square else (6, 8)

    def place(node, grid):
        return torch.unravel_index(torch.tensor(node), grid)

    wanted, turned = [], []
    for t, s in pairs(graph):
        away = [int(a - b) for a, b in zip(place(t, size), place(s, sources), strict=True)]
        wanted.append(table[tuple(d + m - 1 for d, m in zip(away, window, strict=True))])
        turned.append(table[tuple(-d + m - 1 for d, m in zip(away, window, strict=True))])
    assert torch.equal(bias(graph), torch.stack(wanted))
    assert not torch.equal(bias(graph), torch.stack(turned))
    if graph.is_square:
        assert torch.equal(bias(graph.materialise(), size=size), torch.stack(wanted))


def test_a_dilated_window_is_maxvits_grid():
    """Tokens two apart form 4 x 4 grids, whose places the table has, as after its grid_partition."""
    graph = ga.graphs.grid_neighbourhood((8, 8), 4, dilation=2, causal=False)
    bias = SwinBias((4, 4), num_heads=2)
    nodes = torch.arange(64).view(4, 2, 4, 2).permute(1, 3, 0, 2).reshape(4, 16)  # (grids, places)
    y, x = torch.arange(16) // 4, torch.arange(16) % 4
    row = (y[:, None] - y + 3) * 7 + x[:, None] - x + 3
    expected = torch.zeros(64, 64, 2)
    for grid in nodes:
        expected[grid[:, None], grid] = bias.table.weight[row].detach()
    assert torch.equal(bias(graph), expected[graph.target, graph.source])
    listed = graph.materialise()
    explicit = SwinBias((4, 4), 2, dilation=2)
    explicit.load_state_dict(bias.state_dict())
    assert torch.equal(explicit(listed, size=(8, 8)), bias(graph))
    assert "dilation=(2, 2)" in repr(explicit)
    with pytest.raises(GraphError, match="window must be above the length of every edge"):
        SwinBias((4, 4), 2, dilation=1)(graph)
    with pytest.raises(GraphError, match="dilation must divide the steps of every edge, got 3"):
        SwinBias((4, 4), 2, dilation=3)(graph)


def test_swin_v2_by_its_formula():
    graph, size, window = GRID["neighbourhood"]
    for options, divisors in (
        ({}, (2, 4)),
        ({"pretrained_window": (5, 9)}, (4, 8)),
        ({"pretrained_window": (1, 3)}, (1, 2)),
    ):
        bias = made(SwinV2Bias, window=window, num_heads=H, hidden=5, **options).double()
        wanted = []
        for t, s in pairs(graph):
            away = [8 * (t // 7 - s // 7) / divisors[0], 8 * (t % 7 - s % 7) / divisors[1]]
            log = [math.copysign(math.log2(1 + abs(d)) / math.log2(8), d) for d in away]
            hidden = torch.relu(
                bias.mlp[0].weight @ torch.tensor(log, dtype=torch.float64) + bias.mlp[0].bias
            )
            wanted.append(16 / (1 + torch.exp(-bias.mlp[2].weight @ hidden)))
        torch.testing.assert_close(bias(graph), torch.stack(wanted), rtol=0, atol=1e-12)
        assert not torch.allclose(bias(graph.reverse(), size), bias(graph))


# --- tables and paths


def test_edge_table_is_a_row_for_each_edge():
    graph, table = GRAPHS["listed_random"](), made(EdgeTypeBias, num_values=5, num_heads=H)
    kind = torch.arange(graph.num_edges) * 7 % 5
    assert torch.equal(table(graph, kind), torch.stack([table.weight[k] for k in kind.tolist()]))
    assert table(graph, kind.expand(2, -1)).shape == (2, graph.num_edges, H)
    assert torch.equal(table(graph, kind.int()), table(graph, kind))
    parts = ga.graphs.Relations(
        hub=ga.graphs.global_tokens(6, (0,)), near=ga.graphs.sliding_window(6, 3, causal=False)
    )
    found = made(EdgeTypeBias, num_values=2, num_heads=H)(parts.graph, parts.relation)
    assert (found[:, 0] == found[0, 0]).sum() == 11


@pytest.mark.parametrize(
    "name", ["listed_random", "window", "directed_ring", "hub", "union", "long"]
)
def test_shortest_paths_of_networkx(name):
    if name == "union":  # small graphs, of which some have no edges, in an order that mixes them
        along = ga.disjoint_union(
            [GRAPHS["hub"](), GRAPHS["directed_ring"](), GRAPHS["one_lonely_node"]()] * 3
        )
        along = along.relabel(
            torch.randperm(along.num_nodes, generator=torch.Generator().manual_seed(0))
        )
    elif name == "long":  # more nodes than are searched together
        along = ga.graphs.sliding_window(307, 40, causal=True) - ga.graphs.sliding_window(
            307, 7, causal=True
        )
    else:
        along = GRAPHS[name]()
    n = along.num_nodes
    graph = ga.from_edge_index(torch.randint(n, (2, 4000)).unique(dim=1).flip(1), num_nodes=n)
    bias = made(ShortestPathBias, num_heads=H, max_distance=3)
    world = networkx.DiGraph()
    world.add_nodes_from(range(n))
    world.add_edges_from(along.edge_index.t().tolist())
    far = dict(networkx.all_pairs_shortest_path_length(world))
    wanted = [far[s].get(t, -1) for t, s in pairs(graph)]
    assert bias.lengths(graph, along).tolist() == wanted
    assert len(set(wanted)) >= 3
    rows = torch.tensor([4 if d < 0 else min(d, 3) for d in wanted])
    assert torch.equal(bias(graph, along), bias.table.weight[rows])
    backwards = bias.lengths(graph, along.reverse()).tolist()
    assert (backwards == wanted) == along.equals(along.reverse())


def test_examples_have_paths_of_their_own():
    molecules = [GRAPHS["hub"](), GRAPHS["directed_ring"](), ga.graphs.self_loops(2)]
    graphs = ga.PerExample([ga.graphs.full(along.num_nodes) for along in molecules])
    bias = made(ShortestPathBias, num_heads=H)
    found = bias(graphs, ga.PerExample(molecules))
    expected = [bias(graph, along) for graph, along in zip(graphs.graphs, molecules, strict=True)]
    assert torch.equal(found, torch.cat(expected))
    assert found.shape == (graphs.num_edges, H)
    alike = ga.PerExample([graphs.graphs[0], ga.graphs.causal(molecules[0].num_nodes)])
    shared = bias(alike, molecules[0])
    assert torch.equal(shared, bias(alike, ga.PerExample(molecules[:1] * 2)))
    with pytest.raises(GraphError, match="graph, of the nodes of along, must have 31 targets"):
        bias(graphs, molecules[0])
    with pytest.raises(GraphError, match="along must have 3 graphs"):
        bias(graphs, ga.PerExample(molecules[:2]))


def test_lengths_are_found_once_and_keep_no_graph_alive(monkeypatch):
    graph, along, bias = (
        ga.graphs.full(7),
        GRAPHS["causal"]().subgraph(range(7)),
        ShortestPathBias(H),
    )
    first = bias(graph, along)
    monkeypatch.setattr("graphattn.nn.biases.shortest_path._between", None)
    bias.lengths(graph, along).zero_()  # a copy
    assert torch.equal(bias(graph, along), first)
    with pytest.raises(TypeError):
        bias(ga.graphs.full(7), along)
    gone = weakref.ref(along), weakref.ref(graph)
    del along
    assert gone[0]() is None
    monkeypatch.undo()
    bias(graph, graph)
    del graph
    assert gone[1]() is None


# --- all of them

KIND = torch.arange(35) % 4
CALLS = {
    "alibi": (lambda: ALiBi(H), ()),
    "t5": (lambda: T5Bias(H, 8, 11), ()),
    "t5 positions": (lambda: T5Bias(H, 8, 11), (KIND * 5,)),
    "swin": (lambda: SwinBias((3, 2), H), ()),
    "swin v2": (lambda: SwinV2Bias((3, 2), H, hidden=5), ((5, 7),)),
    "table": (lambda: EdgeTypeBias(4, H), ("kind",)),
    "paths": (lambda: ShortestPathBias(H, 2), (ga.graphs.sliding_window(35, 3, causal=False),)),
}


def call(name):
    make, rest = CALLS[name]
    graph = GRID["cells"][0]
    return (
        make,
        graph,
        tuple(torch.arange(graph.num_edges) % 4 if each == "kind" else each for each in rest),
    )


@pytest.mark.parametrize("name", CALLS)
def test_gradients_copies_and_dtypes(name):
    torch.manual_seed(0)
    make, graph, rest = call(name)
    bias = make().double()
    assert bias(graph, *rest).shape == (graph.num_edges, H)
    assert bias(graph, *rest).dtype == torch.float64
    if list(bias.parameters()):
        leaves = tuple(bias.parameters())
        assert torch.autograd.gradcheck(lambda *_: bias(graph, *rest).sin(), leaves, fast_mode=True)
        assert torch.autograd.gradgradcheck(
            lambda *_: bias(graph, *rest).sin(), leaves, fast_mode=True
        )
        assert all(
            grad.any() for grad in torch.autograd.grad(bias(graph, *rest).sin().sum(), leaves)
        )
    other = make().double()
    other.load_state_dict(bias.state_dict())
    for twin in (copy.deepcopy(bias), pickle.loads(pickle.dumps(bias)), other):
        assert torch.equal(twin(graph, *rest), bias(graph, *rest))
        assert repr(twin) == repr(bias)
    with torch.inference_mode():
        fresh = make()(
            GRID["cells"][0].materialise().relabel(torch.arange(35)),
            *([(5, 7)] if "swin" in name else rest),
        )
        assert fresh.shape == (graph.num_edges, H)


def test_graphs_of_heads_have_the_edges_of_their_union():
    both = ga.PerHead(
        (ga.graphs.window_partition((4, 6), (1, 6)), ga.graphs.window_partition((4, 6), (4, 1)))
    )
    swin, t5 = made(SwinBias, window=(4, 6), num_heads=2), made(T5Bias, num_heads=2)
    assert torch.equal(swin(both, size=(4, 6)), swin(both.union(), size=(4, 6)))
    layer = ga.nn.GraphAttention(8, 2)
    assert layer(
        torch.randn(24, 8), both, score_bias=t5(both) + swin(both, (4, 6)) + ALiBi(2)(both)
    ).shape == (24, 8)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_biases_compile_whole_though_they_share_a_graph():
    torch.manual_seed(0)
    graph, rest = GRID["cells"][0], {name: call(name)[2] for name in CALLS}
    biases = torch.nn.ModuleDict({name: CALLS[name][0]() for name in CALLS})

    def network(graph):
        return sum(bias(graph, *rest[name]) for name, bias in biases.items())

    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    found, wanted = compiled(graph), network(graph)
    torch.testing.assert_close(found, wanted)
    grads = [
        torch.autograd.grad(y.square().sum(), list(biases.parameters())) for y in (found, wanted)
    ]
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    paths = torch.compile(
        lambda graph, along: biases["paths"](graph, along), backend="aot_eager", fullgraph=True
    )
    # alike but for their edges
    for along in (ga.graphs.causal(35), ga.graphs.sliding_window(35, 9, causal=True)):
        assert torch.equal(paths(graph, along), biases["paths"](graph, along))


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ["rule_or_listed", "packed_documents"])
def test_a_layer_with_its_bias_compiles_whole_on_a_graph_that_is_new(name):
    torch.manual_seed(0)
    graph, t5, layer = (
        GRAPHS[name](),
        made(T5Bias, num_heads=H),
        ga.nn.GraphAttention(12, H, backend="dense"),
    )
    compiled = torch.compile(
        lambda x: layer(x, graph, score_bias=t5(graph)), backend="aot_eager", fullgraph=True
    )
    x = torch.randn(graph.num_targets, 12)
    torch.testing.assert_close(compiled(x), layer(x, graph, score_bias=t5(graph)))


FULL, BIAS = ga.graphs.full(5), ShortestPathBias(H)
REFUSED = {
    "mask": (
        lambda: ALiBi(H)(torch.ones(3, 3).bool()),
        GraphError,
        r"got Tensor; .*graphattn.from_mask\(mask\)",
    ),
    "pattern": (
        lambda: T5Bias(H)(ga.graphs.causal(...)),
        GraphError,
        r"for a Pattern, pattern\(num_nodes\)",
    ),
    "positions": (
        lambda: ALiBi(H)(FULL, torch.arange(4)),
        ShapeError,
        r"positions of targets must be integers \(..., 5\)",
    ),
    "real": (
        lambda: T5Bias(H)(FULL, torch.ones(5)),
        ShapeError,
        r"positions of targets must be integers \(\.\.\., 5\),",
    ),
    "complex": (
        lambda: ALiBi(H)(FULL, torch.ones(5) * 1j),
        ShapeError,
        r"positions of targets must be integers \(\.\.\., 5\),",
    ),
    "bool": (
        lambda: ALiBi(H)(FULL, torch.ones(5).bool()),
        ShapeError,
        r"positions of targets must be integers \(\.\.\., 5\),",
    ),
    "pair": (
        lambda: T5Bias(H)(ga.graphs.cross(2, 5), torch.arange(2)),
        ShapeError,
        r"positions of sources .* pass a pair \(targets, sources\)",
    ),
    "odd": (
        lambda: T5Bias(H, 7),
        OptionError,
        "num_buckets must be 4 or more, and even if bidirectional; got 7",
    ),
    "near": (
        lambda: T5Bias(H, 32, 8),
        OptionError,
        "max_distance must be above 8, the distances with a bucket each, got 8",
    ),
    "no size": (
        lambda: SwinBias((2, 3), H)(ga.graphs.full(24)),
        GraphError,
        r"size is needed.* full.*size=\(height, width\)",
    ),
    "one side": (
        lambda: SwinBias(4, H)(ga.graphs.window_partition((8, 8), 4)),
        GraphError,
        r"window_partition.* lies on a grid of 2 axes, .*built with window=\(4,\): .* a side for each axis",
    ),
    "size": (
        lambda: SwinBias((2, 3), H)(FULL, (2, 3)),
        GraphError,
        r"a graph of size \(2, 3\) must have 6 targets and 6 sources",
    ),
    "long": (
        lambda: SwinBias((2, 2), H)(ga.graphs.full(24), (4, 6)),
        GraphError,
        "window must be above the length of every",
    ),
    "trained": (
        lambda: SwinV2Bias((2, 2), H, pretrained_window=(2,)),
        OptionError,
        r"pretrained_window must be one, or 2, one for each axis, got 1: \(2,\)",
    ),
    "too many": (
        lambda: EdgeTypeBias(4, H)(FULL, torch.zeros(24).long()),
        ShapeError,
        r"values must have shape \(..., 25\), got a Tensor \(24,\)",
    ),
    "beyond": (
        lambda: EdgeTypeBias(4, H)(FULL, torch.arange(25)),
        PositionIndexError,
        r"in \[0, 4\).* got 0 to 24",
    ),
    "along": (
        lambda: BIAS(FULL, ga.graphs.causal(4)),
        GraphError,
        "of the nodes of along, must have 4 targets and 4 sources",
    ),
    "along what": (lambda: BIAS(FULL, torch.ones(5, 5).bool()), GraphError, "from_mask"),
    "along heads": (lambda: BIAS(FULL, ga.PerHead((FULL,))), GraphError, r"or .union\(\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    act, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        act()
