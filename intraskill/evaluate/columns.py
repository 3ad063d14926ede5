"""Columns of numbers from a plain CSV file."""

from __future__ import annotations

import csv
import difflib
import io
import math
from collections.abc import Sequence
from pathlib import Path

from intraskill.core.errors import UserError
from intraskill.storage.user_files import read_user_text

_LIMIT = 1e100  # sums of squares stay finite


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
