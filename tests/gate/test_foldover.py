"""The contrast inside a task: what it is to the last bit, and that it is as good as it says."""

import numpy as np
import pytest
import statsmodels.api as sm

from intraskill.core.errors import UserError
from intraskill.gate.estimate import estimate_record
from intraskill.gate.estimators import fit
from intraskill.gate.table import RunTable, TableRow


def simulated(effects, tasks, seed, *, spread=0.8, pair=0.0, repeats=1):
    """Rewards of 0 and 1: a task's own success rate, the effects of what is shown, an interaction of the first two."""
    random = np.random.default_rng(seed)
    effects, rows = np.array(effects), []
    for task in range(tasks):
        level = 0.45 + spread * (random.random() - 0.5) - effects.sum() / 2

        def reward(mask, level=level):
            chance = level + mask @ effects + (pair * mask[0] * mask[1] if pair else 0.0)
            return float(random.random() < chance)

        rows.append(TableRow(str(task), "bare", (0,) * len(effects), reward(np.zeros(len(effects)))))
        for _ in range(repeats):
            mask = random.integers(2, size=len(effects))
            for run, shown in (("masked", mask), ("mirror", 1 - mask)):
                rows.append(TableRow(str(task), run, tuple(int(bit) for bit in shown), reward(shown)))
    return RunTable(tuple(f"c{i}" for i in range(len(effects))), tuple(rows))


def contrast(table):
    pairs = table.pairs("masked", "mirror")
    design = np.array([one.mask for one, _ in pairs], float) - np.array([other.mask for _, other in pairs], float)
    return design, np.array([one.reward - other.reward for one, other in pairs]), [one.task for one, _ in pairs]


@pytest.mark.parametrize("repeats", [1, 2])
def test_it_is_the_textbook_regression_with_errors_clustered_by_task(repeats):
    table = simulated([0.2, -0.1, 0.0], 150, 3, repeats=repeats)
    design, difference, tasks = contrast(table)
    estimate = fit(table, "foldover")
    plain = sm.OLS(difference, design).fit()
    clustered = plain.get_robustcov_results("cluster", groups=np.unique(tasks, return_inverse=True)[1])
    np.testing.assert_allclose(list(estimate.coefficients.values()), plain.params, rtol=1e-10)
    np.testing.assert_allclose(list(estimate.standard_errors.values()), clustered.bse, rtol=1e-10)
    np.testing.assert_allclose(list(estimate.standard_errors_hc3.values()), plain.HC3_se, rtol=1e-10)
    np.testing.assert_allclose(np.sqrt(np.diag(estimate.covariance)), clustered.bse, rtol=1e-10)
    assert (estimate.observations, estimate.tasks, estimate.rank) == (150 * repeats, 150, 3)


def test_rows_of_equal_masks_are_dropped():
    table = simulated([0.2, -0.1], 40, 1)
    more = [TableRow("x", run, (1, 1), reward) for run, reward in (("masked", 1.0), ("mirror", 0.0))]
    with_equal = fit(RunTable(table.interventions, (*table.rows, *more)), "foldover")
    assert estimate_record(with_equal) == estimate_record(fit(table, "foldover"))
    assert with_equal.tasks == 40
    with pytest.raises(UserError, match="every mask equals its mirror"):
        fit(RunTable(table.interventions, tuple(more)), "foldover")


def test_the_bare_run_does_not_matter():
    table = simulated([0.2, -0.1], 40, 1)
    without = RunTable(table.interventions, tuple(row for row in table.rows if row.run != "bare"))
    assert estimate_record(fit(without, "foldover")) == estimate_record(fit(table, "foldover"))


def test_columns_that_always_go_together_are_named():
    rows = [
        TableRow(str(task), run, mask, 0.5)
        for task in range(6)
        for run, mask in (("masked", (1, 1, task % 2)), ("mirror", (0, 0, 1 - task % 2)))
    ]
    with pytest.raises(UserError, match="cannot be told apart over 6 rows: a, b; "):
        fit(RunTable(("a", "b", "c"), tuple(rows)), "foldover")


def test_dust_is_zero_and_exact_effects_are_exact():
    def reward(mask):
        return 0.1 + 0.7 + (0.25 if mask[0] else 0.0) + (0.1 - 0.1 if mask[1] else 0.0)

    masks = [(1, 0), (0, 1), (1, 1), (0, 0)] * 3
    rows = [
        TableRow(str(i), run, shown, reward(shown) if i % 2 else 0.8 + (0.25 if shown[0] else 0))
        for i, mask in enumerate(masks)
        for run, shown in (("masked", mask), ("mirror", (1 - mask[0], 1 - mask[1])))
    ]
    estimate = fit(RunTable(("a", "b"), tuple(rows)), "foldover")
    assert estimate.coefficients["a"] == pytest.approx(0.25, abs=1e-15)
    assert estimate.coefficients["b"] == 0.0


def test_an_interaction_of_two_chunks_cancels():
    """Each main effect is the chunk's value averaged over the other's states, whatever the pair adds."""
    values = [fit(simulated([0.1, 0.1], 200, seed, pair=0.2), "foldover").coefficients for seed in range(60)]
    for name in ("c0", "c1"):
        found = np.array([value[name] for value in values])
        assert found.mean() == pytest.approx(0.1 + 0.2 / 2, abs=4 * found.std() / np.sqrt(len(found)))


@pytest.mark.parametrize("estimator", ["foldover", "mixed"])
def test_intervals_cover_the_truth_and_errors_are_neither_small_nor_large(estimator):
    effects = [0.15, 0.0, -0.1]
    estimates = [fit(simulated(effects, 120, seed), estimator) for seed in range(150)]
    for column, effect in enumerate(effects):
        values = np.array([estimate.coefficients[f"c{column}"] for estimate in estimates])
        stated = np.array([estimate.standard_errors[f"c{column}"] for estimate in estimates])
        covered = np.mean(np.abs(values - effect) < 1.96 * stated)
        assert 0.89 <= covered <= 0.99
        assert stated.mean() == pytest.approx(values.std(), rel=0.15)
        assert values.mean() == pytest.approx(effect, abs=4 * values.std() / np.sqrt(len(values)))


def test_at_equal_episodes_the_error_is_far_below_the_published_ones():
    tables = [simulated([0.1, 0.05, 0.0, -0.05, 0.1, 0.0], 150, seed) for seed in range(60)]
    spread = {
        name: np.std([fit(table, name).coefficients["c2"] for table in tables])
        for name in ("paired_delta", "foldover", "mixed")
    }
    assert spread["foldover"] < 0.65 * spread["paired_delta"]
    assert spread["mixed"] < 1.1 * spread["foldover"]


def test_errors_the_data_do_not_determine_are_null():
    rows = [TableRow("x", "masked", (1,), 1.0), TableRow("x", "mirror", (0,), 0.0)]
    record = estimate_record(fit(RunTable(("a",), tuple(rows)), "foldover"))
    assert record["coefficients"] == {"a": 1.0}
    assert record["standard_errors"] == record["standard_errors_hc3"] == {"a": None}
