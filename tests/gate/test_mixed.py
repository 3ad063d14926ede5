"""All evidence at once: tasks as random effects, and how they went before."""

from dataclasses import replace

import numpy as np
import pytest

from intraskill.core.errors import UserError
from intraskill.gate.estimators import fit
from intraskill.gate.mixed import with_history
from intraskill.gate.table import RunTable, TableRow, masks_of

EFFECTS = np.array([0.15, 0.0, -0.1])


def simulated(tasks, seed, *, earlier=0, noise=0.3, spread=0.5):
    """Runs of one checkpoint, and `earlier` bare runs of the same tasks at others."""
    random = np.random.default_rng(seed)
    levels = spread * random.normal(size=tasks)
    rows = []

    def add(task, run, mask, checkpoint=None):
        reward = levels[task] + np.array(mask) @ EFFECTS + noise * random.normal()
        rows.append(TableRow(str(task), run, tuple(int(bit) for bit in mask), float(reward), checkpoint))

    for task in range(tasks):
        mask = random.integers(2, size=3)
        add(task, "bare", (0, 0, 0))
        add(task, "masked", mask)
        add(task, "mirror", 1 - mask)
        for number in range(earlier):
            add(task, "bare", (0, 0, 0), f"step-{number:04d}")
    return RunTable(("a", "b", "c"), tuple(rows))


def only(table, *runs):
    return RunTable(table.interventions, tuple(row for row in table.rows if row.checkpoint or row.run in runs))


def spread(name, tables):
    return np.std([fit(table, name).coefficients["b"] for table in tables])


def test_it_is_generalised_least_squares_with_the_variances_it_found():
    table = simulated(60, 1)
    estimate = fit(table, "mixed")
    design = np.column_stack([masks_of(table.rows), np.ones(len(table.rows))])
    rewards = np.array([row.reward for row in table.rows])
    best = None
    for share in np.linspace(0.0, 0.99, 100):  # any block-diagonal covariance of this shape, by share of the task
        block = np.linalg.inv((1 - share) * np.eye(3) + share * np.ones((3, 3)))
        weight = np.kron(np.eye(60), block)
        solved = np.linalg.solve(design.T @ weight @ design, design.T @ weight @ rewards)[:3]
        error = np.abs(solved - np.array(list(estimate.coefficients.values()))).max()
        best = error if best is None else min(best, error)
    assert best < 2e-3


def test_every_run_adds_what_it_knows():
    tables = [simulated(80, seed) for seed in range(60)]
    alone = spread("mixed", [only(table, "masked") for table in tables])
    two = spread("mixed", [only(table, "masked", "mirror") for table in tables])
    three = spread("mixed", tables)
    assert two < 0.6 * alone
    assert three < 1.02 * two


def test_how_the_tasks_went_before_sharpens_a_masked_run():
    tables = [only(simulated(80, seed, earlier=3), "masked") for seed in range(60)]
    forgotten = [RunTable(table.interventions, table.here) for table in tables]
    assert spread("mixed", tables) < 0.75 * spread("mixed", forgotten)


def test_history_that_tells_nothing_apart_is_left_out():
    table = simulated(20, 1, earlier=1)
    design = np.column_stack([masks_of(table.here), np.ones(len(table.here))])
    assert with_history(table, design).shape[1] == 5
    flat = RunTable(table.interventions, tuple(replace(r, reward=0.5) if r.checkpoint else r for r in table.rows))
    assert with_history(flat, design).shape[1] == 4
    twice = RunTable(
        table.interventions, (*table.rows, *(replace(r, checkpoint="copy") for r in table.rows if r.checkpoint))
    )
    assert with_history(twice, design).shape[1] == 5


def test_a_task_that_was_not_run_before_counts_as_an_average_one():
    table = simulated(30, 1, earlier=1)
    partly = RunTable(table.interventions, tuple(r for r in table.rows if not r.checkpoint or r.task != "3"))
    design = np.column_stack([masks_of(table.here), np.ones(len(table.here))])
    column = with_history(partly, design)[:, -1]
    assert set(column[[row.task == "3" for row in table.here]]) == {0.0}


def test_what_cannot_be_told_apart_is_named():
    rows = [TableRow(str(task), "masked", (1, 1), 0.5) for task in range(5)]
    with pytest.raises(UserError, match="cannot be told apart over 5 rows: "):
        fit(RunTable(("a", "b"), tuple(rows)), "mixed")
    earlier = RunTable(("a",), (TableRow("x", "bare", (0,), 1.0, "step-0000"),))
    with pytest.raises(UserError, match="no row of the checkpoint that is measured"):
        fit(earlier, "mixed")
