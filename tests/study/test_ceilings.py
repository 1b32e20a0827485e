"""Ceilings by colours against every function of colours there is, and against what is trained."""

from itertools import permutations, product

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score
from tiny_study import Adding, tiny_comparison, tiny_data, tiny_run

import graphattn as ga
from graphattn import study
from graphattn.laws.ceilings import Answers, best_score
from graphattn.study import Budget, Data, Training
from graphattn.study.comparison import Trial
from graphattn.study.data import FIT_METRIC, METRICS
from graphattn.study.judge import CANNOT
from graphattn.study.laws import ceilings, first_colours, predicted
from graphattn.study.train import train

COLOURS, ANSWERS = 4, 11


def drawn(seed, kind):
    """Eleven answers of four colours: 3 classes, 2 labels or 2 numbers."""
    random = np.random.default_rng(seed)
    colour = np.concatenate((np.arange(COLOURS), random.integers(COLOURS, size=ANSWERS - COLOURS)))
    if kind == "classes":
        targets = random.integers(3, size=ANSWERS)
    elif kind == "labels":
        targets = random.random((ANSWERS, 2)) < 0.4
        targets[0] = True
    else:
        targets = random.normal(size=(ANSWERS, 2))
    return Answers(colour, targets)


@pytest.mark.parametrize("seed", range(2))
def test_no_function_of_colours_names_more_classes(seed):
    answers = drawn(seed, "classes")
    guesses = [np.array(guess)[answers.colour] for guess in product(range(3), repeat=COLOURS)]
    right = max(np.mean(guess == answers.targets) for guess in guesses)
    f1 = max(
        f1_score(answers.targets, guess, average="macro", zero_division=0) for guess in guesses
    )
    assert best_score("accuracy", answers) == pytest.approx(right)
    assert f1 <= best_score("macro_f1", answers) + 1e-12
    shares = (
        np.array(
            [np.bincount(answers.targets[answers.colour == c], minlength=3) for c in range(COLOURS)]
        )
        + 1e-12
    )
    shares = shares / shares.sum(1, keepdims=True)
    bits = -np.log2(shares[answers.colour, answers.targets]).mean()
    assert best_score("bits", answers) == pytest.approx(bits)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_function_of_colours_ranks_labels_better(seed):
    """AP of every weak order of four colours; accuracy and F1 of every set of them."""
    answers = drawn(seed, "labels")
    hits = [np.array(guess)[answers.colour] for guess in product((0, 1), repeat=COLOURS)]
    for metric in ("accuracy", "macro_f1"):
        best = []
        for column in answers.targets.T:
            if metric == "accuracy":
                best.append(max(np.mean(guess == column) for guess in hits))
            else:
                best.append(max(f1_score(column, guess, zero_division=0) for guess in hits))
        assert best_score(metric, answers) == pytest.approx(np.mean(best))
    ranks = [np.array(rank)[answers.colour] for rank in product(range(COLOURS), repeat=COLOURS)]
    best = [
        max(average_precision_score(column, rank) for rank in ranks) for column in answers.targets.T
    ]
    bound = best_score("ap", answers)
    assert np.mean(best) <= bound + 1e-12 < np.mean(best) + 0.1


def test_an_order_by_shares_is_not_the_best_of_average_precision():
    """The bound is needed: a small colour of a lower share may come first."""
    counts = ((10, 10), (51, 100), (1, 2), (0, 40))
    colour = np.repeat(np.arange(4), [n for _, n in counts])
    holds = np.concatenate([np.arange(n) < m for m, n in counts])
    answers = Answers(colour, holds[:, None])
    by_share = average_precision_score(holds, np.array([3, 2, 1, 0])[colour])
    best = max(
        average_precision_score(holds, np.array(rank)[colour]) for rank in permutations(range(4))
    )
    assert by_share < best <= best_score("ap", answers)


@pytest.mark.parametrize("seed", range(2))
def test_no_number_of_each_colour_is_nearer(seed):
    answers = drawn(seed, "values")
    far = []
    between = []
    for column in answers.targets.T:
        parts = [column[answers.colour == c] for c in range(COLOURS)]
        far.append(sum(min(np.abs(part - x).sum() for x in part) for part in parts) / ANSWERS)
        residual = sum(part.var() * len(part) for part in parts)
        between.append(1 - residual / (column.var() * ANSWERS))
    assert best_score("mae", answers) == pytest.approx(np.mean(far))
    assert best_score("r2", answers) == pytest.approx(np.mean(between))


SAMPLES = 120
HELD = torch.arange(SAMPLES) >= 60


def questions(kind, of):
    """Samples of two tokens on four nodes, and targets that depend on more than is seen."""
    random = torch.Generator().manual_seed(7)
    tokens = torch.randint(2, (SAMPLES, 4), generator=random)
    places = {"mean": (SAMPLES,), "node": (SAMPLES, 4), "edge": (SAMPLES, 3)}[of]
    ends = torch.randint(4, (SAMPLES, 3, 2), generator=random)
    seen = {
        "mean": tokens.sum(1),
        "node": tokens + tokens.roll(1, 1),
        "edge": tokens.gather(1, ends[..., 0]) + tokens.gather(1, ends[..., 1]),
    }[of]
    noise = torch.randint(2, places, generator=random)
    targets = {
        "classes": (seen + noise) % 3,
        "labels": torch.stack((seen + noise > 1, noise > 0), -1),
        "values": torch.stack((seen + noise, 3.0 * noise), -1).float(),
    }[kind]
    changes = {}
    if of == "edge":
        changes["asked_edges"] = ends
    return Data(tokens, targets, HELD, **changes)


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        ("classes", "edge"),
        ("values", "mean"),
        ("labels", "node"),
        *(pytest.param("classes", of, marks=pytest.mark.slow) for of in ("mean", "node")),
        *(pytest.param("labels", of, marks=pytest.mark.slow) for of in ("mean", "edge")),
        *(pytest.param("values", of, marks=pytest.mark.slow) for of in ("node", "edge")),
    ],
)
def test_no_trained_arm_scores_above_its_ceiling(kind, of):
    """By every score of such targets; and training comes to half of its ceiling or more."""
    arms = {"ring": ga.graphs.circulant(4, (0, 1))}
    options = {"readout": of, "controls": (), "training": Training(1e-2, batch=32)}
    comparison = tiny_comparison(arms, questions(kind, of), **options, budgets=Budget(None, 60))
    if kind == "classes":
        comparison.metric = "macro_f1"
    trial = Trial("c", "ring", "arm", "ring", "none", None, 60, 1, 0, "")
    record = train(comparison, comparison.graphs["ring"], trial)
    for name, metric in METRICS.items():
        if kind not in metric.kinds:
            continue
        comparison.metric = name
        found = ceilings(comparison, comparison.graphs["ring"])
        assert metric.sign * record[name] <= metric.sign * found["colours"]["none"] + 1e-6
        for score in found["colours_in_training"].values():
            by = FIT_METRIC[kind]
            assert 0.5 * score < record[f"train_{by}"] <= score + 1e-6


def test_a_ceiling_is_for_arms_to_which_it_applies():
    data = tiny_data()
    about = tiny_comparison({"window": ga.graphs.sliding_window(7, 3, causal=False)}, data)
    learned = tiny_comparison({"self": ga.graphs.self_loops(7)}, data, positions="learned")
    assert predicted(learned, "self")["colours"] == {}  # a place and a token for each node
    alone = predicted(about, "self")["colours"]["none"]
    counts = torch.stack([row.bincount(minlength=5) for row in data.inputs])
    _, of = counts.unique(dim=0, return_inverse=True)
    most = sum(int(data.targets[of == i].bincount().max()) for i in range(int(of.max()) + 1))
    assert alone == pytest.approx(most / len(data))
    assert predicted(about, "shuffled labels, window")["colours"] == {}
    own = study.CustomModel(Adding, layers=1)
    of_user = tiny_comparison({"self": ga.graphs.self_loops(7)}, data, model=own)
    assert predicted(of_user, "self")["colours"] == {}  # it is given places
    choosing = tiny_comparison({"chosen": ga.graphs.top_k(..., 2)}, data)
    assert predicted(choosing, "chosen")["colours"] == {}  # a choice counts sources


@pytest.mark.slow
def test_an_arm_whose_nodes_are_all_alike_cannot_fit(tmp_path):
    steps = [2 + i % 2 for i in range(40)]
    graphs = [ga.graphs.circulant(7, (-step, -1, 0, 1, step)) for step in steps]
    for name, targets, words in (
        ("classes", torch.arange(40) % 2, "| 0.500 |"),
        ("numbers", (torch.arange(40.0) % 2).unsqueeze(1), "| 0.000 |"),
    ):
        data = Data(torch.zeros(40, 7, dtype=torch.int64), targets, torch.arange(40) < 20)
        found = tiny_run(
            tmp_path / name,
            {"skips": lambda sample: graphs[sample.index]},
            data,
            budgets=Budget(None, 30),
            controls=(),
            training=Training(1e-2, batch=20),
        )
        row = found.row("skips")
        assert row.fit.classes == {CANNOT: 2}
        assert words in str(found)


def test_a_token_at_a_learned_place_is_not_that_place_of_the_other_token():
    tokens = torch.randint(4, (60, 4), generator=torch.Generator().manual_seed(7))
    alone = {"self": ga.graphs.self_loops(4)}
    data = Data(tokens, tokens, torch.arange(60) < 20)
    options = {"readout": "node", "controls": (), "budgets": Budget(None, 3)}
    about = tiny_comparison(alone, data, positions="learned", **options)
    assert ceilings(about, about.graphs["self"]) == {"colours": {}, "colours_in_training": {}}
    pairs = {tuple(pair) for row in tokens.tolist() for pair in enumerate(row)}
    assert len(np.unique(first_colours(data, torch.arange(60), "learned"))) == len(pairs) == 16


def test_alibi_does_not_tell_a_sequence_from_its_mirror_image():
    tokens = torch.randint(4, (30, 7), generator=torch.Generator().manual_seed(7))
    inputs = torch.cat((tokens, tokens.flip(1)))
    data = Data(inputs, torch.arange(60) // 30, 20)
    arms = {"window": ga.graphs.sliding_window(7, 3, causal=False)}
    positions = ("alibi", "rotary", "relative")
    about = tiny_comparison(arms, data, positions=positions, controls=())
    assert ceilings(about, about.graphs["window"])["colours"] == {"alibi": 0.5}
