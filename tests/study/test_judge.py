"""Fits of arms: training accuracy and curves of every trial, and verdicts that wait for them."""

import json
import math
from dataclasses import replace

import pytest
import torch
from tiny_study import tiny_run

from graphattn import study
from graphattn.errors import OptionError
from graphattn.study.judge import (
    CANNOT,
    FITTED,
    KEPT,
    LEARNED,
    LEVELLED,
    NOT_DECIDED,
    NOT_FITTED,
    SOLVED,
    UNFIT,
    UNKNOWN,
    Evidence,
    FitShares,
    bound_of,
    class_of,
    fit_of,
    judged,
    reached,
)
from graphattn.study.train import curve_points

GUESS = math.log(5)


@pytest.mark.parametrize(
    ("record", "ceiling", "metric", "word"),
    [
        ({"accuracy": 0.3, "train_accuracy": 0.31}, 0.4, "accuracy", CANNOT),
        ({"accuracy": 0.96, "loss": 0.4}, None, "accuracy", SOLVED),
        ({"accuracy": 0.7, "train_accuracy": 0.97}, None, "accuracy", FITTED),
        ({"accuracy": 0.7, "train_accuracy": 0.9}, 0.98, "accuracy", UNFIT),
        ({"accuracy": 0.2, "train_accuracy": None}, None, "accuracy", UNFIT),
        ({"accuracy": 0.7, "loss": 0.05 * math.log(2)}, None, "accuracy", FITTED),
        ({"accuracy": 0.2, "loss": 0.96 * GUESS}, None, "accuracy", UNFIT),
        ({"accuracy": 0.7, "loss": 0.6}, None, "accuracy", UNKNOWN),
        ({"accuracy": 0.5, "train_bits": 0.5}, None, "bits", LEARNED),
        ({"accuracy": 0.5, "train_bits": GUESS / math.log(2)}, None, "bits", UNFIT),
    ],
)
def test_the_class_of_a_run_is_the_first_rule_that_applies(record, ceiling, metric, word):
    assert class_of(record, ceiling, metric, GUESS) == word


def test_colours_keep_a_run_from_fitting_if_it_is_near_their_ceiling():
    for score, held, bound in (
        (0.5, 0.5, None),
        (0.58, 0.5, 0.6),
        (0.58, 0.96, None),  # other examples may be told apart
        (0.96, 0.5, None),  # it fits fewer examples
    ):
        assert bound_of({"accuracy": held, "train_accuracy": score}, None, 0.6) == bound
    assert bound_of({"accuracy": 0.5, "train_accuracy": 0.5}, 0.7, 0.6) == 0.7
    assert bound_of({"accuracy": 0.58, "train_accuracy": 0.58}, 1.0, 0.6) == 0.6
    assert bound_of({"accuracy": 0.5, "train_accuracy": 0.5}, 1.0, 0.6) == 1.0
    assert bound_of({"accuracy": 0.5, "loss": 0.5}, None, 0.6) is None
    assert bound_of({"r2": -0.1, "train_r2": -0.01}, None, 0.0) == 0.0
    assert bound_of({"r2": -0.1, "train_r2": -0.06}, None, 0.0) is None


def test_a_loss_of_a_twentieth_of_ln_2_leaves_19_of_20_right():
    """The bound by which older trials are classed, on random logits: a wrong answer costs ln 2."""
    random = torch.Generator().manual_seed(0)
    for scale in (0.3, 3.0, 30.0):
        logits = scale * torch.randn(997, 7, generator=random)
        logits[:, 0] += scale
        loss = -logits.double().log_softmax(-1)[:, 0].mean()
        wrong = (logits.argmax(-1) != 0).double().mean()
        assert wrong * math.log(2) <= loss


def test_arms_fail_to_fit_if_most_runs_of_known_fit_do():
    runs = [{"accuracy": 0.2, "train_accuracy": x, "loss": 1.0} for x in (0.3, 0.4, 0.99)]
    found = fit_of([(run, None) for run in runs], "accuracy", GUESS)
    assert (found.failed, found.count(), found.count(solved=True)) == (True, 1, 0)
    assert found.word == f"{FITTED} (1), {UNFIT} (2)"
    assert found.accuracy == pytest.approx(1.69 / 3)
    bounded = fit_of([(run, 0.5) for run in runs], "accuracy", GUESS)
    assert (bounded.failed, bounded.word) == (False, CANNOT)
    old = fit_of([({"accuracy": 0.2, "loss": 1.0}, None)] * 2, "accuracy", GUESS)
    assert (old.failed, old.mostly(UNKNOWN), old.accuracy) == (False, True, None)


def curve_of(losses):
    return [[10 * (i + 1), loss, 0.5] for i, loss in enumerate(losses)]


@pytest.mark.parametrize(
    ("losses", "is_level"),
    [
        ([1.4, 1.2, 1.0, 0.9, 0.8, 0.8, 0.8, 0.8], True),
        ([1.4, 1.2, 1.0, 0.9, 0.8, 0.78, 0.76, 0.74], False),  # it still falls
        ([1.6] * 8, False),  # the loss of a guess: it has not begun to learn
        ([1.0, 0.9, 0.8, 0.8, 0.8, 0.8], False),  # too few points to tell
        ([], False),
    ],
)
def test_an_arm_has_levelled_off_if_it_has_learned_and_stands_still(losses, is_level):
    run = {"accuracy": 0.4, "train_accuracy": 0.5, "curve": curve_of(losses)}
    run["loss"] = (losses or [0.8])[-1]
    found = fit_of([(run, None)] * 3, "accuracy", GUESS)
    assert (found.word, found.failed, found.mostly(LEVELLED)) == (
        (LEVELLED, False, True) if is_level else (UNFIT, True, False)
    )
    assert fit_of([(run, None)] * 3, "accuracy", math.inf).word == UNFIT  # a guess is not known


def test_runs_level_off_if_all_stand_still_and_none_by_another_that_blows_up():
    flat = [1.0] * 4 + [0.6] * 4

    def word(*ends):
        runs = [
            {"accuracy": 0.4, "train_accuracy": 0.5, "loss": end, "curve": curve_of(losses)}
            for end in ends
            for losses in [[*flat[:6], end, end]]
        ]
        return fit_of([(run, None) for run in runs], "accuracy", GUESS).classes

    assert word(0.55, 0.65) == {LEVELLED: 2}  # one varies by more than is asked of the mean
    assert word(0.55) == {UNFIT: 1}
    assert word(0.5, 0.7) == {UNFIT: 2}  # each moves by more than a twentieth of a guess's
    assert word(0.5, 0.5, 0.5, 1.5) == {UNFIT: 4}


def test_a_few_runs_that_did_not_fit_do_not_mark_an_arm_whose_others_cannot():
    unfit = {"accuracy": 0.4, "train_accuracy": 0.5, "loss": 0.9}
    for cannot, failed in ((17, False), (7, False), (6, True)):
        runs = [(unfit, 0.5)] * cannot + [(unfit, None)] * 7
        assert fit_of(runs, "accuracy", GUESS).failed is failed


def test_a_curve_has_means_of_stretches_and_all_batches():
    points = curve_points([(float(step), step / 31) for step in range(1, 32)], 47)
    assert [point[0] for point in points] == [*range(3, 31, 3), 31]
    assert points[0][1] == 2.0
    assert points[-1][1:] == [31.0, 1.0]
    assert reached({"curve": points}) == (31, 31)
    assert reached({"curve": points[:3]}) is None


@pytest.mark.slow
def test_every_trial_has_its_training_accuracy_and_curve_and_shuffled_labels_too(tiny):
    lines = [
        json.loads(line) for line in (tiny.folder / "trials.jsonl").read_text("utf-8").splitlines()
    ]
    assert {len(line["curve"]) for line in lines} == {3}
    assert all(0 <= line["train_accuracy"] <= 1 for line in lines)
    assert tiny.to_dict()["rows"][0]["fit"] == "did not fit"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("kind", "law", "colours", "shown"),
    [
        ("full", 1.0, {"none": 0.677}, 0.677),
        ("arm", 0.4, {"none": 0.6}, 0.4),
        ("arm", None, {"none": 0.6}, 0.6),
        ("arm", 0.9, {"learned": 0.6}, 0.9),
        ("rewired", None, {"none": 0.6}, None),  # of the first drawing
    ],
)
def test_the_lower_ceiling_of_law_and_colours_stands_beside_a_score(
    tiny, kind, law, colours, shown
):
    prediction = {"kind": kind, "ceiling": law, "colours": colours}
    about = tiny.rows[0].about | {"arms": {tiny.rows[0].arm: prediction}}
    assert replace(tiny.rows[0], about=about).ceiling == shown


def scored_as(report, arms):
    """Records with an accuracy in training and on what was held out, by arm."""
    for record in report.records.of_key.values():
        record["train_accuracy"], record["accuracy"] = arms.get(record["arm"], (0.5, 0.5))
        if record["train_accuracy"] == 0.6:  # it stands still
            record["train_bits"] = 0.5
            record["curve"] = curve_of([0.3] * 8)


def test_a_claim_on_scores_waits_for_both_arms_to_fit(tmp_path):
    claims = [
        study.Claim("window", "full"),
        study.Claim("window", "full", of="fitting"),
        study.Claim("window", "full", of="solving"),
    ]
    options = {"seeds": 7, "budgets": study.Budget(None, 1), "controls": ("full",)}
    tiny_run(tmp_path, claims=claims, **options)

    def verdicts(**arms):
        found = study.report(tmp_path)
        scored_as(found, arms)
        return study.Report(found.folder, found.plan, found.records).verdicts

    unfit = verdicts(window=(1.0, 0.9), full=(0.3, 0.3))
    assert [one.verdict for one in unfit] == [NOT_FITTED, KEPT, NOT_DECIDED]
    assert unfit[0].remarks[0] == "window: fitted, did not generalise; full: did not fit"
    assert unfit[1].remarks == ("fitted 7 of 7 runs and 0 of 7",)
    assert unfit[1].p == pytest.approx(3 * 2 / math.comb(14, 7))
    both = verdicts(window=(1.0, 0.9), full=(0.98, 0.3))
    assert [one.verdict for one in both] == [KEPT, NOT_DECIDED, NOT_DECIDED]
    level = verdicts(window=(1.0, 0.9), full=(0.6, 0.3))
    assert level[0].verdict == KEPT
    assert level[0].remarks[0] == "full levelled off short of a fit (levelled off)"
    solved = verdicts(window=(1.0, 0.97), full=(0.98, 0.3))
    assert [one.verdict for one in solved] == [KEPT, NOT_DECIDED, KEPT]


def test_shares_need_no_margin_and_few_seeds_give_no_verdict():
    with pytest.raises(OptionError, match="takes no margin, equal or group"):
        study.Claim("a", "b", margin=0.1, of="fitting")
    claim = study.Claim("a", "b", of="fitting")
    assert str(claim) == "a > b in fitting"
    found = judged([Evidence(claim, FitShares(3, 3, 0, 3))])
    assert (found[0].verdict, found[0].p) == ("same sign", None)


def test_a_layout_of_source_is_no_other_code():
    from graphattn.study.network import syntax_of

    one = 'def f(x):\n    """Two."""\n    return g(x,\n             1)  # why\n'
    other = "def f(x): return g(x, 1)\n"
    assert syntax_of(one) == syntax_of(other) != syntax_of(other.replace("1", "2"))
    assert syntax_of('class A:\n    """B."""') == "class A:\n    pass"
    assert syntax_of("key=lambda x: x),") == "key=lambda x: x),"
