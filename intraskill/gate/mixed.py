"""Everything a gate knows at once: all runs, the tasks as random effects, and how they went at earlier checkpoints.

    R_it = level + C_it' beta + Z_i' gamma + u_i + e_it

C_it is the mask of task i in run t (nothing in the bare run), u_i what is special about the task, and Z_i how it went
at each earlier checkpoint: its mean reward there, which explains part of u_i. `stats.panel` says how that is fitted.

Main effects are assumed to add up, and runs at the corners (bare, equipped) lean on that more than random masks do.
Where the interaction check says that pairs matter, prefer `foldover`.
"""

from __future__ import annotations

import numpy as np

from intraskill.core.errors import UserError
from intraskill.gate.estimate import Estimate, Matrix, dependence, without_dust
from intraskill.gate.table import RunTable, masks_of, rewards_of
from intraskill.stats.ols import RankDeficient, fit_ols
from intraskill.stats.panel import random_effects


def mixed(table: RunTable) -> Estimate:
    """Main effects from all rows of this checkpoint; rows of earlier ones serve as covariates of their tasks."""
    rows, ids = table.here, table.interventions
    if not rows:
        raise UserError("runs: there is no row of the checkpoint that is measured")
    design, rewards = np.column_stack([masks_of(rows), np.ones(len(rows))]), rewards_of(rows)
    try:
        fit_ols(design, rewards)
    except RankDeficient as error:
        raise dependence(error, [*ids, "(level)"], len(rows)) from None
    tasks, size = [row.task for row in rows], len(ids)
    fitted = random_effects(with_history(table, design), rewards, tasks)
    covariance = fitted.covariance[:size, :size]
    return Estimate(
        estimator="mixed",
        coefficients=dict(zip(ids, without_dust(fitted.coefficients[:size], fitted.weights[:size], rewards))),
        standard_errors=dict(zip(ids, np.sqrt(np.diag(covariance)).tolist())),
        standard_errors_hc3=dict(zip(ids, fitted.standard_errors_hc3[:size].tolist())),
        observations=len(rows),
        tasks=len(set(tasks)),
        rank=size,
        covariance=covariance,
    )


def with_history(table: RunTable, design: Matrix) -> Matrix:
    """The design of this checkpoint's rows with a column for each earlier checkpoint that tells tasks apart.

    A task's entry is its mean reward there, less the mean of all tasks; 0 for a task that was not run there.
    """
    rank = np.linalg.matrix_rank(design)
    for checkpoint in dict.fromkeys(row.checkpoint for row in table.rows if row.checkpoint is not None):
        rewards: dict[str, list[float]] = {}
        for row in table.rows:
            if row.checkpoint == checkpoint:
                rewards.setdefault(row.task, []).append(row.reward)
        means = {task: float(np.mean(values)) for task, values in rewards.items()}
        level = float(np.mean(list(means.values())))
        column = np.array([means.get(row.task, level) - level for row in table.here])
        wider = np.column_stack([design, column])
        if np.linalg.matrix_rank(wider) > rank:
            design, rank = wider, rank + 1
    return design
