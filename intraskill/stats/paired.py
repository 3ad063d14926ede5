"""Comparing two conditions that were run on the same tasks.

Tasks differ in difficulty far more than conditions differ in skill, so everything here works on the per-task
difference (second condition minus first) and treats the task as the unit of sampling:

- the **paired standard error** of the mean difference, s / sqrt(n);
- a **percentile bootstrap interval**: resample tasks with replacement, take the middle share of the resampled means;
- **transitions** of a 0/1 outcome, and the exact **McNemar** test: if the conditions were equal, each task that
  changed sides was a fair coin, so the p-value is a two-sided binomial tail over the changed tasks alone;
- the **Hoeffding radius**: a half-width that holds for any distribution of bounded differences at any n, without an
  appeal to normality. It is wide; what it excludes is excluded for good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intraskill.core.errors import UserError

_BLOCK = 2_000_000  # resampled values held in memory at once


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Means of both conditions and of their per-task difference. `standard_error` is NaN for a single pair."""

    pairs: int
    first_mean: float
    second_mean: float
    difference: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class Transitions:
    """How a 0/1 outcome moved from the first condition to the second."""

    gained: int
    lost: int
    both: int
    neither: int

    @property
    def p_value(self) -> float:
        return mcnemar_exact_p(self.gained, self.lost)


def paired_difference(first: Sequence[float], second: Sequence[float]) -> PairedDifference:
    """Mean of `second - first` over the same tasks in the same order. Raises `UserError` for unequal lengths."""
    a, b = _pairs(first, second)
    differences = b - a
    n = len(differences)
    error = float(differences.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return PairedDifference(n, float(a.mean()), float(b.mean()), float(differences.mean()), error)


def bootstrap_interval(
    first: Sequence[float],
    second: Sequence[float],
    *,
    seed: int,
    samples: int = 10_000,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Percentile interval of the mean of `second - first`, resampling tasks; the same seed gives the same interval."""
    if samples < 1 or not 0 < confidence < 1:
        raise UserError(f"bootstrap: {samples} samples at confidence {confidence}; use samples >= 1 and 0 < level < 1")
    a, b = _pairs(first, second)
    differences = b - a
    n = len(differences)
    random = np.random.default_rng(seed)
    block = max(1, _BLOCK // n)
    means = np.concatenate(
        [
            differences[random.integers(n, size=(min(block, samples - start), n))].mean(axis=1)
            for start in range(0, samples, block)
        ]
    )
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def transitions(first: Sequence[int], second: Sequence[int]) -> Transitions:
    """Count the moves of a 0/1 outcome. Raises `UserError` for other values."""
    a, b = _pairs(first, second)
    if not np.isin([a, b], [0, 1]).all():
        raise UserError("transitions: outcomes must be 0 or 1; pass successes, not rewards")
    return Transitions(
        gained=int(((a == 0) & (b == 1)).sum()),
        lost=int(((a == 1) & (b == 0)).sum()),
        both=int(((a == 1) & (b == 1)).sum()),
        neither=int(((a == 0) & (b == 0)).sum()),
    )


def mcnemar_exact_p(gained: int, lost: int) -> float:
    """Two-sided exact p-value of `gained` against `lost` changed tasks; 1 when nothing changed."""
    from scipy.stats import binomtest  # a second to load, and most commands never test

    changed = gained + lost
    return float(binomtest(gained, changed).pvalue) if changed else 1.0


def hoeffding_radius(pairs: int, *, confidence: float = 0.95, span: float = 2.0) -> float:
    """Half-width around the mean of `pairs` differences that lie in an interval of length `span`.

    The difference of two rewards in [0, 1] lies in [-1, 1], hence span 2. P(|mean - truth| >= r) is at most
    2 exp(-2 n r^2 / span^2), solved for r.
    """
    if pairs < 1 or not 0 < confidence < 1:
        raise UserError(f"hoeffding: {pairs} pairs at confidence {confidence}; use pairs >= 1 and 0 < level < 1")
    return span * math.sqrt(math.log(2 / (1 - confidence)) / (2 * pairs))


def _pairs(first: Sequence[float], second: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    if len(first) != len(second):
        raise UserError(f"paired comparison: {len(first)} against {len(second)} outcomes; pair them by task first")
    if not len(first):
        raise UserError("paired comparison: no pairs; run both conditions on the same tasks first")
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    for name, values in (("first", a), ("second", b)):
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise UserError(f"paired comparison: {name}[{bad[0]}] is {values[bad[0]]}; every outcome must be finite")
    return a, b
