"""Error rates of verdicts, by simulated studies that the engine judges."""

import numpy as np
import pytest
from error_rates import (
    CASES,
    EQUAL_MEANS,
    HEAD,
    NOTE,
    cells,
    rates,
    simulated,
)
from scipy import stats

from graphattn.errors import OptionError
from graphattn.statistics.collapse import groups_of, typical_pairs, typical_runs
from graphattn.statistics.intervals import (
    MEAN,
    MEDIAN,
    TYPICAL,
    interval,
    median_interval,
)
from graphattn.study.claims import Claim
from graphattn.study.judge import COLLAPSED, KEPT, NOT_DECIDED, Evidence, Pairs, judged


def verdict_of(differences, scores):
    return judged([Evidence(Claim("a", "b"), Pairs.of(differences, scores))])[0]


CASE = {case.name: case for case in (*CASES, EQUAL_MEANS)}


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_ten_seeds_decide_6_of_100_nulls_and_intervals_cover_90(name):
    """Three standard errors of 120 studies: .065 of a rate of .06, .08 of a coverage of .9."""
    found = rates(CASE[name], 10, 120)
    assert found.decided <= 0.06 + 0.065
    assert min(found.of_arm, found.of_difference) >= 0.9 - 0.08
    assert found.kept >= found.kept_t - 0.1


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [6, 10, 16])
@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_nulls_are_decided_in_6_of_100_and_intervals_cover_90(name, seeds):
    """Three standard errors of 1,000 studies: .023 and .028."""
    found = rates(CASE[name], seeds, 1_000)
    assert found.decided <= 0.06 + 0.01
    assert found.of_difference >= 0.9 - 0.01
    assert found.of_arm >= 0.9 - 0.02
    if seeds >= 10:
        assert found.kept >= found.kept_t - 0.1


def test_equal_means_of_unlike_runs_are_no_null_and_the_table_says_so():
    found = rates(EQUAL_MEANS, 10, 60)
    assert found.decided > 0.5
    assert "no test on so few seeds could hold one of means" in NOTE
    assert cells(found)[0] == "10"
    assert len(cells(found)) == len(HEAD)
    assert "by design" in found.name


def test_error_rates_of_fewer_seeds_than_a_verdict_takes_are_refused():
    with pytest.raises(OptionError, match=r"seeds must be .* got 5"):
        simulated((5,))


def test_the_median_of_runs_that_collapse_has_the_exact_interval_of_scipy():
    scores = [0.98, 0.13, 0.99, 0.97, 0.96, 0.95, 0.985]
    found = interval(scores)
    exact = stats.quantile_test(scores, q=0, p=0.5).confidence_interval(0.95)
    assert (found.of, found.value, found.low, found.high) == (MEDIAN, 0.97, exact.low, exact.high)
    assert str(found).endswith(" (median)")
    assert np.isnan(median_interval(scores[:5]).low)
    assert interval(scores[2:]).of == MEAN


def test_equal_scores_of_few_answers_are_no_group_by_themselves():
    """Normal scores of deviation .1, rounded to 20 answers: two of three seeds are often equal."""
    assert groups_of([0.5, 0.5, 0.7]) is None
    assert groups_of([0.13, 0.99, 0.99]) is not None
    assert groups_of([0.13, 1.0, 1.0, 1.0, 1.0, 1.0]) is not None
    random = np.random.default_rng(0)
    scores = np.round((0.5 + 0.1 * random.normal(size=(2_000, 3))) * 20) / 20
    assert sum(groups_of(each) is not None for each in scores.tolist()) <= 0.02 * 2_000


def test_typical_runs_are_those_above_the_gap_if_two_thirds_are():
    assert typical_runs([0.1, 0.9, 0.91, 0.92, 0.9, 0.93]).tolist() == [False] + [True] * 5
    assert typical_runs([0.1, 0.11, 0.12, 0.92, 0.9, 0.93]) is None
    assert typical_runs([0.9, 0.11, 0.12, 0.12, 0.1, 0.13]) is None
    pairs = typical_pairs([-0.8, 0.1, 0.1, 0.1, 0.1, 0.7], [[0.1] + [0.9] * 5, [0.8] * 5 + [0.2]])
    assert pairs.tolist() == [False] + [True] * 4 + [False]


def test_a_claim_is_judged_of_runs_that_did_not_collapse_and_says_so():
    better = [0.13] + [0.90 + 0.001 * i for i in range(9)]
    worse = [0.80 + 0.0013 * i for i in range(10)]
    differences = np.subtract(better, worse).tolist()
    found = verdict_of(differences, (better, worse))
    assert found.verdict == KEPT
    assert found.p == pytest.approx(2 / 2**9)
    assert (found.difference.of, found.difference.seeds) == (TYPICAL, 9)
    assert found.difference.value == pytest.approx(np.mean(differences[1:]))
    assert found.remarks[0].startswith(
        "of runs that did not collapse, 9 of 10 pairs; collapsed: 1 of 10 and 0 of 10; of all runs, "
        "means differ by "
    )
    few = verdict_of(differences[:6], (better[:6], worse[:6]))
    assert (few.verdict, few.p) == ("same sign", None)


def test_arms_of_which_more_than_a_third_collapses_are_not_judged():
    better = [0.13, 0.12, 0.14, 0.12] + [0.90 + 0.001 * i for i in range(6)]
    worse = [0.80 + 0.0013 * i for i in range(10)]
    differences = np.subtract(better, worse).tolist()
    found = verdict_of(differences, (better, worse))
    assert (found.verdict, found.p, found.effect) == (COLLAPSED, None, None)
    assert np.isnan(found.difference.low)
    assert Pairs.of(differences, (better, worse)).typical == []


def test_a_run_that_collapsed_in_both_arms_alike_is_left_out():
    scores = [0.13] + [0.9] * 9
    found = verdict_of([0.0] * 10, (scores, scores))
    assert (found.verdict, found.difference.seeds) == (NOT_DECIDED, 9)
