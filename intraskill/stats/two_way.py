"""Differences over seeds and tasks: how much of their spread is training, tasks, and chance.

Two arms are trained once a seed, and every trained pair is evaluated on the same tasks. The paired differences form a
table, one row a seed and one column a task, and follow the mixed model

    d[s, t] = effect + training[s] + task[t] + rest[s, t]

with a variance for each of the three. Another seed would have drawn another `training`, another sample of tasks
another `task`; an interval that ignores either is too short. In a full table the model's estimates are closed forms
of the three mean squares of a two-way analysis of variance (row, column, rest), and the variance of the mean is

    (row + column - rest) / (S T)  =  training/S + task/T + rest/(S T)

with Satterthwaite's degrees of freedom: near S - 1 where training dominates, far more where tasks do. Two readings:

- `standard_error` lets a component come out below zero, and is unbiased: the bootstrap is scaled to it;
- `mixed_model` holds components at zero or above, which in a full table is restricted maximum likelihood (REML). It
  is the cross-check: where the two disagree much, the table is too small or too skewed to trust either.

One seed says nothing of how another training would have gone, so there is no interval over training: `NoInterval`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

Matrix = NDArray[np.float64]

ONE_SEED = (
    "one seed says nothing of how another training would have gone, so there is no interval over training; train more "
    "seeds, or ask about these fixed checkpoints with paired_hoeffding"
)
ONE_TASK = "one task says nothing of other tasks; evaluate on more"
NO_SPREAD = "the differences do not vary, so their spread cannot be judged; paired_hoeffding needs none"
_DUST = 1e-12  # relative: subtracting leaves differences that differ by rounding alone


class NoInterval(ValueError):
    """The data do not determine an interval; the text is the reason, for the reader of a report."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean difference with its standard error, read against Student's t with `freedom` degrees of freedom."""

    effect: float
    standard_error: float
    freedom: float

    def interval(self, alpha: float) -> tuple[float, float]:
        radius = t_reach(alpha, self.freedom) * self.standard_error
        return self.effect - radius, self.effect + radius

    def p_above(self, value: float) -> float:
        """One-sided p-value against `the true difference is at most value`."""
        return float(stdtr(self.freedom, (value - self.effect) / self.standard_error))

    def p_below(self, value: float) -> float:
        """One-sided p-value against `the true difference is at least value`."""
        return float(stdtr(self.freedom, (self.effect - value) / self.standard_error))

    def p_value(self, value: float = 0.0) -> float:
        """Two-sided p-value against `the true difference is value`."""
        return 2 * min(self.p_above(value), self.p_below(value))


@dataclass(frozen=True, slots=True)
class Components:
    """Variances of one paired difference: between trainings, between tasks, and the rest."""

    training: float
    task: float
    rest: float


@dataclass(frozen=True, slots=True)
class TwoWay:
    """The mean squares of a full table of `seeds` x `tasks` differences."""

    seeds: int
    tasks: int
    effect: float
    row: float
    column: float
    rest: float

    @property
    def cells(self) -> int:
        return self.seeds * self.tasks

    @property
    def unbiased(self) -> Estimate:
        """The mean with the unbiased variance, never below the smaller of row and column."""
        return _estimate(self.effect, self.seeds, self.tasks, (self.row, self.column, self.rest))

    @property
    def mixed_model(self) -> Estimate:
        """The mean with its REML variance."""
        return _estimate(self.effect, self.seeds, self.tasks, self._pooled())

    @property
    def components(self) -> Components:
        """The REML variances, none below zero."""
        row, column, rest = self._pooled()
        return Components((row - rest) / self.tasks, (column - rest) / self.seeds, rest)

    def _pooled(self) -> tuple[float, float, float]:
        """Mean squares in the order the model demands: a row or column below the rest is pooled with it."""
        row_freedom, column_freedom = self.seeds - 1, self.tasks - 1
        squares = {"row": (self.row, row_freedom), "column": (self.column, column_freedom)}
        rest, freedom = self.rest, row_freedom * column_freedom
        for name, (square, own) in sorted(squares.items(), key=lambda item: item[1][0]):
            if square < rest:
                rest, freedom = (square * own + rest * freedom) / (own + freedom), own + freedom
                squares[name] = (rest, own)
        return max(squares["row"][0], rest), max(squares["column"][0], rest), rest


def two_way(differences: Matrix) -> TwoWay:
    """The analysis of variance of differences (S, T). Raises `NoInterval` for one seed, one task, or no spread."""
    seeds, tasks = differences.shape
    if seeds < 2:
        raise NoInterval(ONE_SEED)
    if tasks < 2:
        raise NoInterval(ONE_TASK)
    if np.ptp(differences) <= _DUST * np.abs(differences).max():
        raise NoInterval(NO_SPREAD)
    effect = float(differences.mean())
    rows = differences.mean(axis=1) - effect
    columns = differences.mean(axis=0) - effect
    rest = differences - effect - rows[:, None] - columns
    return TwoWay(
        seeds=seeds,
        tasks=tasks,
        effect=effect,
        row=tasks * float(rows @ rows) / (seeds - 1),
        column=seeds * float(columns @ columns) / (tasks - 1),
        rest=float((rest**2).sum()) / ((seeds - 1) * (tasks - 1)),
    )


def satterthwaite(seeds: int, tasks: int, squares: tuple[float, float, float]) -> tuple[float, float]:
    """(standard error, degrees of freedom) of the mean of a table with the mean squares (row, column, rest)."""
    row, column, rest = squares
    total = max(row + column - rest, min(row, column))
    if total <= 0:
        raise NoInterval(NO_SPREAD)
    freedoms = (seeds - 1, tasks - 1, (seeds - 1) * (tasks - 1))
    spread = sum((square / total) * (square / total) / own for square, own in zip(squares, freedoms))
    return math.sqrt(total / (seeds * tasks)), max(1 / spread, min(freedoms))


def t_reach(alpha: float, freedom: float) -> float:
    """How many standard errors a two-sided interval of level 1 - alpha reaches to each side."""
    return -float(stdtrit(freedom, alpha / 2))


def _estimate(effect: float, seeds: int, tasks: int, squares: tuple[float, float, float]) -> Estimate:
    return Estimate(effect, *satterthwaite(seeds, tasks, squares))
