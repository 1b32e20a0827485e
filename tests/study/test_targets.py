"""Targets other than classes of samples: numbers and labels, of nodes and edges; splits and groups
of the test.
"""

import json
import math

import numpy as np
import pytest
import torch
from permuted_nodes import permuted
from tiny_study import N, tiny_comparison, tiny_run

import graphattn as ga
from graphattn import study
from graphattn.errors import OptionError, ShapeError
from graphattn.study import Budget, Claim, Comparison, Data, Model, Study, Training
from graphattn.study.comparison import Trial
from graphattn.study.data import of_labels, of_values
from graphattn.study.figure import draw
from graphattn.study.network import Network
from graphattn.study.run import execute
from graphattn.study.train import train
from graphattn.study.trials import trials_of

SAMPLES, F = 61, 3
WINDOW = ga.graphs.sliding_window(N, 3, causal=False)
HELD = torch.arange(SAMPLES) >= 40


def features(seed=0):
    return torch.randn(SAMPLES, N, F, generator=torch.Generator().manual_seed(seed))


def trained(data, kind="arm", steps=60, **changes):
    given = {"readout": data.of if data.of != "sample" else "mean", "budgets": Budget(None, steps)}
    given |= {"controls": (), "training": Training(1e-2, batch=16), **changes}
    comparison = tiny_comparison({"window": WINDOW}, data, **given)
    trial = Trial("c", "window", kind, "window", comparison.positions[0], None, steps, 1, 0, "")
    return train(comparison, comparison.graphs["window"], trial)


@pytest.mark.slow
def test_numbers_are_learned_and_scored_in_their_units():
    x = features()
    targets = torch.stack((x[..., 0].mean(1), x[..., 1].mean(1)), -1)
    plain = trained(Data(x, targets, HELD), steps=120)
    assert plain["r2"] > 0.2
    assert plain["train_r2"] > 0.5
    large = trained(Data(x, 7 + 100 * targets, HELD), steps=120, metric="mae")
    assert large["r2"] == pytest.approx(plain["r2"], abs=1e-3)
    assert large["mae"] == pytest.approx(100 * plain["mae"], rel=1e-2)
    assert "accuracy" not in plain


def test_scores_are_those_of_their_definitions():
    random = torch.Generator().manual_seed(3)
    logits = torch.randn(97, 5, generator=random)
    labels = torch.rand(97, 5, generator=random) < 0.3
    precisions = []
    for k in range(5):
        hits = labels[:, k][logits[:, k].argsort(descending=True)].double()
        at = hits.cumsum(0) / torch.arange(1, 98)
        precisions.append(float((at * hits).sum() / hits.sum()))
    scores = of_labels(logits, labels)
    assert scores["ap"] == pytest.approx(np.mean(precisions))
    guesses = logits > 0
    right = (guesses & labels).double().sum(0)
    f1 = 2 * right / (guesses.sum(0) + labels.sum(0))
    assert scores["macro_f1"] == pytest.approx(float(f1.mean()))
    assert scores["accuracy"] == pytest.approx(float((guesses == labels).double().mean()))
    values = torch.randn(97, 2, generator=random)
    targets = values + 0.5 * torch.randn(97, 2, generator=random)
    found = of_values(values, targets, torch.tensor([1.0, 10.0]))
    errors = (values - targets).abs().mean(0)
    assert found["mae"] == pytest.approx(float((errors[0] + 10 * errors[1]) / 2), rel=1e-5)
    spread = (targets - targets.mean(0)).square().sum(0)
    r2 = 1 - (values - targets).square().sum(0) / spread
    assert found["r2"] == pytest.approx(float(r2.mean()), rel=1e-5)
    assert np.isnan(of_labels(logits / 0, labels)["ap"])


@pytest.mark.slow
def test_labels_of_nodes_are_asked_of_nodes_that_are_there():
    x = features()
    sizes = torch.randint(4, N + 1, (SAMPLES,), generator=torch.Generator().manual_seed(2))
    labels = torch.stack((x[..., 0] > 0, x[..., 1] > 0.8, x[..., 2] > 1.2), -1)
    data = Data(x, labels, HELD, sizes=sizes)
    assert (data.kind, data.of, data.classes) == ("labels", "node", 3)
    assert int(data.asked.sum()) == int(sizes.sum())
    comparison = tiny_comparison(
        {"own": lambda sample: ga.graphs.sliding_window(sample.num_nodes, 3, causal=False)},
        data,
        readout="node",
        budgets=Budget(None, 80),
        controls=(),
        metric="ap",
        training=Training(1e-2, batch=16),
    )
    trial = Trial("c", "own", "arm", "own", "none", None, 80, 1, 0, "")
    record = train(comparison, comparison.graphs["own"], trial)
    assert record["ap"] > 0.6
    assert record["answers"] == int(sizes[HELD].sum())
    assert 0 < record["macro_f1"] <= 1


def test_edges_answer_by_both_of_their_ends():
    random = torch.Generator().manual_seed(5)
    tokens = torch.randint(2, (SAMPLES, N), generator=random)
    edges = torch.randint(N, (SAMPLES, 4, 2), generator=random)
    target, source = tokens.gather(1, edges[..., 0]), tokens.gather(1, edges[..., 1])
    data = Data(tokens, 2 * target + source, HELD, asked_edges=edges)
    assert data.of == "edge"
    record = trained(data, steps=120)
    assert record["accuracy"] > 0.7
    network = Network(Model(1, 8, 2, 8), data, "edge", "none").eval()
    logits = network(tokens, (WINDOW,), torch.arange(N), ends=edges)
    turned = network(tokens, (WINDOW,), torch.arange(N), ends=edges.flip(-1))
    assert logits.shape == (SAMPLES, 4, 4)
    assert not torch.allclose(logits, turned)
    about = tiny_comparison({"window": WINDOW}, data, readout="edge", controls=())
    assert permuted(about, about.graphs["window"], "none") <= 1e-9


@pytest.mark.parametrize("of_values", [False, True])
def test_edges_that_are_not_asked_decide_nothing(of_values):
    random = torch.Generator().manual_seed(5)
    tokens = torch.randint(3, (SAMPLES, N), generator=random)
    edges = torch.randint(N, (SAMPLES, 3, 2), generator=random)
    padding = torch.randint(3, (SAMPLES, 1), generator=random) < torch.arange(3)
    if of_values:
        targets = torch.randn(SAMPLES, 3, 1, generator=random)
        targets[padding] = math.nan
    else:
        targets = torch.randint(2, (SAMPLES, 3), generator=random).masked_fill(padding, -100)
    others = edges.masked_fill(padding.unsqueeze(-1), 0)
    assert not torch.equal(edges, others)
    one = trained(Data(tokens, targets, HELD, asked_edges=edges), steps=5)
    other = trained(Data(tokens, targets, HELD, asked_edges=others), steps=5)
    assert (one["loss"], one["curve"]) == (other["loss"], other["curve"])
    nothing = targets.clone()
    nothing[7] = targets[padding][0]
    with pytest.raises(ShapeError, match="ask something of every sample, sample 7"):
        trained(Data(tokens, nothing, HELD, asked_edges=edges), steps=5)


def test_readouts_metrics_and_targets_must_fit():
    x = features()
    values = Data(x, x[..., 0].mean(1, keepdim=True), HELD)
    edges = torch.zeros(SAMPLES, 2, 2, dtype=torch.int64)
    of_edges = Data(x, torch.zeros(SAMPLES, 2, dtype=torch.int64), HELD, asked_edges=edges)
    for data, options, words in (
        (values, {"readout": "node"}, "does not fit targets of each sample"),
        (values, {"metric": "accuracy"}, "metric must be"),
        (of_edges, {"readout": "mean"}, "does not fit targets of each edge"),
    ):
        with pytest.raises(OptionError, match=words):
            tiny_comparison({"window": WINDOW}, data, **options)
    with pytest.raises(ShapeError, match="asked_edges must be"):
        Data(x, torch.zeros(SAMPLES, 2, dtype=torch.int64), HELD, asked_edges=edges + N)
    with pytest.raises(ShapeError, match="targets must be"):
        Data(x, torch.zeros(SAMPLES - 1, 5), HELD)
    for given, words in (
        ({"validation": HELD}, "apart from test"),
        ({"groups": {"far": ~HELD}}, "must be a part of test"),
    ):
        with pytest.raises(OptionError, match=words):
            Data(x, values.targets, HELD, **given)
    with pytest.raises(OptionError, match="fixed test"):
        Data(x, values.targets, 5, validation=HELD)


def test_fixed_validation_chooses_the_rate_and_is_never_trained_on():
    tokens = torch.randint(5, (SAMPLES, N), generator=torch.Generator().manual_seed(0))
    targets = tokens[:, 3] % 3
    validation = (torch.arange(SAMPLES) >= 25) & ~HELD
    other = torch.where(validation, (targets + 1) % 3, targets)
    rates = Training((1e-4, 1e-2), batch=8)
    found = [
        trained(Data(tokens, y, HELD, validation=validation), steps=30, training=rates)
        for y in (targets, other)
    ]
    for record in found:
        scores = {float(rate): score for rate, score in record["validation"].items()}
        assert scores[record["rate"]] == max(scores.values())
    assert found[0]["validation"] != found[1]["validation"]
    one = [trained(Data(tokens, y, HELD, validation=validation), steps=9) for y in (targets, other)]
    assert one[0]["loss"] == one[1]["loss"]
    assert one[0]["bits"] == one[1]["bits"]
    assert list(one[0]["validation"]) == ["0.01"]


@pytest.fixture(scope="module")
def depths(tmp_path_factory):
    """Two depths on one test in two parts, with claims across them."""
    tokens = torch.randint(5, (SAMPLES, N), generator=torch.Generator().manual_seed(0))
    groups = {"runs": HELD & (torch.arange(SAMPLES) < 47), "far": torch.arange(SAMPLES) >= 47}
    data = Data(tokens, tokens[:, 3] % 3, HELD, groups=groups)
    every = [
        Comparison(
            f"depth {L}",
            {"window": WINDOW},
            data,
            model=Model(L, 8, 2, 8),
            budgets=Budget(None, 3),
            training=Training(1e-2, batch=8),
            controls=("full",),
        )
        for L in (1, 2)
    ]
    between = {"comparison": "depth 2", "worse_comparison": "depth 1"}
    claims = [
        Claim("window", "window", **between),
        Claim("window", "full", comparison="depth 1", group="far"),
        Claim("window", "window", group="far", **between),
        Claim("window", "full", comparison="depth 2", beyond="depth 1"),
    ]
    folder = tmp_path_factory.mktemp("targets") / "depths"
    return execute(Study("depths", every, claims), seeds=3, out=folder, processes=0)


@pytest.mark.slow
def test_parts_of_a_test_are_scored_apart_and_make_up_the_whole(depths):
    row = depths.row("window", "depth 1")
    for seed, record in enumerate(row.records):
        assert record["seed"] == seed
        near, far = record["groups"]["runs"], record["groups"]["far"]
        right = near["accuracy"] * near["answers"] + far["accuracy"] * far["answers"]
        assert near["answers"] + far["answers"] == record["answers"]
        assert right / record["answers"] == pytest.approx(record["accuracy"])
    assert "| runs | runs (group) | far |" in str(depths)  # a group is called as a column is
    figure = draw(depths)
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert ticks == ["runs", "far"]
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["depth 1", "depth 2"]
    told = json.loads((depths.folder / "report.json").read_text("utf-8"))
    assert set(told["rows"][0]["groups"]) == {"runs", "far"}


@pytest.mark.slow
def test_claims_across_comparisons_pair_their_seeds(depths):
    deep, shallow = depths.row("window", "depth 2"), depths.row("window", "depth 1")
    across, apart, both, _ = (verdict.difference for verdict in depths.verdicts)
    means = [np.mean(list(row.scores.values())) for row in (deep, shallow)]
    assert across.value == pytest.approx(means[0] - means[1])
    far = [
        [one["groups"]["far"]["accuracy"] for one in row.records]
        for row in (shallow, depths.row("full", "depth 1"), deep)
    ]
    assert apart.value == pytest.approx(np.mean(far[0]) - np.mean(far[1]))
    assert both.value == pytest.approx(np.mean(far[2]) - np.mean(far[0]))
    assert str(depths.registered[0]) == "window > window (depth 2, against depth 1)"


@pytest.mark.slow
def test_an_interaction_is_a_difference_of_differences_of_each_seed(depths):
    claim = depths.registered[3]
    assert str(claim) == "window > full (depth 2, beyond depth 1)"
    rows = [
        depths.row(arm, depth) for depth in ("depth 2", "depth 1") for arm in ("window", "full")
    ]
    by_seed = [
        (rows[0].scores[s] - rows[1].scores[s]) - (rows[2].scores[s] - rows[3].scores[s])
        for s in range(3)
    ]
    assert depths.verdicts[3].difference.value == pytest.approx(np.mean(by_seed))
    assert [(row.arm, row.comparison) for row in depths.rows_of(claim)] == [
        (row.arm, row.comparison) for row in rows
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"beyond": "depth 1"},
        {"comparison": "depth 1", "beyond": "depth 1"},
        {"comparison": "depth 2", "beyond": "depth 1", "of": "fitting"},
        {"comparison": "depth 2", "beyond": "depth 1", "worse_comparison": "depth 3"},
    ],
)
def test_an_interaction_is_of_scores_in_two_named_comparisons(given):
    with pytest.raises(OptionError, match="beyond is of a claim on scores"):
        Claim("window", "full", **given)


@pytest.mark.slow
def test_claims_of_no_comparison_or_group_are_refused(depths):
    for changes, words in (
        ({"worse_comparison": "depth 3"}, "no comparison has the trials of 'full'"),
        ({"beyond": "depth 3"}, "no comparison has the trials of 'window'"),
        ({"group": "middle"}, "no group 'middle'"),
    ):
        claim = Claim("window", "full", comparison="depth 1", **changes)
        tokens = torch.zeros(SAMPLES, N, dtype=torch.int64)
        data = Data(tokens, tokens[:, 0], HELD, groups={"far": HELD})
        every = [tiny_comparison({"window": WINDOW}, data, budgets=Budget(None, 1))]
        every[0].name = "depth 1"
        with pytest.raises(OptionError, match=words):
            Study("depths", every, [claim]).check_claims(
                [trial for one in every for trial in trials_of(one, 1)]
            )
    with pytest.raises(OptionError, match="takes no margin, equal or group"):
        Claim("a", "b", group="far", of="solving")


@pytest.mark.slow
def test_shuffled_numbers_are_no_better_than_their_mean(tmp_path):
    x = features()
    report = study.run(
        {"window": WINDOW},
        Data(x, x[..., :1].mean(1), HELD),
        out=tmp_path / "values",
        seeds=3,
        model=Model(1, 8, 2, 8),
        budgets=Budget(None, 30),
        training=Training(1e-2, batch=8),
        controls=("full", "shuffled"),
        processes=0,
    )
    shuffled = report.row("shuffled labels, window")
    assert (shuffled.metric, shuffled.holds) == ("r2", True)
    assert shuffled.interval.value < report.row("window").interval.value
    assert report.row("window").fit.runs == 3


def test_nodes_of_one_graph_are_split_by_two_copies_of_it(tmp_path):
    classes = torch.arange(N).expand(2, -1) % 2
    held = torch.arange(N) >= 4
    asked = torch.stack((~held, held))
    data = Data(
        features()[:1].expand(2, -1, -1),
        classes.where(asked, -100),
        test=torch.tensor([False, True]),
    )
    training = study.Training(batch=1)
    options = {"readout": "node", "training": training, "budgets": study.Budget(steps=2)}
    report = tiny_run(tmp_path, data=data, controls=("self", "shuffled"), seeds=1, **options)
    assert report.row("window").answers == int(held.sum())
