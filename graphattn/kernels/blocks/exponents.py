"""The numbers between products and exponents of 2.

Products are scaled last, so that they are as exact as those of a dense product; a negative scale
turns the query round, so that the largest product has the largest score.
"""

import math

LOG2_E = math.log2(math.e)
TINY = 1e-30  # a scale below would be lost beside other factors


def exponents(scale: float, softcap: float) -> dict[str, float]:
    """The factor of a query, the rate of scores in exponents, and the slope under a softcap."""
    factor, unit = factor_and_unit(scale)
    if softcap > 0:
        return {"turn": factor, "rate": softcap * LOG2_E, "slope": unit / softcap}
    return {"turn": factor, "rate": unit * LOG2_E, "slope": 0.0}


def factor_and_unit(scale: float) -> tuple[float, float]:
    """A factor of the query, and a positive scale of its products."""
    if abs(scale) < TINY:
        return scale, 1.0
    return math.copysign(1.0, scale), abs(scale)


def unit_of_levels(scale: float, softcap: float) -> float:
    """The score of a level of 1."""
    if softcap > 0:
        return softcap
    return factor_and_unit(scale)[1]
