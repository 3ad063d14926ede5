"""Paired statistics of two columns, as one JSON object.

Everything is about the per-row difference b - a. Transitions and McNemar's test need 0/1 outcomes and are null for
others. The Hoeffding interval needs bounds that every single value respects by its nature (0 and 1 for rewards); a
difference then lies within +-(hi - lo), and the decision is `b_higher`, `a_higher`, or `undecided` where the interval
around the mean difference contains 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from intraskill.core.errors import UserError
from intraskill.stats.paired import bootstrap_interval, hoeffding_radius, paired_difference, transitions

SAMPLES = 10_000
UNIT = (0.0, 1.0)


def paired_record(
    a: Sequence[float],
    b: Sequence[float],
    *,
    seed: int = 0,
    samples: int = SAMPLES,
    bounds: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """All paired statistics of `b - a`; no `bounds`, no Hoeffding interval. Raises `UserError` for values outside."""
    found = paired_difference(a, b)
    binary = all(value in (0, 1) for value in (*a, *b))
    moved = transitions([int(v) for v in a], [int(v) for v in b]) if binary else None
    return {
        "n": found.pairs,
        "mean_a": found.first_mean,
        "mean_b": found.second_mean,
        "mean_difference": found.difference,
        "paired_se": None if math.isnan(found.standard_error) else found.standard_error,
        "ci": list(bootstrap_interval(a, b, seed=seed, samples=samples)),
        "mcnemar_p": moved.p_value if moved else None,
        "transitions": {"fixed": moved.gained, "lost": moved.lost, "both": moved.both, "neither": moved.neither}
        if moved
        else None,
        "hoeffding": _hoeffding([*a, *b], found.pairs, found.difference, bounds),
    }


def unit_bounds(*columns: Sequence[float]) -> tuple[float, float] | None:
    """0 and 1 if every value lies there."""
    return UNIT if all(0 <= value <= 1 for column in columns for value in column) else None


def _hoeffding(
    values: Sequence[float], pairs: int, difference: float, bounds: tuple[float, float] | None
) -> dict[str, Any] | None:
    if bounds is None:
        return None
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UserError(f"bounds: {low} {high}; give two finite numbers, the lower one first")
    outside = next((value for value in values if not low <= value <= high), None)
    if outside is not None:
        raise UserError(f"bounds: the value {outside} lies outside {low} to {high}; give bounds that hold for all")
    radius = hoeffding_radius(pairs, span=2 * (high - low))
    decision = "undecided" if abs(difference) <= radius else "b_higher" if difference > 0 else "a_higher"
    return {"radius": radius, "decision": decision}
