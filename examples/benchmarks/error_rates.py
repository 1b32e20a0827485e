"""Error rates of verdicts: simulated studies of known truth, judged as real ones are.

python examples/benchmarks/error_rates.py            # 6, 10 and 16 seeds, some minutes
python examples/benchmarks/error_rates.py --seeds 10
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import ttest_1samp

from graphattn.arguments import whole
from graphattn.statistics.collapse import RULE
from graphattn.statistics.intervals import (
    DIFFERENCES,
    LEVEL,
    MEAN,
    MEDIAN,
    SHARES,
    TYPICAL,
    Interval,
    interval,
)
from graphattn.study.claims import Claim
from graphattn.study.judge import BROKEN, KEPT, Evidence, Pairs, Verdict, judged

SEEDS = (6, 10, 16)
STUDIES = 500
"""Simulated studies for each number of a table; a rate of .05 then has a standard error of .01."""
_MEAN, _SPREAD = 0.7, 0.02  # of runs that do not collapse
_COLLAPSED, _PERFECT = 0.15, 1.0
_EFFECT = 2 * _SPREAD
_MANY = 200_000  # draws for a mean or a median that has no formula
_MOST = 64  # seeds
_CLAIM = Claim("better", "worse")
NOTE = (
    "Each line is of {studies:,} simulated studies, judged as a report judges one claim. wrong: "
    "kept or broken though typical runs do not differ, and by a two-sided paired t test at "
    f"{LEVEL:g}. arm, diff.: 95 % intervals that hold what they name: of an arm the mean of "
    "runs that do not collapse, or, where runs were seen to, the median of all; of a difference "
    "that of typical runs. "
    "found: kept where the better arm's typical runs are better by two standard deviations, by a "
    "t test, and by one without the runs that collapse (clean). In the "
    "last case means are equal and typical runs are not: the claim is true as it is meant, and no "
    "test on so few seeds could hold one of means, as of 10 seeds 35 % see no run of one in ten "
    f"collapse. {RULE}"
)

ABOUT = "How often verdicts on a claim are wrong, where simulation knows what is true"
HEAD = ("seeds", "wrong", "t test", "arm", "diff.", "found", "t test", "clean")

Draw = Callable[[np.random.Generator, int], np.ndarray]


@dataclass(frozen=True)
class ScoreDistribution:
    """A distribution of the scores of an arm.

    Args:
        runs: Draws scores of runs that do not collapse.
        collapse: Share of the runs that do.
    """

    runs: Draw
    collapse: float = 0.0

    def typical(self, random: np.random.Generator, count: int, shift: float = 0.0) -> np.ndarray:
        """Scores (count,) of runs that do not collapse, higher by ``shift``, of 1 at most."""
        return np.minimum(self.runs(random, count) + shift, _PERFECT)

    def collapsed(self, random: np.random.Generator, typical: np.ndarray) -> np.ndarray:
        """The same scores, a share of them near those of a guess."""
        low = _COLLAPSED + _SPREAD * random.normal(size=len(typical))
        return np.where(random.random(len(typical)) < self.collapse, low, typical)


def _normal(random: np.random.Generator, seeds: int) -> np.ndarray:
    return _MEAN + _SPREAD * random.normal(size=seeds)


def _skewed(random: np.random.Generator, seeds: int) -> np.ndarray:
    return _MEAN - _SPREAD * random.gamma(4, 0.5, size=seeds)


def _exponential(random: np.random.Generator, seeds: int) -> np.ndarray:
    return _MEAN - _SPREAD * random.exponential(size=seeds)


def _saturated(random: np.random.Generator, seeds: int) -> np.ndarray:
    return _PERFECT - _SPREAD / 2 + _SPREAD * random.normal(size=seeds)


@dataclass(frozen=True)
class ArmPair:
    """Two arms without a true difference of typical runs.

    Args:
        name: What is drawn, in words.
        better: Scores of the arm that is claimed to be better.
        worse: Scores of the other.
        shift: Difference of typical runs that is there even so.
    """

    name: str
    better: ScoreDistribution
    worse: ScoreDistribution
    shift: float = 0.0


_ONE_IN_TEN = ScoreDistribution(_normal, 0.1)
CASES = (
    ArmPair("normal", ScoreDistribution(_normal), ScoreDistribution(_normal)),
    ArmPair("skewed (gamma, skewness 1)", ScoreDistribution(_skewed), ScoreDistribution(_skewed)),
    ArmPair(
        "skewed (exponential, 2)", ScoreDistribution(_exponential), ScoreDistribution(_exponential)
    ),
    ArmPair(
        "saturated: a third of runs at 1",
        ScoreDistribution(_saturated),
        ScoreDistribution(_saturated),
    ),
    ArmPair("1 run in 10 collapses", _ONE_IN_TEN, _ONE_IN_TEN),
    ArmPair(
        "3 runs in 10 collapse", ScoreDistribution(_normal, 0.3), ScoreDistribution(_normal, 0.3)
    ),
    ArmPair("1 run in 10 of one arm collapses", _ONE_IN_TEN, ScoreDistribution(_normal)),
)
EQUAL_MEANS = ArmPair(
    "equal means (decided by design): 1 run in 10 of the better arm collapses",
    _ONE_IN_TEN,
    ScoreDistribution(_normal),
    shift=0.1 * (_MEAN - _COLLAPSED) / 0.9,
)


@dataclass(frozen=True)
class Rates:
    """Shares of simulated studies.

    Args:
        name: Of the case.
        seeds: Of each study.
        decided: Claims decided, kept or broken, without a true difference of typical runs.
        decided_t: Of a two-sided paired t test.
        of_arm: Intervals of an arm that cover what they name.
        of_difference: Intervals of a difference that do.
        kept: Claims kept with a true difference of typical runs.
        kept_t: Of the t test of the same scores.
        kept_t_uncollapsed: Of the t test of the same scores, had no run collapsed.
    """

    name: str
    seeds: int
    decided: float
    decided_t: float
    of_arm: float | None
    of_difference: float | None
    kept: float
    kept_t: float
    kept_t_uncollapsed: float


def rates(case: ArmPair, seeds: int, studies: int = STUDIES) -> Rates:
    """Simulate studies of a case: without a true difference, and with one of two deviations."""
    random = np.random.default_rng([seeds, studies])
    count = studies * seeds
    shape = (studies, seeds)
    of_better = case.better.typical(random, count, case.shift)
    of_worse = case.worse.typical(random, count)
    of_lower = case.worse.typical(random, count, -_EFFECT)
    better = case.better.collapsed(random, of_better).reshape(shape)
    worse = case.worse.collapsed(random, of_worse).reshape(shape)
    lower = case.worse.collapsed(random, of_lower).reshape(shape)
    null_verdicts = [_verdict(*pair) for pair in zip(better, worse, strict=True)]
    effect_verdicts = [_verdict(*pair) for pair in zip(better, lower, strict=True)]
    decided = [verdict.verdict in (KEPT, BROKEN) for verdict in null_verdicts]
    of_arm = [interval(scores.tolist(), SHARES) for scores in better]
    covered_of_arm = covered(of_arm, _truths(case.better, case.shift))
    difference = _truths(case.better, case.shift)[MEAN] - _truths(case.worse)[MEAN]
    true_differences = {MEAN: difference, TYPICAL: difference}
    differences = [
        verdict.difference for verdict in null_verdicts if verdict.difference is not None
    ]
    return Rates(
        case.name,
        seeds,
        float(np.mean(decided)),
        float(np.mean(_t_test(better, worse) != 0)),
        covered_of_arm,
        covered(differences, true_differences),
        float(np.mean([verdict.verdict == KEPT for verdict in effect_verdicts])),
        float(np.mean(_t_test(better, lower) > 0)),
        float(np.mean(_t_test(of_better.reshape(shape), of_lower.reshape(shape)) > 0)),
    )


def _verdict(better: np.ndarray, worse: np.ndarray) -> Verdict:
    """The verdict on one claim, as a report has it."""
    scores = (better.tolist(), worse.tolist())
    differences = (better - worse).tolist()
    pairs = Pairs.of(differences, scores, DIFFERENCES)
    return judged([Evidence(_CLAIM, pairs)])[0]


def _t_test(better: np.ndarray, worse: np.ndarray) -> np.ndarray:
    """Sign of the mean of each study where a paired t test finds it, else 0."""
    test = ttest_1samp(better - worse, 0.0, axis=1)
    return np.where(test.pvalue < LEVEL, np.sign(test.statistic), 0.0)


@cache
def _truths(scores: ScoreDistribution, shift: float = 0.0) -> dict[str, float]:
    """Estimands of an arm's intervals, by drawing many runs."""
    random = np.random.default_rng(0)
    typical = scores.typical(random, _MANY, shift)
    runs = scores.collapsed(random, typical)
    return {MEAN: float(typical.mean()), MEDIAN: float(np.median(runs))}


def covered(intervals: Sequence[Interval], truths: dict[str, float]) -> float | None:
    """The share of the given intervals that cover the truth of their estimand; None of none."""
    hits = [
        estimate.low <= truths[estimate.of] <= estimate.high
        for estimate in intervals
        if not math.isnan(estimate.low)
    ]
    if not hits:
        return None
    return float(np.mean(hits))


def simulated(seeds: Sequence[int] = SEEDS, studies: int = STUDIES) -> list[Rates]:
    """Rates of every case and number of seeds.

    Raises:
        OptionError: If there are fewer than 6 seeds, or more than 64.
    """
    for count in seeds:
        whole(count, "seeds", SEEDS[0], below=_MOST + 1)
    return [rates(case, count, studies) for case in (*CASES, EQUAL_MEANS) for count in seeds]


def cells(rates_of_case: Any) -> tuple[str, ...]:
    """The rates of a case and a number of seeds, below a module's ``HEAD``, in its order."""
    _, seeds, *shares = astuple(rates_of_case)
    return (f"{seeds}", *map(_share_text, shares))


def _share_text(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{share:.3f}"


def main() -> None:
    """Print a table of each case, of scores and of steps, and the meaning of the columns."""
    import argparse

    import error_rates_of_steps

    parser = argparse.ArgumentParser(description=ABOUT)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    seeds = parser.parse_args().seeds
    for kind in (sys.modules[__name__], error_rates_of_steps):
        print(f"{kind.ABOUT}\n\n{kind.NOTE.format(studies=STUDIES)}")
        every = kind.simulated(seeds)
        for name in dict.fromkeys(rate.name for rate in every):
            print(f"\n{name}\n" + "  ".join(f"{word:>8}" for word in kind.HEAD))
            for rate in every:
                if rate.name == name:
                    print("  ".join(f"{cell:>8}" for cell in cells(rate)))


if __name__ == "__main__":
    main()
