"""A task under a mask against the same task under the mask's mirror.

Tasks differ in difficulty far more than chunks differ in effect, and half of a reward's variance is the task's own. A
**fold-over** removes it by design: each task is run under a mask C and under its mirror C' (what was shown is absent
and the other way round), and the effects are read from the difference inside the task,

    R_i(C) - R_i(C') = (C_i - C_i')' beta + error_i

without an intercept: a task's difficulty cancels, and so do all interactions of an even number of chunks, which are the
same under a mask and under its mirror. The columns are -1, 0 and 1, nearly orthogonal, with half the spread of what the
published design has to tell apart, so at equal episodes the standard error is .5 to .7 of the published one's.

Rows of equal masks say nothing and are dropped. A task that was repeated has several rows: standard errors are
clustered by task; HC3 stands beside them.
"""

from __future__ import annotations

import numpy as np

from intraskill.core.errors import UserError
from intraskill.gate.estimate import Estimate, dependence, without_dust
from intraskill.gate.table import RunTable, masks_of, rewards_of
from intraskill.stats.clustered import clustered_covariance
from intraskill.stats.ols import RankDeficient, fit_ols


def foldover(table: RunTable) -> Estimate:
    """No-intercept least squares of reward(masked) - reward(mirror) on mask(masked) - mask(mirror)."""
    pairs = [(one, other) for one, other in table.pairs("masked", "mirror") if one.mask != other.mask]
    if not pairs:
        raise UserError("runs: every mask equals its mirror, so nothing can be told apart; mirror the masks")
    ids, tasks = table.interventions, [one.task for one, _ in pairs]
    left, right = ([pair[side] for pair in pairs] for side in (0, 1))
    contrasts = masks_of(left) - masks_of(right)
    with np.errstate(over="ignore"):
        differences = rewards_of(left) - rewards_of(right)
    if not np.all(np.isfinite(differences)):
        raise UserError("masked and mirror: rewards too large to be subtracted; scale them down")
    try:
        model = fit_ols(contrasts, differences)
    except RankDeficient as error:
        raise dependence(error, ids, len(pairs)) from None
    covariance = clustered_covariance(contrasts, differences, tasks)
    largest = np.maximum(np.abs(rewards_of(left)), np.abs(rewards_of(right)))
    return Estimate(
        estimator="foldover",
        coefficients=dict(zip(ids, without_dust(model.coefficients, model.weights, largest))),
        standard_errors=dict(zip(ids, np.sqrt(np.diag(covariance)).tolist())),
        standard_errors_hc3=dict(zip(ids, model.standard_errors_hc3.tolist())),
        observations=len(pairs),
        tasks=len(set(tasks)),
        rank=len(ids),
        covariance=covariance,
    )
