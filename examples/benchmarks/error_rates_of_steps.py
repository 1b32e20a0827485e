"""Error rates of verdicts on steps: simulated studies, some of whose runs never have the score."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from error_rates import STUDIES, covered
from scipy.stats import CensoredData, logrank

from graphattn.statistics.intervals import LEVEL
from graphattn.statistics.steps import RATIO, StepRuns, Steps
from graphattn.study.claims import STEPS, Claim
from graphattn.study.judge import BROKEN, KEPT, Evidence, Verdict, judged

_CLAIM = Claim("better", "worse", of=STEPS)
_BUDGET = 1_000
_POINTS = 20  # of a curve
_FACTOR = 2.0  # of the steps of the worse arm
ABOUT = "How often verdicts on steps are wrong, where simulation knows what is true"
HEAD = ("seeds", "never", "wrong", "log-rank", "ratio", "found", "log-rank")
NOTE = (
    "Each line is of {studies:,} simulated studies: steps are lognormal, curves have 20 points. "
    "never: runs of the worse arm that never have the score, of which the other takes half the "
    "steps. wrong: decided though steps do not differ, by a report and by the log-rank test "
    "(asymptotic, unpaired). ratio: 95 % intervals that hold the true ratio of 2. found: kept where "
    "it is 2."
)


@dataclass(frozen=True)
class StepsPair:
    """Steps of two arms.

    Args:
        name: What is drawn, in words.
        median: Of the slower arm, as a share of the budget.
        spread: Standard deviation of logarithms of steps.
        alike: Share of its variance that runs of one seed have in common.
    """

    name: str
    median: float
    spread: float = 0.3
    alike: float = 0.5


CASES = (
    StepsPair("all runs have the score", 0.4),
    StepsPair("a third of the worse arm never has it", 0.88),
    StepsPair("two thirds of the worse arm never have it", 1.14),
    StepsPair("runs of a seed have nothing in common", 0.4, alike=0.0),
    StepsPair("steps vary by a factor of 2", 0.4, spread=0.7, alike=0.75),
    StepsPair("curves too coarse: all within 4 points", 0.1, spread=0.2),
)


@dataclass(frozen=True)
class StepRates:
    """Shares of simulated studies.

    Args:
        name: Of the case.
        seeds: Of each study.
        never: Runs of the worse arm that never have the score.
        decided: Claims decided, kept or broken, though steps do not differ.
        decided_logrank: Of the log-rank test.
        of_ratio: Intervals that cover the true ratio of 2, of those that are given.
        kept: Claims kept where it is 2.
        kept_logrank: Of the log-rank test.
    """

    name: str
    seeds: int
    never: float
    decided: float
    decided_logrank: float
    of_ratio: float | None
    kept: float
    kept_logrank: float


def rates(case: StepsPair, seeds: int, studies: int = STUDIES) -> StepRates:
    """Simulate studies of a case: with equal steps, and with twice the steps of the worse arm."""
    random = np.random.default_rng([seeds, studies])
    shape = (studies, seeds)
    shared = math.sqrt(case.alike) * random.normal(size=shape)
    independent = math.sqrt(1 - case.alike)
    median = case.median * _BUDGET
    better = median * np.exp(case.spread * (shared + independent * random.normal(size=shape)))
    worse = median * np.exp(case.spread * (shared + independent * random.normal(size=shape)))
    null_steps = [_steps(*pair) for pair in zip(better, worse, strict=True)]
    effect_steps = [_steps(*pair) for pair in zip(better / _FACTOR, worse, strict=True)]
    null_verdicts = [_verdict(steps).verdict for steps in null_steps]
    verdicts = [_verdict(steps) for steps in effect_steps]
    ratios = [verdict.difference for verdict in verdicts if verdict.difference is not None]
    return StepRates(
        case.name,
        seeds,
        float(np.mean(worse > _BUDGET)),
        float(np.mean([word in (KEPT, BROKEN) for word in null_verdicts])),
        float(np.mean([_logrank(*pair) != 0 for pair in zip(better, worse, strict=True)])),
        covered(ratios, {RATIO: _FACTOR}),
        float(np.mean([verdict.verdict == KEPT for verdict in verdicts])),
        float(np.mean([_logrank(*pair) > 0 for pair in zip(better / _FACTOR, worse, strict=True)])),
    )


def _steps(better: np.ndarray, worse: np.ndarray) -> Steps:
    """Steps as a report has them: by the stretch of the curve."""
    stretch = _BUDGET // _POINTS
    return Steps(_runs(better, stretch), _runs(worse, stretch), _BUDGET, stretch)


def _runs(steps: np.ndarray, stretch: int) -> StepRuns:
    by = np.where(steps > _BUDGET, np.inf, np.ceil(steps / stretch) * stretch)
    after = np.where(np.isinf(by), np.inf, by - stretch + 1)
    return StepRuns(tuple(by.tolist()), tuple(after.tolist()))


def _verdict(steps: Steps) -> Verdict:
    """The verdict on one claim, as a report has it."""
    return judged([Evidence(_CLAIM, steps)])[0]


def _logrank(better: np.ndarray, worse: np.ndarray) -> float:
    """1 if the log-rank test finds the better arm first, -1 if the other, else 0."""
    arms = [
        CensoredData(arm[arm <= _BUDGET], right=np.minimum(arm[arm > _BUDGET], _BUDGET))
        for arm in (better, worse)
    ]
    if min(better.min(), worse.min()) > _BUDGET:
        return 0.0
    test = logrank(*arms)
    if test.pvalue < LEVEL:
        return float(np.sign(test.statistic))
    return 0.0


def simulated(seeds: Sequence[int], studies: int = STUDIES) -> list[StepRates]:
    """Rates of every case and number of seeds."""
    return [rates(case, count, studies) for case in CASES for count in seeds]
