"""Arms are graphs before anything is trained, and controls are what they claim to be."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from permuted_nodes import permuted
from tiny_study import HELD, SAMPLES, N, tiny_data, tiny_run
from tiny_study import tiny_comparison as compared

import graphattn as ga
from graphattn import nulls, study
from graphattn.errors import ControlError, GraphAttnError, OptionError
from graphattn.nulls.drawn import _assert_matched
from graphattn.study import asserts as checks
from graphattn.study.arms import graphs_of
from graphattn.study.laws import predicted, reference, warnings_of
from graphattn.study.network import Network
from graphattn.study.train import Reading, probed, scored, train
from graphattn.study.trials import trials_of

WINDOW = ga.graphs.sliding_window(N, 3, causal=False)


def test_controls_come_by_themselves():
    kinds = compared({"window": WINDOW, "all": ga.graphs.full(N)}).kinds
    assert list(kinds) == [
        "window",
        "all",
        "self",
        "permuted window",
        "rewired window",
        "shuffled labels, window",
    ]


def test_rewirings_have_the_degrees_and_self_loops_they_claim():
    about = compared({"window": WINDOW})
    drawn = [
        about.drawn("rewired", "window", seed, draw).first for seed in range(2) for draw in range(3)
    ]
    assert len({tuple(graph.edge_index.flatten().tolist()) for graph in drawn}) == 6
    node = torch.arange(N)
    for graph in drawn:
        assert torch.equal(graph.in_degree, WINDOW.in_degree)
        assert bool(graph.contains(node, node).all())
    with pytest.raises(ControlError, match="in-degrees"):
        _assert_matched(WINDOW, ga.graphs.full(N))
    loops = ga.graphs.self_loops(N)
    with pytest.raises(ControlError, match="self-loops"):
        _assert_matched(loops, loops.relabel(sources=torch.arange(N).roll(1)))


def test_permutations_are_drawn_for_each_seed_and_keep_reach():
    about = compared({"window": WINDOW})
    trials = [trial for trial in trials_of(about, 4) if trial.kind == "permuted"]
    drawn = {about.graphs_for(trial).digest() for trial in trials}
    assert len(drawn) == len({trial.key for trial in trials}) / 2 == 12  # of two budgets
    sizes = ga.analysis.receptive_field([WINDOW] * 2).sizes[-1].sort().values
    for trial in trials[:3]:
        graph = about.graphs_for(trial).first
        assert torch.equal(ga.analysis.receptive_field([graph] * 2).sizes[-1].sort().values, sizes)
    one = compared({"window": WINDOW}, permutations=1)
    trials = [trial for trial in trials_of(one, 4) if trial.kind == "permuted"]
    assert len({one.graphs_for(trial).digest() for trial in trials}) == 1
    assert len(trials) == 8


def test_rewired_controls_keep_both_degrees_symmetry_and_causality():
    mixed = ga.from_rule(lambda t, s: (t >= s) & ((t - s) % 3 != 1), N)
    about = compared({"window": WINDOW, "mixed": mixed}, controls=("rewired", "in-degrees"))
    for name, graph in (("window", WINDOW), ("mixed", mixed)):
        drawn = [about.drawn("rewired", name, 0, draw).first for draw in range(3)]
        assert len({tuple(each.edge_index.flatten().tolist()) for each in drawn}) > 1
        for each in drawn:
            assert each.is_symmetric == graph.is_symmetric
            assert torch.equal(each.in_degree, graph.in_degree)
            assert torch.equal(each.out_degree, graph.out_degree)
    assert bool((drawn[0].source <= drawn[0].target).all())
    keeps = predicted(about, "rewired window")["keeps"]
    assert keeps[:3] == ["in-degrees", "out-degrees", "symmetry"]
    assert predicted(about, "in-degrees of window")["keeps"][0] == "in-degrees"
    assert about.missing == {}


def test_a_graph_without_room_to_swap_has_in_degrees_instead_and_the_study_says_so():
    """No other graph has the degrees of a star, and no other causal one those of a window."""
    star = ga.graphs.global_tokens(N, (0,)) | ga.graphs.self_loops(N)
    about = compared({"window": WINDOW, "star": star}, controls=("rewired",))
    assert list(about.kinds) == ["window", "star", "rewired window", "in-degrees of star"]
    arms = {"window": ga.graphs.sliding_window(N, 3, causal=True)}
    about = compared(arms, tiny_data(causal=True), controls=("rewired", "reach-matched"))
    assert about.kinds == {
        "window": ("arm", "window"),
        "in-degrees of window": ("in-degrees", "window"),
    }
    rewired, matched = warnings_of(about, {})
    assert "rewired window: none exists: " in rewired
    assert "in-degrees instead" in rewired
    assert "reach-matched window: none exists: no other graph with the degrees" in matched
    mixed = [WINDOW, ga.graphs.circulant(N, (0, 1))]
    about = compared({"mixed": mixed}, controls=("reach-matched",), model=study.Model(layers=2))
    assert "layers of the arm differ" in about.missing["reach-matched mixed"]


def test_a_control_matched_in_reach_depends_on_as_many_nodes():
    """A window of 5 of 41 nodes: 9 in two layers, and 16 after swaps of its edges."""
    window = ga.graphs.sliding_window(41, 5, causal=False)
    tokens = torch.randint(2, (20, 41), generator=torch.Generator().manual_seed(0))
    data = study.Data(tokens, tokens[:, 0], 5)
    options = {"controls": ("rewired", "reach-matched"), "model": study.Model(layers=2)}
    about = study.Comparison("reach", {"window": window}, data, **options)
    found = {name: predicted(about, name) for name in about.kinds}
    wanted = found["window"]["depends_on_mean"]
    assert found["reach-matched window"]["depends_on_mean"] == pytest.approx(wanted, rel=0.05)
    assert found["rewired window"]["depends_on_mean"] > 1.4 * wanted
    assert found["reach-matched window"]["keeps"][1:] == ["out-degrees", "symmetry", "reach"]
    assert found["rewired window"]["keeps"] == ["in-degrees", "out-degrees", "symmetry"]
    drawn = [about.drawn("reach-matched", "window", 0, draw).first for draw in range(3)]
    assert all((graph & window).num_edges < 0.5 * window.num_edges for graph in drawn)


def test_controls_of_a_causal_study_read_no_later_node():
    window = ga.graphs.sliding_window(N, 3, causal=True)
    about = compared({"window": window}, tiny_data(causal=True), controls=("in-degrees", "full"))
    assert "permuted window" not in about.kinds
    drawn = about.drawn("in-degrees", "window", 0, 0).first
    assert bool((drawn.source <= drawn.target).all())
    assert torch.equal(drawn.in_degree, window.in_degree)
    assert about.graphs["full"].first.num_edges == N * (N + 1) // 2


def test_a_function_of_a_sample_reads_as_the_graph_does():
    """The same graph for all, or given sample by sample: the same logits; padding is read by
    nobody.
    """
    open_size = ga.graphs.sliding_window(..., 3, causal=False)
    about = compared({"window": WINDOW, "each": lambda sample: open_size(sample.num_nodes)})
    torch.manual_seed(0)
    for positions in ("none", "learned", "relative", "rotary"):
        network = Network(about.model, about.data, "mean", positions).eval()
        both = (Reading(about.data, about.graphs[name]) for name in ("window", "each"))
        torch.testing.assert_close(*(read(network, torch.tensor([4, 2, 9])) for read in both))
    sizes = torch.full((SAMPLES,), 5)
    padded = tiny_data(sizes=sizes)
    other = tiny_data(sizes=sizes, inputs=padded.inputs * (torch.arange(N) < 5))
    arms = {"window": ga.graphs.sliding_window(..., 3, causal=False)}
    short, same = (compared(arms, data) for data in (padded, other))
    a, b = (Reading(x.data, x.graphs["window"])(network, torch.arange(3)) for x in (short, same))
    assert torch.equal(a, b)
    assert a.shape == (3, 3)


def test_distances_turn_with_nothing():
    """A recipe of places, with a bias by distance: a rotated cloud has the same logits."""
    pos = torch.randn(SAMPLES, N, 3, generator=torch.Generator().manual_seed(1))
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(2)))[0]
    arms = {"near": ga.graphs.knn(..., k=3, self_loops=True)}
    greys, logits = torch.linspace(-1, 1, SAMPLES * N).sin().view(SAMPLES, N, 1), []
    torch.manual_seed(0)
    network = Network(
        study.Model(heads=2), tiny_data(inputs=greys, pos=pos), "mean", "distance"
    ).eval()
    for table in network.tables:
        torch.nn.init.normal_(table.weight)
    for places in (pos, pos @ turn, pos * torch.tensor([1.0, 1.0, 3.0])):
        about = compared(arms, tiny_data(inputs=greys, pos=places), positions=("distance",))
        full = Reading(about.data, about.graphs["full"])(network, torch.arange(5))
        logits.append((Reading(about.data, about.graphs["near"])(network, torch.arange(5)), full))
    torch.testing.assert_close(logits[0], logits[1])
    assert not torch.allclose(logits[0][1], logits[2][1])


def test_probes_are_what_can_be_counted_by_hand():
    """Nodes alone: no entropy, no distance, one node; all scores alike: the log of the degree, and
    where it reads.
    """
    about = compared({"window": WINDOW}, readout="token", token=0)
    torch.manual_seed(0)
    network = Network(about.model, about.data, "token", "none").eval()
    for layer in network.encoder.layers:
        torch.nn.init.zeros_(layer.attention.q_proj.weight)
        torch.nn.init.zeros_(layer.attention.q_proj.bias)
    held = torch.arange(5)
    alone, window = (
        probed(about, about.graphs[n], network, held, along_full=False) for n in ("self", "window")
    )
    assert (alone["entropy"], alone["distance"]) == ([0.0, 0.0], [0.0, 0.0])
    assert alone["effective_nodes"] == pytest.approx(1)
    assert 1 < window["effective_nodes"] <= 3
    degree = WINDOW.in_degree.double()
    assert window["entropy"] == pytest.approx([float(degree.log2().mean())] * 2)
    far = [abs(t - s) / float(degree[t]) / N for s, t in WINDOW.edge_index.t().tolist()]
    assert window["distance"] == pytest.approx([sum(far)] * 2)
    full = probed(about, about.graphs["full"], network, held, along_full=True)
    read = Reading(about.data, about.graphs["full"])
    assert full["along_full"] == scored(network, read, about.data.targets, held)["accuracy"]
    assert all(0 < spread <= 1 for spread in full["spread"])


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("positions", "readout"),
    [("none", "mean"), ("learned", "token"), ("relative", "node"), ("rotary", "mean")],
)
def test_relabelling_nodes_and_places_alike_changes_nothing(positions, readout, monkeypatch):
    data = tiny_data(targets=tiny_data().inputs) if readout == "node" else tiny_data()
    about = compared({"window": WINDOW}, data, readout=readout, positions=(positions,), token=2)
    worst = checks.measured(about)
    assert worst["relabelled full: bit for bit"] is True
    assert permuted(about, about.graphs["window"], positions) <= 1e-9
    monkeypatch.setattr(ga.AttentionGraph, "relabel", lambda graph, order: graph)
    assert permuted(about, about.graphs["window"], positions) > 1e-3


def test_relabelled_graphs_of_samples_are_the_same_bits(monkeypatch):
    about = compared(
        {"each": lambda sample: ga.graphs.full(sample.num_nodes)},
        tiny_data(sizes=torch.full((SAMPLES,), 5)),
    )
    assert checks.measured(about) == {"relabelled full: bit for bit": True}
    monkeypatch.setattr(nulls, "permuted", lambda graph: ga.graphs.self_loops(graph.num_targets))
    with pytest.raises(ControlError, match="relabelling a full graph"):
        checks.measured(about)


def test_predictions_are_the_graphs_own():
    about = compared({"window": WINDOW}, readout="token", token=0)
    told = {name: predicted(about, name) for name in about.kinds}
    assert (told["window"]["reached"], told["window"]["layers_needed"]) == (3 / N, N - 1)
    assert (told["full"]["reached"], told["self"]["reached"]) == (1.0, 1 / N)
    assert [told[name]["bag"] for name in ("window", "full", "self")] == [False] * 3
    assert warnings_of(about, told) == [
        "c, window: after 2 layers its readout depends on 42.9% of what it may need; of the rest "
        "the Jacobian is zero, "
        "whatever is trained"
    ]
    mean = compared({"window": WINDOW, "each": lambda sample: ga.graphs.full(sample.num_nodes)})
    assert [predicted(mean, name)["bag"] for name in ("window", "each", "full", "self")] == [
        False,
        True,
        True,
        True,
    ]


def test_all_pairs_are_what_others_are_compared_with():
    assert reference(compared({"window": WINDOW})) == "full"
    assert reference(compared({"window": WINDOW, "all": ga.graphs.full(N)})) == "all"
    assert reference(compared({"window": WINDOW}, controls=())) is None


def test_a_law_gives_the_ceiling():
    """Tokens of 4 steps ago, window 3 and 2 layers: 4 = 2 (3 - 1) is reached; of 5 steps ago
    nothing is.
    """
    tokens = tiny_data().inputs
    for back, share in ((4, 1.0), (5, 0.0)):
        targets = tokens.roll(back, 1)
        targets[:, :back] = -100
        needs = ga.from_rule(lambda t, s, back=back: t - s == back, N)
        data = tiny_data(targets=targets, needs=needs, causal=True)
        about = compared(
            {"window": ga.graphs.sliding_window(N, 3, causal=True)}, data, readout="node"
        )
        told = predicted(about, "window")
        assert told["reached"] == share
        assert told["ceiling"] == pytest.approx(share + (1 - share) * data.chance)
    # and the last answer needs one more
    two = ga.from_rule(lambda t, s: (t - s == 4) | (t - s == 5) & (t == 6), N)
    data = tiny_data(
        targets=tokens.roll(4, 1).index_fill(1, torch.arange(4), -100), needs=two, causal=True
    )
    told = predicted(
        compared({"window": ga.graphs.sliding_window(N, 3, causal=True)}, data, readout="node"),
        "window",
    )
    assert told["reached"] == pytest.approx(2 / 3)  # of three answers, not of four edges
    unasked = data.targets.index_fill(1, torch.tensor([6]), -100)
    # without the answer that is not reached
    short = replace(data, targets=unasked, sizes=torch.full((SAMPLES,), 6))
    told = predicted(
        compared({"window": ga.graphs.sliding_window(..., 3, causal=True)}, short, readout="node"),
        "window",
    )
    assert told["reached"] == 1
    by_place = [targets[:, t][targets[:, t] >= 0].bincount().max() for t in range(5, N)]
    assert predicted(about, "shuffled labels, window")["ceiling"] == pytest.approx(
        float(sum(by_place)) / (2 * SAMPLES)
    )


def test_a_law_of_one_token_gives_the_ceiling():
    """Two layers of 3 read 4 back: token 6 depends on token 2 and not on token 1."""
    for asked, share in ((2, 1.0), (1, 0.0)):
        needs = ga.from_rule(lambda t, s, asked=asked: (s == asked) & (t == 6), N)
        data = tiny_data(needs=needs, causal=True)
        told = predicted(
            compared(
                {"window": ga.graphs.sliding_window(N, 3, causal=True)},
                data,
                readout="token",
                token=6,
            ),
            "window",
        )
        assert told["reached"] == share
        assert told["ceiling"] == pytest.approx(share + (1 - share) * data.chance)


def test_the_same_arm_is_the_same_number_whatever_else_is_trained():
    about = compared({"window": WINDOW})
    one = next(trials_of(about, 1))
    a = train(about, about.graphs_for(one), one)
    torch.rand(5)
    b = train(about, about.graphs_for(one), one)
    assert {k: v for k, v in a.items() if k != "cpu_s"} == {
        k: v for k, v in b.items() if k != "cpu_s"
    }


TOO_MANY = {"budgets": study.Budget(SAMPLES - HELD + 1, 2), "controls": ()}
WRONG = {
    "9 targets and 9 sources, the data 7": ({"a": ga.graphs.full(9)}, {}, {}),
    "gives no graph of sample 0: TypeError": ({"a": 3}, {}, {}),
    "must give a graph of sample 0": ({"a": lambda sample: None}, {}, {}),
    "2 layers: one for each": ({"a": [WINDOW] * 3}, {}, {}),
    "the data has none; give pos": ({"a": ga.graphs.knn(..., k=2)}, {}, {}),
    "embed_dim must be a multiple of num_heads": (
        {"a": WINDOW},
        {},
        {"model": study.Model(2, 8, 3, 5)},
    ),
    "readout 'node' does not fit": ({"a": WINDOW}, {}, {"readout": "node"}),
    'readout must be "mean", "token", "node" or "edge"': ({"a": WINDOW}, {}, {"readout": "max"}),
    "draws must be at least 3": ({"a": WINDOW}, {}, {"draws": 1}),
    "give data.pos": ({"a": WINDOW}, {}, {"positions": "distance"}),
    f"token must be below {N}, the number of nodes": ({"a": WINDOW}, {}, {"token": N}),
    "samples differ in size": ({"a": WINDOW}, {"sizes": torch.full((SAMPLES,), 5)}, {}),
    "test must hold out": ({"a": WINDOW}, {"test": SAMPLES}, {}),
    "inputs must be tokens": ({"a": WINDOW}, {"inputs": torch.ones(SAMPLES)}, {}),
    "targets must be": ({"a": WINDOW}, {"targets": torch.zeros(5, dtype=torch.int64)}, {}),
    "classes 0, 1": ({"a": WINDOW}, {"targets": torch.full((SAMPLES,), -1)}, {}),
    "needs must be a graph of 7 nodes": ({"a": WINDOW}, {"needs": ga.graphs.full(3)}, {}),
    f"examples must be at most {SAMPLES - HELD}": ({"a": WINDOW}, {}, TOO_MANY),
    "seeds must be": ({"a": WINDOW}, {}, {"seeds": 0}),
    "'full' is the name of a control": ({"full": WINDOW}, {}, {"controls": ("full",)}),
    "'rewired a' is the name of a control": (
        {"a": WINDOW, "rewired a": ga.graphs.full(N)},
        {},
        {"controls": ("rewired",)},
    ),
    "names must be lines of text that can be printed, got 1": ({1: WINDOW}, {}, {}),
    "names must be lines of text that can be printed, got 'a\\nb'": (
        {"a\nb": WINDOW},
        {},
        {},
    ),
    "gives no graph of sample 3: ZeroDivisionError": (
        {"a": lambda sample: WINDOW if sample.index < 3 else 1 / 0},
        {},
        {},
    ),
    "reads later nodes": ({"a": ga.graphs.full(N)}, {"causal": True}, {"controls": ()}),
    "positions and budgets must be one or several": ({"a": WINDOW}, {}, {"positions": ()}),
    "positions must differ, got none, none": ({"a": WINDOW}, {}, {"positions": ["none", "none"]}),
    "the loss is nan after 3 steps": ({"a": WINDOW}, {}, {"training": study.Training(1e30)}),
    "claims must differ": ({"a": WINDOW}, {}, {"claims": [study.Claim("a", "full")] * 2}),
    "seeds must be below 65,536": ({"a": WINDOW}, {}, {"seeds": 10**9}),
    "examples must be at most": (
        {"a": WINDOW},
        {},
        {"budgets": [study.Budget(3, 2), study.Budget(SAMPLES, 2)]},
    ),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("words", WRONG)
def test_wrong_use_is_refused(words, tmp_path):
    arms, of_data, options = WRONG[words]
    with pytest.raises(GraphAttnError) as error:
        tiny_run(options.pop("out", tmp_path / "out"), arms, tiny_data(**of_data), **options)
    assert words in str(error.value)


WRONG_PARTS = {
    "warmup must be": lambda: study.Training(warmup=0),
    "rate and clip must be": lambda: study.Training(rate=0.0),
    "margin must be a finite number": lambda: study.Claim("a", "b", margin=float("nan")),
    "margin must be at least 0": lambda: study.Claim("a", "b", margin=-0.1, equal=True),
    "better and worse must be two": lambda: study.Claim("a", "a"),
}


@pytest.mark.parametrize("words", WRONG_PARTS)
def test_parts_that_no_study_can_use_are_refused(words):
    with pytest.raises(OptionError, match=words):
        WRONG_PARTS[words]()


def test_numbers_of_numpy_are_numbers():
    given = {
        "budgets": [study.Budget(np.int64(11), np.int64(3))],
        "model": study.Model(2, np.int32(8), 2, 5),
    }
    plain = {"budgets": [study.Budget(11, 3)], "model": study.Model(2, 8, 2, 5)}
    keys = [
        [t.key for t in trials_of(compared({"a": WINDOW}, token=np.int64(0), **each), 1)]
        for each in (given, plain)
    ]
    assert keys[0] == keys[1]


def test_a_graph_without_edges_is_an_arm():
    none = ga.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=N)
    about = compared({"none": none}, budgets=[study.Budget(None, 2)])
    one = next(trials_of(about, 1))
    assert train(about, about.graphs_for(one), one)["probes"]["entropy"] == [0.0, 0.0]


def test_layers_may_differ():
    graphs = graphs_of("a", [WINDOW, ga.graphs.full(...)], tiny_data(), 2)
    assert [graph.num_edges for graph in graphs.layers] == [WINDOW.num_edges, N * N]


def test_an_arm_may_choose_its_edges_by_what_its_layers_read(tmp_path):
    """Trained as other arms are; its law is that of all edges it may choose, and its key that of
    its choice.
    """
    some = ga.graphs.top_k(..., 2, within=ga.graphs.causal(...))
    near = [
        ga.graphs.routed(..., torch.full((2, 4), x)) & ga.graphs.causal(...) for x in (0.0, 1.0)
    ]
    about = compared({"chosen": some, "a": near[0], "b": near[1]}, tiny_data(causal=True))
    assert list(about.kinds) == ["chosen", "a", "b", "self", "full", "shuffled labels, chosen"]
    assert len(set(about.edges.values())) == 5
    told = predicted(about, "chosen")
    assert (told["edges"], told["degree_most"]) == (N * (N + 1) // 2, N)
    with pytest.raises(ga.errors.GraphError, match="reads later nodes"):
        compared({"chosen": ga.graphs.top_k(..., 2)}, tiny_data(causal=True))
    with pytest.raises(OptionError, match="chooses by a function, top_k"):
        compared({"chosen": ga.graphs.top_k(..., 2, score=torch.matmul)})
    with pytest.raises(OptionError, match="needs samples of one size"):
        compared({"chosen": some}, tiny_data(sizes=torch.full((SAMPLES,), N - 1)))
    for positions in ("none", "relative", "rotary"):
        network = Network(about.model, about.data, "mean", positions)
        logits = {
            arm: Reading(about.data, about.graphs[arm])(network, torch.arange(5))
            for arm in ("chosen", "full")
        }
        assert not torch.allclose(logits["chosen"], logits["full"], atol=1e-4)
    tiny_run(
        tmp_path,
        {"chosen": some},
        tiny_data(causal=True),
        controls=("full",),
        budgets=[study.Budget(11, 3)],
    )
    trials = [
        json.loads(line) for line in (tmp_path / "trials.jsonl").read_text("utf-8").splitlines()
    ]
    assert {(trial["arm"], trial["state"]) for trial in trials} == {
        ("chosen", "done"),
        ("full", "done"),
    }


def test_graphs_that_a_rewiring_leaves_as_they_are_are_counted(tmp_path):
    star = ga.from_edge_index(torch.tensor([[1, 2, 3, 4, 5], [0] * 5]), num_nodes=6)
    cycle = ga.graphs.circulant(6, (-1, 1))
    graphs = [cycle if i % 3 == 0 else star for i in range(20)]
    tokens = torch.randint(3, (20, 6), generator=torch.Generator().manual_seed(0))
    found = tiny_run(
        tmp_path,
        {"own": lambda sample: graphs[sample.index]},
        study.Data(tokens, tokens[:, 0] % 2, 7),
        controls=("rewired",),
        budgets=study.Budget(None, 1),
        seeds=1,
    )
    assert found.row("rewired own").prediction["unchanged"] == 13
    assert "in-degrees, out-degrees, reach, all edges of 13 of 20 graphs" in str(found)


def test_a_star_in_any_order_of_edges_has_no_rewiring():
    leaves = torch.tensor([3, 1, 2, 6, 5, 4])
    edges = torch.stack((leaves, torch.zeros_like(leaves)))
    star = ga.from_edge_index(torch.cat((edges, edges.flip(0)), 1), num_nodes=N)
    options = {"controls": ("rewired", "reach-matched")}
    alone = compared({"star": star}, **options)
    assert list(alone.kinds) == ["star", "in-degrees of star"]
    cycle = ga.graphs.circulant(N, (-1, 1))
    # every tenth graph is looked at first
    graphs = [star if i % 10 == 0 else cycle for i in range(SAMPLES)]
    mixed = compared({"own": lambda sample: graphs[sample.index]}, **options)
    assert list(mixed.kinds) == ["own", "rewired own", "reach-matched own"]
    stars = compared({"own": lambda sample: star}, **options)
    assert list(stars.kinds) == ["own", "in-degrees of own"]
