"""Ordinary least squares without an intercept, solved exactly, with classical and HC3 standard errors.

The gate asks small questions (some 20 columns of zeros and ones, some hundred rows) and hangs a decision on the
sign of each answer, so rounding must not decide. Every double is a fraction with a power-of-two denominator;
the normal equations X'X b = X'y are therefore solved in rational arithmetic and rounded once, at the end. That also
makes the rank exact, and names the columns that depend on each other instead of guessing from a tolerance.

Standard errors: with P = (X'X)^-1 X' and residuals e,

    classical   var b_j = s^2 (X'X)^-1_jj,  s^2 = e'e / (n - k)          (equal noise everywhere)
    HC3         var b_j = sum_i P_ji^2 (e_i / (1 - h_i))^2                (noise may differ by row)

where h_i is row i's leverage. Both are NaN where the data do not determine them: no degree of freedom left, or one
row alone pins a coefficient down (h_i = 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


class RankDeficient(ValueError):
    """Some columns are linear combinations of others; `columns` holds the positions of all that are involved."""

    def __init__(self, rank: int, columns: tuple[int, ...]) -> None:
        super().__init__(f"rank {rank}; dependent columns {columns}")
        self.rank = rank
        self.columns = columns


@dataclass(frozen=True, slots=True)
class OlsFit:
    """Shapes: k coefficients, n rows. `weights` is P (k, n): coefficients = weights @ target."""

    coefficients: Matrix
    residuals: Matrix
    leverages: Matrix
    weights: Matrix
    inverse: Matrix  # (X'X)^-1
    residual_variance: float  # s^2, NaN without a degree of freedom

    @property
    def standard_errors(self) -> Matrix:
        return np.sqrt(self.residual_variance * np.diag(self.inverse))

    @property
    def standard_errors_hc3(self) -> Matrix:
        return np.sqrt((self.hc3_scores() ** 2).sum(axis=1))

    def hc3_scores(self) -> Matrix:
        """(k, n): each row's share in each coefficient's error, P_ji e_i / (1 - h_i)."""
        certain = self.leverages > 1 - 1e-9
        left_out = self.residuals / np.where(certain, np.nan, 1 - self.leverages)
        scores = self.weights * np.where(certain, 0.0, left_out)
        pinned = np.abs(self.weights[:, certain]) > 1e-12  # the rows that are NaN only matter where they weigh
        scores[:, certain] = np.where(pinned, np.nan, 0.0)
        return scores


def fit_ols(design: Matrix, target: Matrix) -> OlsFit:
    """Regress target (n,) on design (n, k), no intercept. Raises `RankDeficient`."""
    rows, columns = design.shape
    gram, moments = _normal_equations(design, target)
    identity = [[Fraction(int(i == j)) for j in range(columns)] for i in range(columns)]
    solved = _solve(gram, [[moments[i], *identity[i]] for i in range(columns)])
    coefficients = np.array([float(row[0]) for row in solved])
    inverse = np.array([[float(value) for value in row[1:]] for row in solved]).reshape(columns, columns)
    weights = inverse @ design.T
    residuals = target - design @ coefficients
    freedom = rows - columns
    return OlsFit(
        coefficients=coefficients,
        residuals=residuals,
        leverages=np.einsum("ij,ji->i", design, weights),
        weights=weights,
        inverse=inverse,
        residual_variance=float(residuals @ residuals) / freedom if freedom > 0 else float("nan"),
    )


def _normal_equations(design: Matrix, target: Matrix) -> tuple[list[list[Fraction]], list[Fraction]]:
    """X'X and X'y without rounding: doubles become integers over a common power of two, one scale a side."""
    integers, scale = _as_integers(design)
    target_integers, target_scale = _as_integers(target)
    gram = integers.T @ integers
    moments = integers.T @ target_integers
    size = design.shape[1]
    return (
        [[Fraction(gram[i, j], scale * scale) for j in range(size)] for i in range(size)],
        [Fraction(moments[i], scale * target_scale) for i in range(size)],
    )


def _as_integers(values: Matrix) -> tuple[NDArray[np.object_], int]:
    """Integers m and a power of two s with values = m / s, exactly."""
    ratios = [float(value).as_integer_ratio() for value in values.ravel()]
    scale = max((denominator for _, denominator in ratios), default=1)
    integers = np.empty(len(ratios), dtype=object)
    integers[:] = [numerator * (scale // denominator) for numerator, denominator in ratios]
    return integers.reshape(values.shape), scale


def _solve(matrix: list[list[Fraction]], right: list[list[Fraction]]) -> list[list[Fraction]]:
    """Gauss-Jordan elimination over the rationals; `matrix` is symmetric. Raises `RankDeficient`."""
    size = len(matrix)
    work = [[*matrix[i], *right[i]] for i in range(size)]
    pivots: list[int] = []
    for column in range(size):
        top = len(pivots)
        found = next((i for i in range(top, size) if work[i][column]), None)
        if found is None:
            continue
        work[top], work[found] = work[found], work[top]
        pivot = work[top][column]
        work[top] = [value / pivot for value in work[top]]
        for i in range(size):
            factor = work[i][column]
            if i != top and factor:
                work[i] = [value - factor * lead for value, lead in zip(work[i], work[top])]
        pivots.append(column)
    if len(pivots) < size:
        free = [column for column in range(size) if column not in pivots]
        bound = [pivots[i] for i in range(len(pivots)) if any(work[i][column] for column in free)]
        raise RankDeficient(len(pivots), tuple(sorted(free + bound)))
    return [row[size:] for row in work]
