"""Showing that two arms are as good as equal, which `not significant` does not show.

Two one-sided tests (TOST, Schuirmann 1987): the difference is shown to be above -margin and to be below +margin, each
at level alpha. Both hold exactly where the interval of level 1 - 2 alpha lies within the margins, so that interval is
what is reported. A wide interval shows neither a difference nor equivalence.
"""

from __future__ import annotations

from dataclasses import dataclass

from intraskill.stats.two_way import Estimate


@dataclass(frozen=True, slots=True)
class Equivalence:
    margin: float
    lower: float
    upper: float
    p_value: float
    equivalent: bool


def equivalence(estimate: Estimate, margin: float, alpha: float = 0.05) -> Equivalence:
    """Is the true difference shown to lie within +-margin?"""
    p_value = max(estimate.p_above(-margin), estimate.p_below(margin))
    return Equivalence(margin, *estimate.interval(2 * alpha), p_value, p_value < alpha)
