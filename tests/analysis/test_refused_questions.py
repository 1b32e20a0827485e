"""What is not one graph is refused with what to pass instead; no node and one node have answers or
a clear refusal.
"""

import importlib

import pytest
import torch

import graphattn as ga
from graphattn import GraphAttnError, analysis, graphs
from graphattn.errors import GraphError
from graphattn.graph import PerHead, Relations

CAUSAL = graphs.causal(5)
LIKE_GRAPHS = {
    "give it a size": graphs.causal(...),
    "\\.union\\(\\)": PerHead((CAUSAL, graphs.full(5))),
    r"pass one of them, graphs\[i\]": [CAUSAL],
    "relations.graph": Relations(near=CAUSAL),
    "from_mask": CAUSAL.mask(),
    "from_edge_index": CAUSAL.edge_index,
}
OF_ONE = {
    "facts": ga.facts,
    "hops": analysis.hops,
    "tile_fill": analysis.tile_fill,
    "spectral_gap": analysis.spectral_gap,
    "connectivity": analysis.connectivity,
    "effective_resistance": analysis.effective_resistance,
    "commute_time": analysis.commute_time,
    "conductance": analysis.conductance,
    "forman_curvature": analysis.forman_curvature,
    "ollivier_ricci_curvature": analysis.ollivier_ricci_curvature,
    "expect": lambda graph: ga.audit(CAUSAL, graph),
}
OF_LAYERS = {
    "universality": analysis.universality,
    "path_counts": analysis.path_counts,
    "receptive_field": analysis.receptive_field,
    "influence_distribution": analysis.influence_distribution,
    "jacobian_bound": analysis.jacobian_bound,
    "leaks": ga.leaks,
    "flops": analysis.flops,
    "measure_leaks": lambda layers: analysis.measure_leaks(
        torch.nn.Identity(), torch.ones(5, 2), layers
    ),
}


@pytest.mark.parametrize("name", OF_ONE)
def test_what_is_not_one_graph_is_refused(name):
    for words, given in LIKE_GRAPHS.items():
        if (name == "facts" and isinstance(given, list)) or (
            name in ("facts", "expect") and isinstance(given, PerHead)
        ):
            OF_ONE[name](given)  # of each
            continue
        with pytest.raises(GraphError, match=words) as caught:
            OF_ONE[name](given)
        assert name in str(caught.value)
    OF_ONE[name](CAUSAL)


@pytest.mark.parametrize("name", OF_LAYERS)
def test_what_is_no_layers_is_refused(name):
    ask = OF_LAYERS[name]
    for words, given in LIKE_GRAPHS.items():
        if isinstance(given, list | PerHead):
            ask(given)  # these are layers
            continue
        with pytest.raises(GraphError, match=words) as caught:
            ask(given)
        assert str(caught.value).startswith(
            ("layers must be a graph or a list of graphs, first layer first", "layer 0 ")
        )
    for given in (5, [5], "causal", [CAUSAL.mask()]):
        with pytest.raises(GraphError, match=r"AttentionGraph|list of graphs"):
            ask(given)


def test_what_is_no_mask_is_not_called_as_a_function():
    for words, given in LIKE_GRAPHS.items():
        if isinstance(given, torch.Tensor | PerHead):
            continue
        with pytest.raises(GraphError, match=words):
            ga.audit(given, CAUSAL)
    assert ga.audit(CAUSAL.mask().tolist(), CAUSAL).ok


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("kind", ["full", "causal", "no edges", "listed"])
def test_no_node_and_one_node(kind, size):
    graph = graphs.causal(size) if kind == "causal" else graphs.full(size)
    graph = (
        graph - graph if kind == "no edges" else graph.materialise() if kind == "listed" else graph
    )
    edges = 0 if kind == "no edges" else size
    assert analysis.hops(graph).to_dict() == {"layers": 0, "everything": True, "past": True}
    assert ga.facts(graph).reads_everything is True
    with pytest.raises(GraphAttnError, match=f"at least 2 nodes, this graph has {size}"):
        analysis.spectral_gap(graph)
    for residual in (False, True):
        counts = analysis.path_counts([graph, graph], residual=residual)
        assert counts.shape == (size, size)
        assert counts.flatten().tolist() == [(edges + residual) ** 2] * size
        field = analysis.receptive_field([graph, graph], residual=residual).graphs[-1]
        assert field.num_edges == min(1, edges + residual) * size
        assert ga.leaks([graph, graph], residual=residual).ok
    found = analysis.connectivity(graph)
    assert (found.components, found.strong_components, found.roots, found.acyclic) == (
        size,
        size,
        size,
        True,
    )
    assert analysis.tile_fill(graph).touched == edges


def test_sides_of_no_nodes():
    for T, S in ((0, 3), (3, 0)):
        graph = graphs.cross(T, S)
        assert analysis.path_counts(graph).shape == (T, S)
        assert (
            analysis.receptive_field(graph).graphs[-1].num_edges == ga.facts(graph).num_edges == 0
        )


@pytest.mark.parametrize("listed", [False, True])
def test_counts_are_exact_up_to_their_limit_and_refused_beyond(listed):
    full = graphs.full(4).materialise() if listed else graphs.full(4)
    loops = graphs.self_loops(4).materialise() if listed else graphs.self_loops(4)
    assert int(analysis.path_counts([full] * 30, [0])[0, 3]) == 4**29
    with pytest.raises(GraphAttnError, match="beyond 2\\*\\*62 are not exact"):
        analysis.path_counts([full] * 31, [0])
    # a loop and what is kept: two ways for each layer
    doubled = analysis.path_counts([loops] * 61, residual=True)
    assert torch.equal(doubled, torch.eye(4, dtype=torch.int64) * 2**61)
    with pytest.raises(GraphAttnError, match="fewer layers"):
        analysis.path_counts([loops] * 64, residual=True)


def test_facts_of_a_rule_whose_rows_are_too_many_intervals_are_refused_at_once():
    for graph in (graphs.sparse_strided(10**6, 1000), graphs.erdos_renyi(10**6, 0.5, listed=False)):
        with pytest.raises(
            GraphError,
            match=r"facts of .* would take 4,00[\d,]+,000 steps \(limit 67,108,864",
        ):
            ga.facts(graph)


def test_facts_that_cost_more_than_the_budget_are_left_out_or_refused_by_counts_alone():
    window, other = (
        graphs.sliding_window(2_000_000, 9, causal=True),
        graphs.sliding_window(2_000_000, 7, causal=True),
    )
    with pytest.raises(
        GraphError,
        match=r"facts of sliding_window\(2000000, 9, causal=True\) would take 8,000,000 steps \(limit",
    ):
        ga.facts(window, budget=7_999_999)
    with pytest.raises(GraphError, match=r"would take 16,000,000 steps"):
        ga.facts([window, other, window], budget=15_999_999)  # two graphs that differ
    with pytest.raises(GraphError, match="would take 24,000,000 steps"):
        ga.facts(PerHead((window, other)), budget=16_000_000)  # and their union
    with pytest.raises(GraphError, match=r"facts of .* would take"):
        ga.facts(graphs.sliding_window(10**7, 9, causal=True) | graphs.sinks(10**7, 4))
    smaller = graphs.sliding_window(300_000, 9, causal=True)
    few = ga.facts(smaller, budget=4_700_000)
    assert (few.max_in_degree, few.components, few.hops) == (9, None, None)
    assert few.left_out["components"] == few.left_out["hops"]
    assert (
        few.left_out["hops"]
        == "searches would look at about 4,800,000 edges (limit 4,700,000): try budget=4800000"
    )
    assert ga.facts(smaller, budget=4_800_000).hops == 37_500
    grid = graphs.grid_neighbourhood((1000, 400), (3, 3), causal=False)
    # by its axes
    assert ga.facts(grid, budget=4 * 3 * grid.num_nodes).hops == analysis.hops(grid).layers


def test_layers_that_join_too_many_rows_are_refused_before_they_are_joined():
    layers = [
        graphs.sliding_window(10**5, 9, causal=True),
        graphs.sliding_window(10**5, 5, causal=True, dilation=5),
    ] * 4
    with pytest.raises(
        GraphError, match=r"reach would take 493,750 rows of sources or more \(limit 100,000\)"
    ):
        analysis.reach(layers, budget=10**5)
    with pytest.raises(GraphError, match=r"receptive_field would take .*fewer targets"):
        analysis.receptive_field(layers, budget=10**5)
    windows = [graphs.sliding_window(10**5, 9, causal=True)] * 6
    assert (
        analysis.reach(windows).num_edges == graphs.sliding_window(10**5, 49, causal=True).num_edges
    )
    small = [
        graphs.sliding_window(500, 9, causal=True),
        graphs.sliding_window(500, 9, causal=True, dilation=3),
    ] * 2
    with pytest.raises(GraphError, match="reach would take"):
        analysis.reach(small, budget=1_000)
    composed = small[3] @ small[2] @ small[1] @ small[0]
    assert analysis.reach(small).equals(composed)
    with pytest.raises(GraphError, match="receptive_field would take"):
        analysis.receptive_field(small, budget=2_000)
    assert ga.facts(small).sources == ga.facts(small, budget=1 << 24).sources is not None
    with pytest.raises(GraphError, match="receptive_field would take"):
        analysis.receptive_field(small, [499], budget=10)


def test_leaks_are_answered_from_the_form_or_refused_before_a_node_is_numbered():
    assert ga.leaks(
        [graphs.causal(10**10), graphs.sliding_window(10**10, 257, causal=True, dilation=3)]
    ).edges == (0, 0)
    for graph in (
        graphs.sliding_window(10**9, 257, causal=False),
        graphs.causal(10**10) | graphs.full(10**10),
    ):
        with pytest.raises(
            GraphError,
            match=r"leaks costs .* \(budget 134,217,728; .* look at one 4\).*try budget=",
        ):
            ga.leaks(graph)
    with pytest.raises(GraphError, match="the numbers of 10,000,000,000 nodes"):
        ga.leaks(graphs.sliding_window(10**10, 257, causal=False), budget=10**13)
    small = [graphs.causal(40)] * 3 + [graphs.full(40)]
    with pytest.raises(GraphError, match=r"leaks costs 131,[0-9]{3} .*budget 131,071;"):
        ga.leaks(small, budget=4 * 32_767 + 3)
    assert ga.leaks(small, budget=4 * 32_768).path == ((3, 39, 0),)
    # one step for each layer
    assert len(ga.leaks([graphs.full(5)] * 300, residual=False).path) == 300


def test_leaks_ask_the_pairs_of_a_rule_once_for_equal_layers():
    asked = []

    def earlier(t, s):
        asked.append(max(t.numel(), s.numel(), (t + s).numel()))
        return (s <= t) & ((t - s < 3) | (s % 512 == 0))

    graph = ga.from_rule(earlier, 5_003)
    assert graph.edges.num_runs > 1 << 24  # more than are held before they are found
    asked.clear()
    assert ga.leaks([graph] * 4).ok
    assert sum(asked) == 5_003**2


def test_leaks_of_a_rule_hold_the_intervals_found_however_many_pairs_were_asked():
    graph = ga.from_rule(lambda t, s: (s <= t) & (t - s < 3) | (t == 1_009) & (s == 4_001), 5_003)
    found = ga.leaks([graph] * 2)
    assert found.path == ((0, 4_001, 1_009),)
    assert found.edges == (1, 1)
    assert ga.leaks(graph, range(5_003)).path == ((0, 4_001, 1_009),)


def test_the_budget_that_leaks_asks_for_suffices_the_first_time():
    size = 4_201
    late = ga.from_rule(lambda t, s: (s <= t) & (s % 64 == 0) | (t == 7) & (s == 1_000), size)
    layers = [ga.graphs.causal(size), late, late]
    for budget in (1, 20_000_000):
        with pytest.raises(GraphError, match="try budget=") as refused:
            ga.leaks(layers, residual=False, budget=budget)
        advised = int(str(refused.value).rsplit("budget=", 1)[1])
        assert ga.leaks(layers, residual=False, budget=advised).gap > 0


def test_leaks_walk_more_intervals_than_are_held(monkeypatch):
    module = importlib.import_module("graphattn.analysis.paths.leaks")
    size = 211
    rule = ga.from_rule(lambda t, s: ((s <= t) | (t == 100) & (s > 180)) & (s % 2 == 0), size)
    place = torch.arange(size).flip(0) // 3
    expected = [ga.leaks([rule] * 2), ga.leaks([rule] * 2, place)]
    again = ga.from_rule(rule.edges.function, size)
    monkeypatch.setattr(module, "MOST_RUNS", 50)
    monkeypatch.setattr("graphattn.graph.edges.MOST_STORED", 50)
    monkeypatch.setattr("graphattn.graph.edges.ROWS_BUDGET", 5_000)
    assert [ga.leaks([again] * 2), ga.leaks([again] * 2, place)] == expected


def test_fields_of_many_layers_go_on_from_the_layer_before():
    mixed = graphs.sliding_window(40, 5, causal=True) | graphs.global_tokens(40, [0])
    fields = analysis.receptive_field([mixed] * 40).graphs
    for last in (0, 3, 39):
        assert fields[last].equals(analysis.reach([mixed] * (last + 1)))
    apart = [graphs.self_loops(2003), graphs.sliding_window(2003, 2, causal=True, dilation=2)]
    assert (
        int(analysis.receptive_field([apart[0] | apart[0]] * 140 + [apart[1]]).sizes[-1].max()) == 2
    )


def test_universality_is_refused_by_counts():
    with pytest.raises(
        GraphError,
        match=r"universality would take 3,200,000,000 looks at intervals of sources \(limit 134,217,728\)",
    ):
        analysis.universality(graphs.causal(10**8))
    with pytest.raises(GraphError, match="limit 319"):
        analysis.universality(graphs.causal(10), budget=319)
    assert analysis.universality(graphs.causal(10), budget=320).hamiltonian_path


@pytest.mark.parametrize("size", [10**8, 10**10])
def test_bands_of_any_size_have_answers(size):
    window = graphs.sliding_window(size, 257, causal=True)
    assert analysis.hops(window).to_dict() == {
        "layers": -(-(size - 1) // 256),
        "everything": False,
        "past": True,
    }
    assert analysis.hops(graphs.causal(size)).layers == 1
    assert analysis.hops(graphs.sliding_window(size, 257, causal=False)).to_dict() == {
        "layers": -(-(size - 1) // 128),
        "everything": True,
        "past": False,
    }
    assert analysis.connectivity(window).strong_components == size
    assert window.equals(graphs.sliding_window(size, 257, causal=True))
    assert not window.equals(graphs.sliding_window(size, 257, causal=True).reverse())
    tokens = window | graphs.global_tokens(size, [0])
    with pytest.raises(GraphError, match=r"a search .*ask the same of a smaller size$"):
        analysis.hops(tokens)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_bands_are_answered_as_their_lists_are(size):
    bands = [
        graphs.causal(size),
        graphs.full(size),
        graphs.causal(size).reverse(),
        graphs.self_loops(size),
    ]
    bands += [graphs.sliding_window(size, w, causal=c) for w in (1, 3) for c in (False, True)]
    bands += [
        graphs.sliding_window(size, 3, causal=True, dilation=2),
        graphs.sliding_window(size, 3, dilation=2, causal=False),
    ]
    for band in bands:
        assert analysis.hops(band) == analysis.hops(band.materialise())
        assert analysis.connectivity(band) == analysis.connectivity(band.materialise())
        assert ga.leaks(band) == ga.leaks(band.materialise())
        for other in bands:
            assert band.equals(other) == torch.equal(band.mask(), other.mask())


@pytest.mark.parametrize("budget", [0, -1])
def test_budgets_are_positive(budget):
    for ask in (
        analysis.hops,
        ga.facts,
        analysis.receptive_field,
        analysis.path_counts,
        ga.leaks,
        analysis.universality,
        analysis.reach,
    ):
        with pytest.raises(GraphError, match=f"budget must be a whole number >= 1, got {budget}"):
            ask(CAUSAL, budget=budget)


def test_spread_is_of_features_and_of_zeros_0():
    assert ga.analysis.spread(torch.zeros(2, 3, 5)).tolist() == [0.0, 0.0]
    for given in (torch.zeros(3), torch.zeros(3, 5, dtype=torch.long), [[1.0]]):
        with pytest.raises(GraphAttnError, match=r"x must be .*\(\.\.\., N, C\)"):
            ga.analysis.spread(given)
