"""What an estimator answers: each text's effect on the reward, and how well it is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from intraskill.core.errors import UserError
from intraskill.stats.ols import RankDeficient

Matrix = NDArray[np.float64]
DUST = 8 * np.finfo(np.float64).eps


@dataclass(frozen=True, slots=True)
class Estimate:
    """Main effects by intervention id, in the order of the columns; NaN = not determined.

    `covariance` (k, k) is the one that `standard_errors` are the roots of. `observations` are the rows that were
    fitted, `tasks` the tasks they belong to. `control_slope` is gamma where a bare reward served as a control.
    """

    estimator: str
    coefficients: dict[str, float]
    standard_errors: dict[str, float]
    standard_errors_hc3: dict[str, float]
    observations: int
    tasks: int
    rank: int
    covariance: Matrix = field(compare=False, repr=False)
    control_slope: float = math.nan


def estimate_record(estimate: Estimate) -> dict[str, Any]:
    """The estimate as JSON; a standard error that the data do not determine becomes null."""

    def finite(values: dict[str, float]) -> dict[str, float | None]:
        return {key: value if math.isfinite(value) else None for key, value in values.items()}

    return {
        "coefficients": estimate.coefficients,
        "standard_errors": finite(estimate.standard_errors),
        "standard_errors_hc3": finite(estimate.standard_errors_hc3),
        "observations": estimate.observations,
        "rank": estimate.rank,
    }


def without_dust(coefficients: Matrix, weights: Matrix, largest: Matrix) -> list[float]:
    """The coefficients, with exactly 0 for what may be nothing but the rounding of rewards.

    A reward is a double, the outcome of a few rounded operations, so it is known to within a few units in the last
    place; a coefficient, whose row of `weights` (k, n) it comes from, is then known only to within
    8 eps sum_i |P_ji| max |R_i|. `largest` (n,) are the rewards' sizes. No chunk passes a gate on the last bit of a
    division.
    """
    known_to = DUST * (np.abs(weights) @ np.abs(largest))
    return np.where(np.abs(coefficients) <= known_to, 0.0, coefficients).tolist()


def dependence(error: RankDeficient, names: Sequence[str], rows: int) -> UserError:
    """The error of a design whose columns cannot be told apart, naming them."""
    involved = ", ".join(names[column] for column in error.columns)
    return UserError(
        f"design: rank {error.rank}, these columns cannot be told apart over {rows} rows: {involved}; "
        "add rows with other masks or drop a column"
    )
