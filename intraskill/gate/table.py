"""The evidence of a gate as one table: every scored episode with the mask it was shown.

A row says: this task, in this **run** (`bare`: nothing shown; `masked`, `mirror`: random masks; `equipped`: the whole
bank; any other name is fine), under this mask, earned this reward, at this checkpoint. Estimators take what they need
of it and need nothing else, so evidence of any origin can be fitted: as JSON,

    {"interventions": ["a", "b"],
     "runs": [{"task": "17", "run": "masked", "mask": [1, 0], "reward": 0.5}, ..]}

Rows may name a `checkpoint`; then the table names the one that is measured, and rows of others are earlier evidence on
the same tasks. Runs at another temperature are another question: they do not belong into the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from intraskill.core.errors import UserError
from intraskill.gate.design import Mask

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TableRow:
    """One scored episode. `checkpoint` None: the one that is measured."""

    task: str
    run: str
    mask: Mask
    reward: float
    checkpoint: str | None = None


@dataclass(frozen=True)
class RunTable:
    """`interventions` name the columns of every mask; rows stand in the order they are to be counted in."""

    interventions: tuple[str, ...]
    rows: tuple[TableRow, ...]

    @property
    def here(self) -> tuple[TableRow, ...]:
        """The rows of the checkpoint that is measured."""
        return tuple(row for row in self.rows if row.checkpoint is None)

    def pairs(self, first: str, second: str) -> list[tuple[TableRow, TableRow]]:
        """Each task's row of the one run with its row of the other, tasks in the order of `first`.

        A task that was repeated has several; they are paired in their order. Raises `UserError` for a task that has
        more rows of one run than of the other.
        """
        left, right = self._by_task(first), self._by_task(second)
        for name, rows in ((first, left), (second, right)):
            if not rows:
                raise UserError(f"runs: there is no {name} run; this estimator compares {first} with {second}")
        for task in [*left, *right]:
            counts = len(left.get(task, ())), len(right.get(task, ()))
            if counts[0] != counts[1]:
                raise UserError(
                    f"runs: task {task!r} has {counts[0]} {first} and {counts[1]} {second} rows; it needs as many of "
                    "both"
                )
        return [pair for task in left for pair in zip(left[task], right[task])]

    def _by_task(self, run: str) -> dict[str, list[TableRow]]:
        found: dict[str, list[TableRow]] = {}
        for row in self.here:
            if row.run == run:
                found.setdefault(row.task, []).append(row)
        return found


def masks_of(rows: Sequence[TableRow]) -> Matrix:
    return np.array([row.mask for row in rows], dtype=np.float64)


def rewards_of(rows: Sequence[TableRow]) -> Matrix:
    return np.array([row.reward for row in rows], dtype=np.float64)


def parse_table(record: Mapping[str, Any]) -> RunTable:
    """Check a decoded table. Raises `UserError` naming the row and the key."""
    ids = check_ids(record.get("interventions"))
    rows = record.get("runs")
    if not isinstance(rows, list) or not rows:
        raise UserError('runs: expected a list of {"task", "run", "mask", "reward"} rows, and at least one')
    current = _current(record.get("checkpoint"), rows)
    return RunTable(ids, tuple(_parse_row(row, f"runs[{i}]", len(ids), current) for i, row in enumerate(rows)))


def check_ids(ids: Any) -> tuple[str, ...]:
    """The interventions of a file. Raises `UserError` unless they are texts and differ."""
    if not isinstance(ids, list):
        raise UserError('observations: "interventions" is missing or not a list')
    if not ids:
        raise UserError("interventions is empty: there is no chunk to estimate")
    for position, name in enumerate(ids):
        if not isinstance(name, str) or not name:
            raise UserError(f"interventions[{position}] is {name!r}; an id is a text")
        if name in ids[:position]:
            raise UserError(f"interventions[{position}]: the id {name!r} stands there twice; ids must differ")
    return tuple(ids)


def check_mask(mask: Any, where: str, columns: int) -> Mask:
    """A mask of a file. Raises `UserError` unless it is a list of as many zeros and ones."""
    if not isinstance(mask, list | tuple) or len(mask) != columns:
        raise UserError(f"{where} must be a list of {columns} entries, one an intervention")
    for column, value in enumerate(mask):
        if isinstance(value, bool) or value not in (0, 1):
            raise UserError(f"{where}[{column}] is {value!r}; a mask entry is 0 or 1")
    return tuple(int(value) for value in mask)


def check_reward(value: Any, where: str) -> float:
    """A reward of a file. Raises `UserError` unless it is a finite number."""
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise UserError(f"{where} is {value!r}; a reward is a finite number")
    return float(value)


def _current(named: Any, rows: Sequence[Any]) -> Any:
    """The checkpoint that is measured: the one the table names, or the only one there is."""
    found = list(dict.fromkeys(row.get("checkpoint") for row in rows if isinstance(row, dict)))
    if named is None and len(found) <= 1:
        return found[0] if found else None
    if named is None:
        raise UserError(
            f'runs: rows of {len(found)} checkpoints; say which is measured: "checkpoint": "{found[-1]}" beside "runs"'
        )
    if named not in found and None not in found:
        raise UserError(f"checkpoint: no row is of {named!r}; the rows are of {', '.join(map(str, found))}")
    return named


def _parse_row(row: Any, where: str, columns: int, current: Any) -> TableRow:
    if not isinstance(row, dict):
        raise UserError(f"{where} must be an object, not {row!r}")
    for key in ("task", "run", "reward"):
        if key not in row:
            raise UserError(f'{where}: "{key}" is missing')
    task, run, checkpoint = row["task"], row["run"], row.get("checkpoint")
    if isinstance(task, bool) or not isinstance(task, (str, int)) or task == "":
        raise UserError(f"{where}: task is {task!r}; a task is named by a text or a whole number")
    if not isinstance(run, str) or not run:
        raise UserError(f"{where}: run is {run!r}; it must be a text such as bare or masked")
    if checkpoint is not None and not isinstance(checkpoint, str):
        raise UserError(f"{where}: checkpoint is {checkpoint!r}; it must be a text")
    mask = check_mask(row.get("mask", [0] * columns if run == "bare" else None), f"{where}: mask", columns)
    if run == "bare" and any(mask):
        raise UserError(f"{where}: a bare run shows nothing, but its mask is {list(mask)}; name the run otherwise")
    earlier = None if checkpoint in (None, current) else checkpoint
    return TableRow(str(task), run, mask, check_reward(row["reward"], f"{where}: reward"), earlier)
