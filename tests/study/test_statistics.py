"""Intervals, tests and corrections against scipy and against every case by hand."""

import itertools

import numpy as np
import pytest
from scipy import stats

from graphattn.errors import OptionError
from graphattn.study.claims import Claim, check_significance, judged
from graphattn.study.statistics import holm, interval, sign_flip

D = [0.31, -0.02, 0.17, 0.05, 0.11, 0.29, -0.07]


def test_interval_is_scipys():
    found, theirs = interval(D), stats.ttest_1samp(D, 0).confidence_interval(0.95)
    assert (found.mean, found.low, found.high) == pytest.approx((np.mean(D), theirs.low, theirs.high))
    assert np.isnan(interval(D[:1]).low)


def test_sign_flip_is_every_pattern_of_signs():
    means = [np.mean(np.multiply(D, signs)) for signs in itertools.product((1, -1), repeat=7)]
    far = np.abs(means) >= abs(np.mean(D)) - 1e-12
    assert sign_flip(D) == pytest.approx(np.mean(far))
    assert sign_flip(D) == sign_flip([-d for d in D])
    assert sign_flip([0.1] * 5) == 0.0625  # what 5 seeds can give at best


def test_holm_is_the_closed_test_of_bonferroni():
    """A claim is rejected if every set of claims that holds it is."""
    p = [0.004, 0.03, 0.011, 0.2, 0.011]
    sets = [s for k in range(1, 6) for s in itertools.combinations(range(5), k)]
    closed = [max(min(1, len(s) * min(p[j] for j in s)) for s in sets if i in s) for i in range(5)]
    assert holm(p) == pytest.approx(closed)


def verdict(differences, **claim):
    return judged([Claim("a", "b", **claim)], [differences])[0]


@pytest.mark.parametrize(
    ("seeds", "offset", "expected", "tested"),
    [(7, 0.1, "only shown", False), (8, 0.1, "kept", False), (9, -0.1, "refuted", False), (10, 0.1, "kept", True),
     (10, -0.1, "refuted", True), (10, 0.0, "open", True), (0, 0.0, "not measured", False)],
)  # fmt: skip
def test_verdicts_wait_for_seeds_enough(seeds, offset, expected, tested):
    found = verdict([offset + 0.01 * (-1) ** i for i in range(seeds)])
    assert (found.verdict, found.p is not None) == (expected, tested)


def test_margins_and_equality_are_judged_by_the_whole_interval():
    near = [0.01 + 0.001 * (-1) ** i for i in range(8)]
    assert verdict(near, margin=0.02, equal=True).verdict == "kept"
    assert verdict(near, margin=0.005, equal=True).verdict == "refuted"
    assert verdict(near, margin=0.0105, equal=True).verdict == "open"
    assert verdict(near, margin=0.005).verdict == "kept"
    assert verdict(near, margin=0.02).verdict == "refuted"


def test_tests_are_corrected_for_all_claims_together():
    sure, none = [0.1 + 0.01 * i for i in range(10)], [0.1 * (-1) ** i for i in range(10)]
    alone = judged([Claim("a", "b")], [sure])[0].p
    together = judged([Claim("a", "b"), Claim("a", "c"), Claim("a", "d")], [sure, none, none])
    assert together[0].p == pytest.approx(3 * alone) == pytest.approx(3 * 2 / 2**10)


def test_claims_made_late_are_shown_and_count_for_no_correction():
    sure = [0.1 + 0.01 * i for i in range(10)]
    early, late = judged([Claim("a", "b"), Claim("a", "c")], [sure, sure], late=["a > c"])
    assert (early.verdict, early.p) == ("kept", pytest.approx(2 / 2**10))
    assert (late.verdict, late.p, late.difference) == ("only shown", None, interval(sure))


def test_significance_from_few_seeds_is_refused():
    check_significance(10)
    with pytest.raises(OptionError, match=r"at least 10 seeds, got 5: .* of 5 is 0.0625"):
        check_significance(5)


def test_an_interval_of_two_seeds_is_not_given():
    """Of 0 and 1 it would be from -5.85 to 6.85."""
    assert str(interval([0.0, 1.0])) == "0.500 (2 seeds)"
    assert str(interval([0.0, 0.0, 0.3])).startswith("0.100 [")
