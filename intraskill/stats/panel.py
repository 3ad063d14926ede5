"""Regression with a random effect for each group of rows, such as the several episodes of one task.

    y_it = x_it' b + u_i + e_it

Generalised least squares weighs what is compared inside a group against what is compared between groups by how much
groups differ. It is done as panel econometrics does it: from every row a share theta_i of its group's mean is taken,

    theta_i = 1 - sqrt(v_e / (v_e + T_i v_u)),    T_i rows of group i,

with v_e from the regression inside groups and v_u from what ordinary least squares leaves between them (never below 0).
Ordinary least squares of these rows follows. Its standard errors are clustered by group, so that they do not rest on
v_e and v_u being right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from intraskill.stats.clustered import clustered_covariance

Matrix = NDArray[np.float64]
_LEAST_INSIDE = 1e-9  # of the whole variance: rows that the model fits exactly leave the level undetermined otherwise


@dataclass(frozen=True, slots=True)
class PanelFit:
    """k coefficients, n rows. `weights` (k, n) are what the rows' deviations count in each coefficient.

    `group_share` is the share of the unexplained variance that is the groups'.
    """

    coefficients: Matrix
    covariance: Matrix
    standard_errors_hc3: Matrix
    weights: Matrix
    group_share: float


def random_effects(design: Matrix, target: Matrix, groups: Sequence[str]) -> PanelFit:
    """Fit target (n,) on design (n, k) of full rank, an intercept among its columns; `groups` names each row's."""
    from statsmodels.regression.linear_model import OLS

    labels = np.unique(np.asarray(groups), return_inverse=True)[1]
    counts = np.bincount(labels)
    total = _residual_variance(design, target)
    inside = max(_variance_inside(design, target, labels, counts), _LEAST_INSIDE * total)
    between = max(0.0, total - inside)
    theta = 1 - np.sqrt(inside / (inside + counts * between)) if between else np.zeros(len(counts))
    rows = _without(design, theta, labels, counts)
    values = _without(target[:, None], theta, labels, counts)[:, 0]
    fitted = OLS(values, rows).fit()
    with np.errstate(divide="ignore", invalid="ignore"):
        hc3 = np.asarray(fitted.HC3_se, dtype=np.float64)
    return PanelFit(
        coefficients=np.asarray(fitted.params, dtype=np.float64),
        covariance=clustered_covariance(rows, values, groups),
        standard_errors_hc3=np.where(np.isfinite(hc3), hc3, np.nan),
        weights=np.asarray(fitted.model.pinv_wexog, dtype=np.float64),
        group_share=between / (inside + between) if between else 0.0,
    )


def _variance_inside(design: Matrix, target: Matrix, labels: NDArray[np.int64], counts: NDArray[np.int64]) -> float:
    """Residual variance of the rows' deviations from their group's mean; of all rows where groups have one row each."""
    whole = np.ones(len(counts))
    rows = _without(design, whole, labels, counts)
    values = _without(target[:, None], whole, labels, counts)[:, 0]
    solution, _, rank, _ = np.linalg.lstsq(rows, values, rcond=None)
    freedom = len(target) - len(counts) - int(rank)
    if freedom <= 0:
        return _residual_variance(design, target)
    return float(np.sum((values - rows @ solution) ** 2)) / freedom


def _residual_variance(design: Matrix, target: Matrix) -> float:
    solution, _, rank, _ = np.linalg.lstsq(design, target, rcond=None)
    freedom = len(target) - int(rank)
    return float(np.sum((target - design @ solution) ** 2)) / freedom if freedom > 0 else 0.0


def _without(columns: Matrix, share: Matrix, labels: NDArray[np.int64], counts: NDArray[np.int64]) -> Matrix:
    """The columns (n, k) less `share` (by group) of their group's mean."""
    sums = np.zeros((len(counts), columns.shape[1]))
    np.add.at(sums, labels, columns)
    return columns - (share / counts)[labels, None] * sums[labels]
