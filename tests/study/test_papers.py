"""Studies of examples/studies/papers: the laws of their data, which need no training."""

import json
import math
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch

from graphattn import laws
from graphattn.study.data import NOT_ASKED
from graphattn.study.laws import predicted
from graphattn.study.network import Network
from graphattn.study.run import load

PAPERS = Path(__file__).parents[2] / "examples" / "studies" / "papers"
csl, fidelity, induction, length, lost, mqar, rewiring, ring_transfer, swin_shift, virtual = (
    load(PAPERS / name / "study.py")
    for name in (
        "csl",
        "fidelity_or_mixing",
        "induction",
        "length",
        "lost_in_the_middle",
        "mqar",
        "rewiring",
        "ring_transfer",
        "swin_shift",
        "virtual_node",
    )
)


def networkx_of(graph):
    pairs = graph.edge_index.t().tolist()
    return nx.Graph([(s, t) for s, t in pairs if s != t])


@pytest.mark.parametrize("r", [2, 3, 5])
def test_the_label_is_r_steps_away_in_every_graph_and_commutes_differ(r):
    graphs = ring_transfer.arms(r)
    for graph in graphs.values():
        other = networkx_of(graph)
        assert nx.shortest_path_length(other, 0, r) == r
        resistance = nx.resistance_distance(other, 0, r)
        commute = 2 * other.number_of_edges() * resistance
        assert ring_transfer.commute_time(graph, 0, r) == pytest.approx(commute)
    times = [ring_transfer.commute_time(graph, 0, r) for graph in graphs.values()]
    assert times == sorted(times)
    assert times[2] > 1.5 * times[1]


def test_a_hub_moves_and_in_degrees_stay():
    graphs = lost.arms()
    edges = [graphs[name] for name in (lost.WINDOW, lost.FIRST, lost.MIDDLE)]
    for graph in edges:
        assert graph.is_causal
        assert graph.in_degree.tolist() == [min(t + 1, lost.READ) for t in range(lost.LENGTH)]
    hubs = [
        graph.mask()[-1].nonzero().flatten().tolist()[: lost.READ - lost.RECENT] for graph in edges
    ]
    assert hubs == [[*range(20, 26)], [*range(6)], [*range(13, 19)]]
    worst = [min(shares, key=shares.get) for shares in map(lost.shares, edges)]
    assert worst == ["early", "middle", "early"]
    data = lost.data()
    parts = torch.stack([*data.groups.values()])
    assert bool((parts.sum(0) <= 1).all())
    assert (data.inputs < lost.LABELS).sum(1).unique().tolist() == [1]


def test_graphs_that_are_sharp_or_fast_have_equal_edges_and_turn_round():
    graphs = fidelity.arms()
    assert len(graphs) == 24
    assert len({graph.num_edges for graph in graphs.values()}) == 1
    for name in fidelity.ORDERS:
        graph = graphs[name]
        other = graphs[f"{name}{fidelity.TURNED}"]
        assert graph.is_causal
        assert other.is_causal
        assert bool(torch.equal(graph.mask().flip(0, 1).t(), other.mask()))
        assert not graph.equals(other)
        for one in (graph, other):
            assert float(laws.fidelity(one, fidelity.LAYERS).min()) > 0
            assert laws.mixing(one, 0.01) < fidelity.LENGTH + 2
    tokens = fidelity.second_largest()
    second = [sorted(row)[-2] for row in tokens.inputs.tolist()]
    assert tokens.targets.tolist() == [value - 1 for value in second]
    marked = fidelity.retrieval()
    assert (marked.inputs >= fidelity.VALUES).sum(1).unique().tolist() == [1]
    assert torch.equal(marked.inputs.amax(1) - fidelity.VALUES, marked.targets)


def test_tests_of_ranks_find_a_law_that_orders_and_no_other():
    random = np.random.default_rng(0)
    law = random.random(12)
    other = random.random(12)
    correlation, p = fidelity.ranks(law, 2 * law)
    assert (correlation, p) == (pytest.approx(1), pytest.approx(1e-4))
    assert fidelity.ranks(law, -law)[1] > 0.99
    assert fidelity.better(law, other, law**3)[1] < 0.05
    assert fidelity.better(other, law, law**3)[1] > 0.95
    both = np.concatenate((law, other))
    assert fidelity.pairs(both, both) == (1, pytest.approx(2**-12))
    both[12] = both[0]  # a tie is left out
    assert fidelity.pairs(both, np.arange(24) + both)[1] <= 1


def test_rewirings_add_as_many_edges_and_matched_ones_reach_as_far():
    """Reach beside shortest paths of networkx; the hub is one node."""
    base = rewiring.base_of(rewiring.CLIQUES)
    layers = rewiring.LAYERS[rewiring.CLIQUES]
    graphs = rewiring.arms(rewiring.CLIQUES)
    for graph in graphs.values():
        steps = dict(nx.all_pairs_shortest_path_length(graph, layers))
        share = sum(map(len, steps.values())) / len(graph) ** 2
        assert rewiring.reach(graph, layers) == pytest.approx(share)
    for arm, graph in graphs.items():
        if arm == rewiring.BASE:
            continue
        assert graph.number_of_edges() == base.number_of_edges() + rewiring.ADDED
        assert nx.is_isomorphic(base, graph.edge_subgraph(base.edges))
        if arm.startswith(rewiring.MATCHED):
            like = graphs[arm.removeprefix(rewiring.MATCHED)]
            apart = rewiring.reach(graph, layers) - rewiring.reach(like, layers)
            assert abs(apart) <= rewiring.NEAR
            assert set(graph.edges) != set(like.edges)
    new = [set(edge) for edge in graphs["hub"].edges if not base.has_edge(*edge)]
    assert len(set.intersection(*new)) == 1
    gaps = [
        1 - np.linalg.eigvalsh(np.eye(30) - nx.normalized_laplacian_matrix(graph).toarray())[-2]
        for graph in graphs.values()
    ]
    assert max(gaps) == gaps[list(graphs).index("expander")]
    data = rewiring.data(30)
    marked = data.inputs.argmax(1)[data.test].bincount()
    assert marked.unique().tolist() == [34]


def test_a_virtual_node_brings_all_within_two_steps_and_eleven_do_without():
    graphs = virtual.arms()
    extra = {
        arm: graph.number_of_edges() - virtual.base().number_of_edges()
        for arm, graph in graphs.items()
    }
    assert extra == {virtual.BASE: 0, virtual.VIRTUAL: 30, virtual.RANDOM: 30}
    cliques = graphs[virtual.BASE].subgraph(range(virtual.NODES))
    assert nx.diameter(cliques) == virtual.DEPTHS[-1]
    assert nx.diameter(graphs[virtual.VIRTUAL]) == virtual.DEPTHS[0]
    shares = [virtual.reach(graphs[virtual.BASE], layers) for layers in virtual.DEPTHS]
    steps = dict(nx.all_pairs_shortest_path_length(cliques))
    lengths = [length for of_node in steps.values() for length in of_node.values()]
    assert shares == [pytest.approx(np.mean(np.array(lengths) <= L)) for L in virtual.DEPTHS]
    data = virtual.data()
    assert set(data.targets[:, virtual.NODES].tolist()) == {NOT_ASKED}
    marked = (data.inputs >= virtual.VALUES).sum(1)
    assert marked.unique().tolist() == [2]  # and the blank one


def test_a_window_of_6_reaches_the_pairs_of_few_queries():
    """Two layers reach 10 tokens back: of query i (at 16 + i) those of values at 6 + i and later."""
    within = 0
    held = mqar.data().inputs[-mqar.TESTED :].tolist()
    for tokens in held:
        place = {key: 2 * pair + 1 for pair, key in enumerate(tokens[:16:2])}
        within += sum(16 + i - place[key] <= 10 for i, key in enumerate(tokens[16:]))
    share = within / (8 * mqar.TESTED)
    assert mqar.ceiling(6) == pytest.approx(share + (1 - share) / mqar.WORDS)


@pytest.mark.parametrize("r", [2, 3, 4, 7])
def test_rings_and_their_crosses_are_those_of_the_authors_code(r):
    """github.com/lrnzgiusti/on-oversquashing: i to n - 1 - i, and from i = 2 on to n + 1 - i."""
    n = 2 * r
    ring = {frozenset((i, (i + 1) % n)) for i in range(n)}
    crosses = {frozenset((i, n - 1 - i)) for i in range(r)}
    crosses |= {frozenset((i, n + 1 - i)) for i in range(2, r)}
    arms = ring_transfer.arms(r)
    assert {frozenset(edge) for edge in networkx_of(arms["ring"]).edges} == ring
    assert {frozenset(edge) for edge in networkx_of(arms["crossed ring"]).edges} == ring | crosses


def test_a_layer_less_than_the_distance_leaves_a_label_at_chance():
    comparison = ring_transfer.comparison(3, 2, 1)
    for arm in ring_transfer.arms(3):
        assert predicted(comparison, arm)["ceiling"] == comparison.data.chance
    reached = predicted(ring_transfer.comparison(3, 3, 1), "clique path")["reached"]
    assert reached == 1


def test_equal_nodes_make_all_circles_one_and_walks_tell_them_apart():
    comparison = csl.comparison("CSL, nothing", csl.circles(), "nothing", 2, 1)
    network = Network(comparison.model, comparison.data, "mean", "none").eval()
    graphs = comparison.graphs[csl.EDGES].each
    places = torch.arange(csl.NODES)
    kept = torch.ones(1, csl.NODES, dtype=torch.bool)
    x = comparison.data.inputs[:1]
    outputs = torch.cat([network(x, (graph,), places, kept=kept) for graph in graphs[:10]])
    assert float((outputs - outputs[0]).detach().abs().max()) < 1e-5
    random = torch.Generator().manual_seed(0)
    walks = [
        csl.features(torch.from_numpy(nx.to_numpy_array(graph)), "random walk", random)
        for graph in csl.circles()
    ]
    apart = [float((a[0] - b[0]).abs().max()) for i, a in enumerate(walks) for b in walks[:i]]
    assert min(apart) > 1e-4


def test_pairs_are_alike_to_colour_refinement_and_the_last_to_walks():
    pairs = csl.pairs()
    random = torch.Generator().manual_seed(0)
    for one, other, same in zip(pairs[::2], pairs[1::2], (False, False, True), strict=True):
        assert not nx.is_isomorphic(one, other)
        colours = [nx.weisfeiler_lehman_graph_hash(graph, iterations=8) for graph in (one, other)]
        assert colours[0] == colours[1]
        walks = [
            csl.features(torch.from_numpy(nx.to_numpy_array(graph)), "random walk", random)
            for graph in (one, other)
        ]
        means = [walk.mean(0) for walk in walks]
        assert torch.allclose(*means, atol=1e-9) == same


def test_a_query_is_answered_by_the_value_after_its_key():
    data = mqar.data()
    inputs, targets = data.inputs[:50].tolist(), data.targets[:50].tolist()
    for tokens, wanted in zip(inputs, targets, strict=True):
        pairs = dict(zip(tokens[0:16:2], tokens[1:16:2], strict=True))
        assert [pairs[key] - mqar.WORDS for key in tokens[16:]] == wanted[16:]
        assert set(wanted[:16]) == {NOT_ASKED}


def test_a_repetition_is_continued_by_the_token_seen_longest_ago():
    """So that one layer may answer without an induction head, as the page says."""
    data = induction.data()
    for tokens, wanted in zip(data.inputs[:50].tolist(), data.targets[:50].tolist(), strict=True):
        for place, target in enumerate(wanted):
            if target == NOT_ASKED:
                continue
            before = tokens[: place + 1]
            last = {token: i for i, token in enumerate(before)}
            assert target == min(last, key=last.get)
            earlier = before.index(before[-1])
            assert earlier < place
            assert tokens[earlier + 1] == target


@pytest.mark.slow
def test_windows_that_are_not_shifted_reach_two_thirds():
    comparison = swin_shift.study().comparisons[0]
    plain = predicted(comparison, swin_shift.PLAIN)
    assert plain["reached"] == pytest.approx(2 / 3)
    assert plain["ceiling"] == pytest.approx(2 / 3 + comparison.data.chance / 3)
    assert predicted(comparison, swin_shift.SHIFTED)["reached"] == 1


def test_training_asks_short_places_and_the_parts_of_the_test_longer_ones():
    data = length.data()
    asked = data.asked
    train = ~data.test
    assert not bool(asked[train, length.SHORT :].any())
    places = [asked[mask].any(0).nonzero().flatten() for mask in data.groups.values()]
    bounds = [(int(at.min()), int(at.max()) + 1) for at in places]
    assert bounds == [(1, 24), (24, 48), (48, 72)]
    rest = (1 - length.LIKELY) / (length.KINDS - 1)
    bits = -length.LIKELY * math.log2(length.LIKELY)
    bits -= (1 - length.LIKELY) * math.log2(rest)
    assert bits == pytest.approx(1.72, abs=0.01)
    assert "1.72" in length.__doc__


def test_stored_trials_of_papers_are_those_of_their_commands():
    """Under 20 CPU minutes each."""
    stored = sorted(PAPERS.glob("*/trials.jsonl"))
    assert stored
    for path in stored:
        records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        assert sum(record["cpu_s"] for record in records) < 20 * 60
        keys = {
            trial["key"]
            for trial in json.loads((path.parent / "plan.json").read_text("utf-8"))["trials"]
        }
        assert keys <= {record["key"] for record in records}
