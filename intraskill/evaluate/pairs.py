"""Paired statistics of two columns, as one JSON object; also of columns of a plain CSV file.

Everything is about the per-row difference b - a. Transitions and McNemar's test need 0/1 outcomes and are null for
others. The Hoeffding interval needs bounds that every single value respects by its nature (0 and 1 for rewards); a
difference then lies within +-(hi - lo), and the decision is `b_higher`, `a_higher`, or `undecided` where the interval
around the mean difference contains 0.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from intraskill.core.errors import UserError
from intraskill.stats.paired import bootstrap_interval, hoeffding_radius, paired_difference, transitions
from intraskill.storage.user_files import read_user_text

SAMPLES = 10_000
UNIT = (0.0, 1.0)
_LIMIT = 1e100  # sums of squares stay finite


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


def read_columns(path: Path, names: Sequence[str]) -> list[list[float]]:
    """Columns of a CSV file with a header line. Raises `UserError` naming line and column."""
    reader = csv.DictReader(io.StringIO(read_user_text(path), newline=""))
    header = reader.fieldnames or []
    for name in names:
        if header.count(name) != 1:
            close = difflib.get_close_matches(name, header, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(header) or 'no header line'}"
            raise UserError(f"{path}: no column {name!r}; {hint}" if name not in header else _twice(path, name))
    columns: list[list[float]] = [[] for _ in names]
    try:
        for row in reader:
            if None in row:  # where csv puts what is beyond the header
                raise UserError(f"{path}:{reader.line_num}: more values than the header has columns; mend that row")
            for column, name in zip(columns, names):
                column.append(_number(row[name], f"{path}:{reader.line_num}: column {name}"))
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num + 1}: {error}; mend that row") from None
    if not columns[0]:
        raise UserError(f"{path}: no rows below the header; there is nothing to compare")
    return columns


def _twice(path: Path, name: str) -> str:
    return f"{path}: the column {name!r} stands twice in the header; rename one of them"


def _number(text: str | None, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not abs(value) < _LIMIT:
        raise UserError(f"{where}: {text!r} is no finite number below {_LIMIT:g}; mend or drop that row")
    return value
