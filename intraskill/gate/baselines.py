"""Masked against bare: the published regression and its two variants.

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

The solution itself is exact (see `stats.ols`); rounding dust of the rewards is read as 0 (see `gate.estimate`).
"""

from __future__ import annotations

import math

import numpy as np

from intraskill.core.errors import UserError
from intraskill.gate.estimate import Estimate, Matrix, dependence, without_dust
from intraskill.gate.table import RunTable, masks_of, rewards_of
from intraskill.stats.ols import OlsFit, RankDeficient, fit_ols


def paired_delta(table: RunTable) -> Estimate:
    """Each task's masked reward minus its own bare one."""
    return _fit(table, "paired_delta")


def mean_delta(table: RunTable) -> Estimate:
    """Each masked reward minus the mean of the bare ones."""
    return _fit(table, "mean_delta")


def adjusted(table: RunTable) -> Estimate:
    """Each masked reward minus the mean of the bare ones, its own bare one as a fitted control."""
    return _fit(table, "adjusted")


def _fit(table: RunTable, estimator: str) -> Estimate:
    pairs = table.pairs("bare", "masked")
    ids = table.interventions
    c = masks_of([masked for _, masked in pairs])
    b, r = rewards_of([bare for bare, _ in pairs]), rewards_of([masked for _, masked in pairs])
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
        raise dependence(error, [*ids, "(bare reward)"], len(c)) from None
    covariance, classical, hc3 = _errors(model, centred, gamma, len(ids))
    size, largest = len(ids), np.maximum(np.abs(r), np.abs(b))
    coefficients = without_dust(model.coefficients[:size], model.weights[:size], largest)
    return Estimate(
        estimator=estimator,
        coefficients=dict(zip(ids, coefficients)),
        standard_errors=dict(zip(ids, classical.tolist())),
        standard_errors_hc3=dict(zip(ids, hc3.tolist())),
        observations=len(c),
        tasks=len({masked.task for _, masked in pairs}),
        rank=size,
        covariance=covariance,
        control_slope=gamma,
    )


def _errors(model: OlsFit, centred: Matrix, gamma: float, size: int) -> tuple[Matrix, Matrix, Matrix]:
    """Classical covariance, classical and HC3 errors of the first `size` coefficients; the error of mean(B) counts."""
    n = len(centred)
    reach = model.weights[:size].sum(axis=1)  # how far a shift of all rows moves each coefficient
    slack = 1 - gamma
    scores = model.hc3_scores()[:size] - slack * np.outer(reach, centred) / n
    freedom = max(n - 1, 1)
    common = slack**2 * (centred @ centred) / freedom - 2 * slack * (model.residuals @ centred) / freedom
    variance = model.standard_errors[:size] ** 2 + reach**2 * common / n
    covariance = model.residual_variance * model.inverse[:size, :size] + np.outer(reach, reach) * common / n
    return covariance, np.sqrt(np.maximum(variance, 0.0)), np.sqrt((scores**2).sum(axis=1))
