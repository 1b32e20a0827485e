"""Intervals, tests and corrections against scipy and against every case by hand."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from graphattn.errors import OptionError
from graphattn.statistics.collapse import share_difference
from graphattn.statistics.intervals import (
    effect_size,
    holm,
    interval,
    least_p,
    seeds_needed,
    sign_flip,
)
from graphattn.study.claims import Claim
from graphattn.study.judge import (
    NOT_DECIDED,
    OPPOSITE,
    SAME,
    VERDICTS,
    Evidence,
    Pairs,
)
from graphattn.study.judge import judged as judged_by


def judged(claims, differences, late=(), **options):
    """Verdicts on claims by paired differences alone."""
    return judged_by(
        [
            Evidence(claim, Pairs.of(list(pairs)), str(claim) in late)
            for claim, pairs in zip(claims, differences, strict=True)
        ],
        **options,
    )


D = [0.31, -0.02, 0.17, 0.05, 0.11, 0.29, -0.07]


def test_interval_is_scipys():
    found, theirs = interval(D), stats.ttest_1samp(D, 0).confidence_interval(0.95)
    assert (found.value, found.low, found.high) == pytest.approx(
        (np.mean(D), theirs.low, theirs.high)
    )
    assert np.isnan(interval(D[:1]).low)


@pytest.mark.parametrize(
    ("bounds", "values"), [((0, 1), [0.85, 1.0, 0.97, 1.0, 0.93]), ((-1, 1), [-0.9, -1.0, -0.75])]
)
def test_intervals_of_shares_and_of_their_differences_stay_within_their_bounds(bounds, values):
    plain, found = interval(values), interval(values, bounds)
    assert not bounds[0] <= plain.low <= plain.high <= bounds[1]
    assert bounds[0] < found.low < found.value < found.high < bounds[1]
    assert found.value == plain.value
    small = [0.01 * x for x in D]  # far from a bound it is the t interval
    assert interval(small, (-1, 1)).low == pytest.approx(interval(small).low, abs=1e-5)


def test_an_interval_of_shares_near_their_bound_covers_what_it_says():
    """Of accuracies of mean .95 and deviation .05; the t interval covers 89 %."""
    random = np.random.default_rng(0)
    found = [interval(x, (0, 1)) for x in random.beta(0.95 * 18, 0.05 * 18, (1000, 5)).tolist()]
    found = [one for one in found if not math.isnan(one.low)]
    assert len(found) > 950
    assert np.mean([one.low <= 0.95 <= one.high for one in found]) == pytest.approx(0.93, abs=0.025)


def test_sign_flip_is_every_pattern_of_signs():
    means = [np.mean(np.multiply(D, signs)) for signs in itertools.product((1, -1), repeat=7)]
    far = np.abs(means) >= abs(np.mean(D)) - 1e-12
    assert sign_flip(D) == pytest.approx(np.mean(far))
    assert sign_flip(D) == sign_flip([-d for d in D])
    assert sign_flip([0.1] * 5) == least_p(5) == 0.0625
    assert sign_flip([D, D[::-1]]).tolist() == pytest.approx([np.mean(far)] * 2)
    many = [0.01 * i - 0.05 for i in range(20)]  # more than are tried one by one
    theirs = stats.ttest_1samp(many, 0).pvalue
    assert sign_flip(many) == pytest.approx(theirs, abs=0.01)
    assert sign_flip([0.1] * 20) == pytest.approx(least_p(20), abs=3e-5)


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
    [(5, 0.1, "same sign", False), (5, -0.1, "opposite sign", False), (2, 0.0, "not decided", False),
     (6, 0.1, "kept", True), (6, -0.1, "broken", True), (9, 0.0, "not decided", True), (0, 0.0, "not measured", False)],
)  # fmt: skip
def test_verdicts_wait_for_seeds_enough(seeds, offset, expected, tested):
    found = verdict([offset + 0.01 * (-1) ** i for i in range(seeds)])
    assert (found.verdict, found.p is not None) == (expected, tested)
    assert found.verdict in VERDICTS


def test_margins_and_equality_are_judged_by_the_whole_interval():
    near = [0.01 + 0.001 * (-1) ** i for i in range(8)]
    assert verdict(near, margin=0.02, equal=True).verdict == "kept"
    assert verdict(near, margin=0.005, equal=True).verdict == "broken"
    assert verdict(near, margin=0.0105, equal=True).verdict == "not decided"
    assert verdict(near, margin=0.005).verdict == "kept"
    assert verdict(near, margin=0.02).verdict == "broken"
    assert verdict(near[:5], margin=0.02).verdict == "opposite sign"  # 0.01 is not more than 0.02


def test_an_equality_of_few_seeds_is_not_decided():
    """It has no sign, and an interval beyond the margin is not as claimed because its mean is
    within.
    """
    wide = [-0.041, 0.029, -0.03, 0.018, -0.006]
    assert verdict(wide, margin=0.02, equal=True).verdict == "not decided"
    assert verdict([0.0] * 5, margin=0.02, equal=True).verdict == "not decided"


def p_of(differences):
    """Of every pattern of signs, of many families at once."""
    signs = np.array(list(itertools.product((1, -1), repeat=differences.shape[-1])))
    far = np.abs(differences @ signs.T) >= np.abs(differences.sum(-1, keepdims=True)) - 1e-9
    return far.mean(-1)


@pytest.mark.sample(4)
@pytest.mark.parametrize("seeds", range(5, 13))
def test_of_ten_claims_of_nothing_none_is_judged_in_95_families_of_100(seeds):
    """Fewer seeds win no more easily. Three standard errors of 500 families are .03."""
    random, claims = np.random.default_rng(seeds), [Claim("a", name) for name in "bcdefghijk"]
    families = random.normal(size=(500, 10, seeds)) * random.lognormal(size=(500, 10, 1))
    p = p_of(families)
    wrong = 10 * p.min(-1) < 0.05  # Holm's first step
    assert wrong.mean() <= 0.05 + 0.03
    some = [*np.flatnonzero(wrong)[:20], *range(3)]
    for family in some:
        if any(Pairs.of(pairs).collapsed for pairs in families[family].tolist()):
            continue  # drawn with a factor, seldom
        found = judged(claims, families[family].tolist())
        assert {one.verdict for one in found} <= set(
            VERDICTS if wrong[family] else {NOT_DECIDED, SAME, OPPOSITE}
        )
        if 10 * 2 / 2**seeds < 0.05:
            assert [one.p for one in found] == pytest.approx(holm(p[family]))
        else:
            assert {one.verdict for one in found} <= {SAME, OPPOSITE}


def test_an_equality_at_the_end_of_its_margin_is_judged_in_5_of_100():
    random = np.random.default_rng(0)
    some = 0.02 + 0.01 * random.normal(size=(400, 7))
    found = [verdict(one, margin=0.02, equal=True).verdict for one in some.tolist()]
    assert np.mean([word in ("kept", "broken") for word in found]) <= 0.05 + 0.035


def test_tests_are_corrected_for_all_claims_together():
    sure, none = [0.1 + 0.01 * i for i in range(10)], [0.1 * (-1) ** i for i in range(10)]
    alone = judged([Claim("a", "b")], [sure])[0].p
    together = judged([Claim("a", "b"), Claim("a", "c"), Claim("a", "d")], [sure, none, none])
    # dropped after looking
    assert judged([Claim("a", "b")], [sure], withdrawn=2)[0].p == together[0].p
    assert together[0].p == pytest.approx(3 * alone) == pytest.approx(3 * 2 / 2**10)


def test_claims_made_late_are_shown_and_count_for_no_correction():
    sure = [0.1 + 0.01 * i for i in range(10)]
    early, late = judged([Claim("a", "b"), Claim("a", "c")], [sure, sure], late=["a > c"])
    assert (early.verdict, early.p) == ("kept", pytest.approx(2 / 2**10))
    assert (late.verdict, late.p, late.difference) == ("same sign", None, interval(sure))


def test_an_interval_of_two_seeds_is_not_given():
    """Of 0 and 1 it would be from -5.85 to 6.85."""
    assert str(interval([0.0, 1.0])) == "0.500 (2 seeds)"
    assert str(interval([0.0, 0.1, 0.2])).startswith("0.100 [")


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        ((56, 70, 48, 80), 0.0524, 0.3339),
        ((9, 10, 3, 10), 0.1705, 0.8090),
        ((6, 7, 2, 7), 0.0582, 0.8062),
        ((5, 56, 0, 29), -0.0381, 0.1926),
        ((0, 10, 0, 20), -0.1611, 0.2775),
    ],
)
def test_a_difference_of_shares_has_newcombes_interval(counts, low, high):
    """Newcombe 1998, table II, method 10."""
    difference, *ends = share_difference(*counts)
    assert difference == pytest.approx(counts[0] / counts[1] - counts[2] / counts[3])
    assert ends == pytest.approx([low, high], abs=6e-5)


def test_an_effect_size_is_hedges_g_with_the_interval_of_the_noncentral_t():
    """The factor is that of Hedges' table (J(4) = .7979); at each end of the interval t is as far
    out as 2.5 %.
    """
    few = [0.1, 0.25, 0.2, 0.05, 0.3]
    found, t = effect_size(few), stats.ttest_1samp(few, 0).statistic
    factor = 0.7979
    assert found.value == pytest.approx(np.mean(few) / np.std(few, ddof=1) * factor, abs=1e-4)
    tails = [
        stats.nct.sf(t, 4, found.low / factor * 5**0.5),
        stats.nct.cdf(t, 4, found.high / factor * 5**0.5),
    ]
    assert tails == pytest.approx([0.025, 0.025], abs=1e-4)
    turned = effect_size([-x for x in few])
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))
    assert effect_size(D[:2]) is effect_size([0.5] * 4) is None
    random = np.random.default_rng(0)  # of a true effect of 1, that d_z overestimates by a quarter
    assert np.mean([effect_size(x).value for x in random.normal(1, 1, (600, 5))]) == pytest.approx(
        1, abs=0.08
    )


def test_as_many_seeds_as_are_needed_find_a_difference_four_times_of_five():
    """By drawing studies, judged by the sign-flip test; with two fewer it is not enough for the t
    test.
    """
    n, random = seeds_needed(0.02, 0.02), np.random.default_rng(0)
    assert n == 10  # as G*Power 3.1 has it
    found = sign_flip(random.normal(0.02, 0.02, (4000, n))) < 0.05
    assert 0.77 < found.mean() < 0.88
    fewer = stats.ttest_1samp(random.normal(0.02, 0.02, (4000, n - 2)), 0, axis=1).pvalue < 0.05
    assert fewer.mean() < 0.75
    assert seeds_needed(10.0, 0.01) == 6  # what the sign-flip test needs at all
    assert seeds_needed(10.0, 0.01, claims=10) == 9
    for wrong in (
        {"difference": 0},
        {"deviation": -1},
        {"claims": 0},
        {"power": 1},
        {"power": 0.1},
    ):
        with pytest.raises(OptionError, match=next(iter(wrong))):
            seeds_needed(**{"difference": 0.1, "deviation": 0.1, **wrong})


def test_an_effect_of_differences_all_but_alike_grows_as_they_do():
    """scipy's search for its ends takes minutes, and did not end."""
    near, far = (effect_size([1, 1 + spread, 1 - spread]) for spread in (1e-3, 1e-9))
    for one, other in zip(
        (near.value, near.low, near.high), (far.value, far.low, far.high), strict=True
    ):
        assert other == pytest.approx(one * 1e6, rel=1e-4)
    opposite = effect_size([-1, -1 - 1e-9, -1 + 1e-9])
    assert (opposite.low, opposite.high) == pytest.approx((-far.high, -far.low), rel=1e-4)


def test_seeds_for_a_difference_of_all_but_nothing_are_refused():
    with pytest.raises(OptionError, match="difference must be at least 1e-06 deviations"):
        seeds_needed(1e-300, 1.0)
