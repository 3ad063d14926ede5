"""An interval that holds at every look: stop when it is clear, go on when it is not, as often as you like.

A usual interval is valid at one sample size fixed before. Whoever looks after every task and stops at the first good
moment is wrong far more often than alpha. A **confidence sequence** contains the truth at all sample sizes at once,
with probability 1 - alpha.

It is made by betting (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting", the
hedged capital process). For every candidate mean m a gambler starts with 1 and bets on each next value being above m,
another on below. If m is the truth neither can expect to gain, so by Ville's inequality either fortune ever reaches
2/alpha with probability at most alpha/2; an m at which one did is excluded for good. The stake uses past values only,
grows as they vary less, and never risks more than half of the fortune. The fortune falls as m rises (rises, for the
other gambler), so each end of the interval is found by bisection. No shape of distribution is assumed: values lie
within known bounds, and are one sample in random order.
"""

from __future__ import annotations

import math

import numpy as np

from intraskill.stats.two_way import Matrix, NoInterval

_RISK = 0.5  # of the fortune, on one value
_HALVINGS = 50  # of the unit interval: the ends are exact to 1e-15
_DRIFT = (
    "the looks contradict each other: no mean fits all of them. Chance does that with probability alpha at most; "
    "more likely the values are not one sample in random order"
)


def confidence_sequence(values: Matrix, *, alpha: float, low: float, high: float) -> tuple[float, float]:
    """The interval after the last of `values` (n,), each in [low, high]; earlier looks had wider ones around it.

    Raises `NoInterval` where no mean is left that fits all looks.
    """
    unit = (values - low) / (high - low)
    stakes = _stakes(unit, alpha)
    lower, upper = _lower_end(unit, stakes, alpha), 1 - _lower_end(1 - unit, stakes, alpha)
    if lower > upper:
        raise NoInterval(_DRIFT)
    return low + lower * (high - low), low + upper * (high - low)


def _stakes(unit: Matrix, alpha: float) -> Matrix:
    """(n,) bets, each from the values before it: larger where they varied little, smaller as time goes on."""
    time = np.arange(1, len(unit) + 1)
    means = (0.5 + np.cumsum(unit)) / (time + 1)
    variances = (0.25 + np.cumsum((unit - means) ** 2)) / (time + 1)
    before = np.concatenate([[0.25], variances[:-1]])
    return np.sqrt(2 * math.log(2 / alpha) / (before * time * np.log1p(time)))


def _lower_end(unit: Matrix, stakes: Matrix, alpha: float) -> float:
    """The smallest mean at which the bets on `above` never made a fortune of 2/alpha."""
    below, above = 0.0, 1.0
    for _ in range(_HALVINGS):
        mean = (below + above) / 2
        fortune = np.cumsum(np.log1p(np.minimum(stakes, _RISK / mean) * (unit - mean)))
        if fortune.max() >= math.log(2 / alpha):
            below = mean
        else:
            above = mean
    return below
