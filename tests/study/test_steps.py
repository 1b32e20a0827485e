"""Claims of steps to a score: no run is dropped, and verdicts, ratios and words are true."""

import json
import math

import numpy as np
import pytest
from error_rates import cells
from error_rates_of_steps import CASES, HEAD, rates
from scipy import stats
from tiny_study import tiny_data, tiny_run

import graphattn as ga
from graphattn import study
from graphattn.errors import OptionError
from graphattn.statistics.steps import StepRuns, Steps
from graphattn.study.check import rendered_again
from graphattn.study.judge import (
    BROKEN,
    KEPT,
    NOT_DECIDED,
    NOT_MEASURED,
    OPPOSITE,
    SAME,
    Evidence,
    judged,
    reached,
)
from graphattn.study.trials import trials_of

NEVER = math.inf


def runs(*steps, stretch=40):
    """Runs whose curves have a point every 40 batches."""
    return StepRuns(tuple(steps), tuple(step - stretch + 1 for step in steps))


def steps_of(better, worse, budget=800):
    return Steps(runs(*better), runs(*worse), budget, 40)


def test_a_run_has_a_level_in_the_mean_of_a_stretch_or_on_its_training_examples_at_the_end():
    curve = [[40, 1.2, 0.3], [80, 0.5, 0.8], [107, 0.3, 0.9]]
    record = {"curve": curve, "train_accuracy": 0.96, "train_bits": 0.1, "loss": 0.19}
    assert reached(record, 0.8) == (41, 80)
    assert reached(record) == (81, 107)
    assert reached({**record, "train_accuracy": 0.94}) is None
    assert reached(record, 0.5, "loss") == (41, 80)
    assert reached(record, 0.19, "loss") == (81, 107)
    assert reached(record, 0.5 / math.log(2), "bits") == (41, 80)
    assert reached(record, 0.1, "bits") == (81, 107)
    assert reached(record, 0.09, "bits") is None
    assert reached({"train_accuracy": 1.0}) is None


def test_a_run_that_stops_at_its_loss_within_the_first_stretch_fits_there():
    """Such runs were counted as ones that never fit: the mean of the stretch holds its beginning."""
    record = {"curve": [[38, 0.6, 0.7]], "train_accuracy": 1.0, "loss": 0.02}
    assert reached(record) == (1, 38)
    diverged = {"curve": [[40, 0.6, 0.97], [80, None, None]], "train_accuracy": None, "loss": None}
    assert reached(diverged) == (1, 40)
    assert reached(diverged, 0.1, "loss") is None


def test_p_is_that_of_every_exchange_of_the_two_runs_of_a_seed():
    better = (40, 80, 120, 40, 440, 40, NEVER)
    worse = (80, 200, NEVER, 40, 400, 120, NEVER)
    ranks = stats.rankdata(better + worse)
    exchanged = stats.permutation_test(
        (ranks[:7], ranks[7:]),
        lambda one, other: one.sum() - other.sum(),
        permutation_type="samples",
        n_resamples=10_000,
    )
    found = steps_of(better, worse)
    assert found.p == pytest.approx(exchanged.pvalue)
    assert found.lead == 1
    assert steps_of(worse, better).lead == -1
    assert steps_of(worse, better).p == pytest.approx(found.p)


def test_runs_that_never_have_the_score_count_as_slower_than_all_that_do():
    some = (400, 440, 480, 520, 560, 600)
    never = (NEVER,) * 6
    found = steps_of(some, never)
    assert (found.p, found.lead) == (found.least_p, 1) == (2 / 2**6, 1)
    assert math.isnan(found.difference.value)
    assert math.isinf(found.difference.high)
    assert 1.3 < found.difference.low <= 2
    assert str(found.difference) == f"over {found.difference.low:.2f} times the steps"
    assert str(found) == "reached by 6 of 6 runs and 0 of 6, known to within 40 batches"
    assert str(steps_of(never, some).difference).startswith("under 0.")
    none = steps_of(never, never)
    assert (none.p, none.lead, str(none.difference)) == (1.0, 0, "ratio not given (6 seeds)")
    at_the_end = steps_of((800,) * 6, never)  # the last batch is before never
    assert (at_the_end.p, at_the_end.lead) == (found.p, 1)


def test_batches_that_one_arm_alone_had_do_not_count():
    better = (40,) * 6
    late = (900,) * 6
    found = Steps(runs(*better), runs(*late).within(800), 800, 40, capped=True)
    assert found.worse.by == found.worse.after == (NEVER,) * 6
    assert found.better.within(800) == found.better
    assert str(found) == (
        "reached by 6 of 6 runs and 0 of 6 within 800 batches, which both have, known to within 40 batches"
    )


def test_a_ratio_turns_and_scales_with_the_steps_and_its_interval_is_that_of_the_test():
    random = np.random.default_rng(0)
    better = np.exp(4 + 0.4 * random.normal(size=8))
    worse = 2.3 * np.exp(4 + 0.4 * random.normal(size=8))

    def ratio(one, other):
        exact = [StepRuns(tuple(x), tuple(x)) for x in (one.tolist(), other.tolist())]
        return Steps(*exact, 100_000, 1)

    found = ratio(better, worse).difference
    pairs = np.log(worse / better)
    assert found.low < found.value < found.high
    assert found.low <= math.exp(np.median(pairs)) <= found.high
    three = ratio(better, 3 * worse).difference
    assert (three.low, three.value, three.high) == pytest.approx(
        (3 * found.low, 3 * found.value, 3 * found.high)
    )
    turned = ratio(worse, better).difference
    assert (turned.high, turned.value, turned.low) == pytest.approx(
        (1 / found.low, 1 / found.value, 1 / found.high)
    )
    for end, outwards in ((found.low, 0.999), (found.high, 1.001)):
        assert ratio(better * end * outwards, worse).p < 0.05
        assert ratio(better * end / outwards, worse).p >= 0.05


def test_an_interval_holds_what_a_curve_leaves_open():
    """All runs of both arms at the first point: batch 1 and batch 40, or the other way round."""
    alike = steps_of((40,) * 6, (40,) * 6).difference
    assert (alike.value, alike.low, alike.high) == pytest.approx((1, 1 / 40, 40))
    two = steps_of((40,) * 6, (80,) * 6).difference
    assert (two.value, two.low, two.high) == pytest.approx((2, 41 / 40, 80))


def test_several_drawings_of_a_seed_have_their_median_and_never_is_late():
    drawn = StepRuns.of([[(1, 40), None, (81, 120)], [None, None, (1, 40)]])
    assert drawn.by == (120.0, NEVER)
    assert drawn.after[0] == 81.0
    assert drawn.reached == 1
    assert StepRuns.of([[(1, 40), None]]).by == (NEVER,)


def verdict(better, worse, others=0):
    claims = [study.Claim("a", "b", of="steps")] + [study.Claim("a", f"{i}") for i in range(others)]
    tests = [steps_of(better, worse)] + [None] * others
    return judged([Evidence(*pair) for pair in zip(claims, tests, strict=True)])[0]


def test_verdicts_wait_for_six_seeds_and_count_in_holms_correction():
    one = (40, 80, 40, 120, 80, 40, 80)
    other = (200, 240, NEVER, 400, 280, 800, NEVER)
    assert [verdict(one[:n], other[:n]).verdict for n in (5, 6)] == [SAME, KEPT]
    assert [verdict(other[:n], one[:n]).verdict for n in (5, 6)] == [OPPOSITE, BROKEN]
    assert verdict(one, one).verdict == NOT_DECIDED
    assert verdict(one, other).p == pytest.approx(2 / 2**7)
    assert verdict(one, other, others=2).p == pytest.approx(3 * 2 / 2**7)
    assert verdict(one, other, others=9).verdict == SAME
    assert verdict(one[:1], (40,)).verdict == NOT_DECIDED


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "a fits in fewer steps than b"),
        ({"level": 0.8}, "a has a score of 0.8 in fewer steps than b"),
        ({"level": 2.0, "curve": "bits"}, "a has 2 bits in fewer steps than b"),
        ({"level": 0.5, "curve": "loss"}, "a has a loss of 0.5 in fewer steps than b"),
        ({"budget": 1}, "a fits in fewer steps than b (budget 1)"),
    ],
)
def test_a_claim_of_steps_says_its_level(given, words):
    assert str(study.Claim("a", "b", of="steps", **given)) == words


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"of": "steps", "margin": 0.1}, "takes no margin"),
        ({"level": 0.5}, "give of='steps'"),
        ({"curve": "loss"}, "give of='steps'"),
        ({"of": "steps", "curve": "loss"}, "level must be a number > 0 where curve is 'loss'"),
        ({"of": "steps", "curve": "bits", "level": -1.0}, "level must be"),
        ({"of": "steps", "level": 2.0}, "level must be a score of 1 at most, got 2; or give curve"),
        ({"of": "steps", "curve": "speed"}, "curve"),
        ({"of": "steps", "group": "far"}, "takes no margin, equal or group"),
    ],
)
def test_a_level_that_no_curve_has_is_refused(given, words):
    with pytest.raises(OptionError, match=words):
        study.Claim("a", "b", **given)


def test_a_level_that_the_curves_of_labels_or_numbers_lack_is_refused_before_training(tmp_path):
    tokens = tiny_data().inputs
    graphs = {"window": ga.graphs.full(7), "other": ga.graphs.full(7)}
    claim = study.Claim("window", "other", of="steps")
    with pytest.raises(OptionError, match="labels have no score"):
        tiny_run(tmp_path, graphs, study.Data(tokens, tokens[:, :2] > 2, 41), claims=[claim])
    bits = study.Claim("window", "other", of="steps", curve="bits", level=1.0)
    with pytest.raises(OptionError, match="numbers no bits"):
        tiny_run(tmp_path, graphs, study.Data(tokens, tokens[:, :2].float(), 41), claims=[bits])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    claims = [
        study.Claim("window", "full", of="steps", because="it begins nearer"),
        study.Claim("window", "full", of="steps", curve="loss", level=0.7),
    ]
    options = {"seeds": 7, "budgets": study.Budget(None, 4), "controls": ("full",)}
    return tiny_run(tmp_path_factory.mktemp("steps") / "tiny", claims=claims, **options).folder


def with_curves(folder, curve_of):
    """The report with other training curves, by arm and seed."""
    found = study.report(folder)
    for record in found.records.of_key.values():
        record["curve"] = curve_of(record["arm"], record["seed"])
    return study.Report(found.folder, found.plan, found.records)


def curves(arm, seed):
    """Window fits at batch 2 or 3, full at 4 or never; losses are alike."""
    fits_at = {"window": 2 + seed % 2, "full": 4 + (seed == 3)}[arm]
    return [[step, 0.5, 0.96 if step >= fits_at else 0.2] for step in (1, 2, 3, 4)]


@pytest.mark.slow
def test_a_report_says_a_claim_of_steps_in_words_tables_and_numbers(made):
    found = with_curves(made, curves)
    fit, loss = found.verdicts
    assert (fit.verdict, fit.p) == (KEPT, pytest.approx(2 * 2 / 2**7))
    assert fit.remarks[0] == "reached by 7 of 7 runs and 6 of 7, known to the batch"
    assert fit.difference.of == "ratio of steps"
    assert 1.3 <= fit.difference.value <= 2 + 1e-6
    assert (loss.verdict, loss.p) == (NOT_DECIDED, 1.0)
    row = f"| window fits in fewer steps than full | it begins nearer | {fit.difference} | "
    assert row in str(found)
    as_json = found.to_dict()["verdicts"][0]
    assert as_json["difference"]["value"] == pytest.approx(fit.difference.value)
    assert as_json["difference"]["of"] == "ratio of steps"
    line = found.arms.iloc[0]
    assert (line["arm"], line["runs"], line["steps_to_fit"]) == ("window", 7, 2)


@pytest.mark.slow
def test_an_open_end_is_none_in_json(made):
    never = with_curves(made, lambda arm, seed: [[4, 0.5, 0.96 if arm == "window" else 0.1]])
    found = never.verdicts[0]
    assert str(found.difference).startswith("over ") or math.isnan(found.difference.low)
    as_json = json.dumps(never.to_dict(), allow_nan=False)
    assert "Infinity" not in as_json


@pytest.mark.slow
def test_trials_of_before_curves_are_not_measured_and_say_so(made):
    found = with_curves(made, lambda arm, seed: []).verdicts[0]
    assert found.verdict == NOT_MEASURED
    assert found.remarks == ("no training curves: trained before fits were recorded",)


def test_every_number_of_such_a_report_is_computed_again(made):
    result = rendered_again(made)
    assert result.ok
    text = (made / "report.html").read_text("utf-8")
    assert "window fits in fewer steps than full" in text


@pytest.mark.slow
def test_ten_seeds_find_half_the_steps_and_decide_6_of_100_nulls():
    """Three standard errors of 40 studies: .1 of a rate of .05."""
    for case in (CASES[0], CASES[2]):
        found = rates(case, 10, 40)
        assert found.decided <= 0.05 + 0.1
        assert found.of_ratio >= 0.95 - 0.1
        assert found.kept >= 0.9
        assert len(cells(found)) == len(HEAD)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [6, 10, 16])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_nulls_of_steps_are_decided_in_6_of_100_and_ratios_covered(case, seeds):
    found = rates(case, seeds, 500)
    assert found.decided <= 0.05 + 0.03
    assert found.of_ratio >= 0.95 - 0.03
    if seeds == 10:
        assert found.kept >= 0.85


def planned(comparisons, claim):
    trials = [trial for one in comparisons for trial in trials_of(one, 1)]
    study.Study("study", comparisons, [claim]).check_claims(trials)


def test_levels_are_of_curves_that_both_arms_have_and_not_of_every_run():
    tokens = tiny_data().inputs
    graphs = {"window": ga.graphs.full(7)}
    classes = study.Comparison("classes", graphs, tiny_data())
    labels = study.Comparison("labels", graphs, study.Data(tokens, tokens[:, :2] > 2, 41))
    where = {"comparison": "classes", "worse_comparison": "labels"}
    of_both = study.Claim("window", "window", of="steps", **where)
    with pytest.raises(OptionError, match="labels have no score"):
        planned([classes, labels], of_both)
    any_run = study.Claim("window", "self", of="steps", level=0.0)
    with pytest.raises(OptionError, match="any run an accuracy of 0"):
        planned([classes], any_run)
