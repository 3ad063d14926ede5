"""What is each chunk worth at this checkpoint? The gate's regression.

Every validation task is run twice with the same weights: once bare (reward B_i), once under a random mask C_i of the
bank's chunks (reward R_i). Masks are drawn independently of everything else, so the main effects beta of

    R_i - (baseline_i) = C_i' beta + error_i

are causal: beta_j is the reward gained by showing chunk j, averaged over the other chunks' states. There is no
intercept, the 0/1 columns are not centred and all-zero masks stay in: a mask that shows nothing *is* the bare
condition, so its expected difference is 0 by construction, and centring would spend that knowledge. Three baselines:

- `paired_delta`  baseline_i = B_i. Each task is its own control. Published, default.
- `mean_delta`    baseline_i = mean(B). Better when a task's two rewards hardly correlate: subtracting B_i then adds
                  its noise. (With correlation r, pairing pays off above r = 1/2.)
- `adjusted`      baseline_i = mean(B) + gamma (B_i - mean(B)), gamma fitted together with beta: the control variate
                  between the two. gamma = 1 is the first, gamma = 0 the second.

The last two use mean(B) for the unknown expected bare reward, one number shared by all rows. Its error is
part of beta's: with P = (X'X)^-1 X', beta_j contains -(1 - gamma) (sum_i P_ji) mean(B), so row i contributes
P_ji e_i - (1 - gamma) (sum_l P_jl) (B_i - mean(B)) / n to beta_j's error. HC3 sums the squares of these with
e_i / (1 - h_i); the classical error adds (sum_l P_jl)^2 ((1 - gamma)^2 var B - 2 (1 - gamma) cov(e, B)) / n to the
usual s^2 (X'X)^-1_jj. For `paired_delta` (gamma = 1) both are the textbook formulas.

Rounding dust is zero. The solution itself is exact (see `stats.ols`), but a reward is a double, the outcome of a few
rounded operations, so it is known to within a few units in the last place; beta_j is then known only to within
8 eps sum_i |P_ji| max(|R_i|, |B_i|). A coefficient inside that bound (about 1e-14) is reported as exactly 0, so that
no chunk passes the gate on the last bit of a division.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intraskill.core.errors import UserError
from intraskill.stats.ols import Matrix, OlsFit, RankDeficient, fit_ols

ESTIMATORS = ("paired_delta", "mean_delta", "adjusted")
_DUST = 8 * np.finfo(np.float64).eps


@dataclass(frozen=True, slots=True)
class Estimate:
    """Main effects by intervention id. `control_slope` is gamma: 1, 0, or as fitted. NaN = not determined."""

    estimator: str
    coefficients: dict[str, float]
    standard_errors: dict[str, float]
    standard_errors_hc3: dict[str, float]
    observations: int
    rank: int
    control_slope: float
    bare_mean: float
    masked_mean: float

    @property
    def delta_mean(self) -> float:
        return self.masked_mean - self.bare_mean


def fit(
    design: Sequence[Sequence[int]],
    bare: Sequence[float],
    masked: Sequence[float],
    ids: Sequence[str],
    estimator: str = "paired_delta",
) -> Estimate:
    """Fit the gate's regression: design (n rows of 0/1, one column an id), rewards of the n tasks, bare and masked."""
    if estimator not in ESTIMATORS:
        raise UserError(f"estimator {estimator!r} is unknown; choose one of {', '.join(ESTIMATORS)}")
    c = _design(design, ids)
    b, r = _rewards(bare, "bare", len(c)), _rewards(masked, "masked", len(c))
    with np.errstate(over="ignore"):
        if not np.all(np.isfinite(r - b)):
            raise UserError("bare and masked: rewards too large to be subtracted; scale them down")
    b_mean = float(b[0]) if np.all(b == b[0]) else math.fsum(b) / len(b)
    centred = b - b_mean
    try:
        if estimator == "adjusted" and np.any(centred):
            model = fit_ols(np.column_stack([c, centred]), r - b_mean)
            gamma = float(model.coefficients[-1])
        else:  # a constant bare reward explains nothing: its slope is left at 0
            model = fit_ols(c, r - b if estimator == "paired_delta" else r - b_mean)
            gamma = 1.0 if estimator == "paired_delta" else 0.0
    except RankDeficient as error:
        raise UserError(_dependence(error, [*ids, "(bare reward)"], len(c))) from None
    classical, hc3 = _standard_errors(model, centred, gamma, len(ids))
    return Estimate(
        estimator=estimator,
        coefficients=dict(zip(ids, _without_dust(model, r, b, len(ids)))),
        standard_errors=dict(zip(ids, classical.tolist())),
        standard_errors_hc3=dict(zip(ids, hc3.tolist())),
        observations=len(c),
        rank=len(ids),
        control_slope=gamma,
        bare_mean=b_mean,
        masked_mean=math.fsum(r) / len(r),
    )


def fit_observations(record: Any, estimator: str = "paired_delta") -> Estimate:
    """`fit` on a decoded observations file: {"interventions", "design", "bare", "masked"}."""
    if not isinstance(record, dict):
        raise UserError("observations: expected a JSON object with interventions, design, bare, masked")
    for key in ("interventions", "design", "bare", "masked"):
        if not isinstance(record.get(key), list):
            raise UserError(f'observations: "{key}" is missing or not a list')
    return fit(record["design"], record["bare"], record["masked"], record["interventions"], estimator)


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


def _standard_errors(model: OlsFit, centred: Matrix, gamma: float, size: int) -> tuple[Matrix, Matrix]:
    """Classical and HC3 errors of the first `size` coefficients, the error of mean(B) included."""
    n = len(centred)
    reach = model.weights[:size].sum(axis=1)  # how far a shift of all rows moves each coefficient
    slack = 1 - gamma
    scores = model.hc3_scores()[:size] - slack * np.outer(reach, centred) / n
    freedom = max(n - 1, 1)
    common = slack**2 * (centred @ centred) / freedom - 2 * slack * (model.residuals @ centred) / freedom
    variance = model.standard_errors[:size] ** 2 + reach**2 * common / n
    return np.sqrt(np.maximum(variance, 0.0)), np.sqrt((scores**2).sum(axis=1))


def _without_dust(model: OlsFit, masked: Matrix, bare: Matrix, size: int) -> list[float]:
    known_to = _DUST * (np.abs(model.weights[:size]) @ np.maximum(np.abs(masked), np.abs(bare)))
    coefficients = model.coefficients[:size]
    return np.where(np.abs(coefficients) <= known_to, 0.0, coefficients).tolist()


def _design(design: Sequence[Sequence[int]], ids: Sequence[str]) -> Matrix:
    if not len(ids):
        raise UserError("interventions is empty: there is no chunk to estimate")
    for position, name in enumerate(ids):
        if not isinstance(name, str) or not name:
            raise UserError(f"interventions[{position}] is {name!r}; an id is a text")
        if name in ids[:position]:
            raise UserError(f"interventions[{position}]: the id {name!r} stands there twice; ids must differ")
    if not len(design):
        raise UserError("design is empty: there are no observations")
    for i, row in enumerate(design):
        if not hasattr(row, "__len__") or isinstance(row, str) or len(row) != len(ids):
            raise UserError(f"design[{i}] must be a list of {len(ids)} entries, one an intervention")
        for j, value in enumerate(row):
            if isinstance(value, bool) or value not in (0, 1):
                raise UserError(f"design[{i}][{j}] is {value!r}; a mask entry is 0 or 1")
    return np.array(design, dtype=np.float64)


def _rewards(values: Sequence[float], name: str, n: int) -> Matrix:
    if len(values) != n:
        raise UserError(f"{name} has {len(values)} rewards but design has {n} rows; each row needs one")
    for i, value in enumerate(values):
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise UserError(f"{name}[{i}] is {value!r}; a reward is a finite number")
    return np.array(values, dtype=np.float64)


def _dependence(error: RankDeficient, names: Sequence[str], n: int) -> str:
    involved = ", ".join(names[column] for column in error.columns)
    return (
        f"design: rank {error.rank}, these columns cannot be told apart over {n} rows: {involved}; "
        "add rows with other masks or drop a column"
    )
