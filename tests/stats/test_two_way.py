"""Variance over seeds and tasks: against statsmodels, and against what the variances were."""

import warnings

import numpy as np
import pytest
from seed_tables import drawn

from intraskill.stats.equivalence import equivalence
from intraskill.stats.holm import holm
from intraskill.stats.two_way import Estimate, NoInterval, two_way


def reml(differences):
    """statsmodels' crossed mixed model: (standard error, training, task, rest variance)."""
    import pandas as pd
    import statsmodels.formula.api as smf

    seeds, tasks = np.indices(differences.shape)
    frame = pd.DataFrame({"d": differences.ravel(), "seed": seeds.ravel(), "task": tasks.ravel(), "all": 1})
    parts = {"seed": "0 + C(seed)", "task": "0 + C(task)"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = smf.mixedlm("d ~ 1", frame, groups="all", re_formula="0", vc_formula=parts).fit(reml=True)
    training, task = (float(fit.vcomp[fit.model.exog_vc.names.index(name)]) for name in ("seed", "task"))
    return float(fit.bse["Intercept"]), training, task, float(fit.scale)


def test_the_closed_form_is_the_mixed_model_of_statsmodels():
    table = drawn(np.random.default_rng(0), 4, 6, training=0.8, task=1.0)
    found = two_way(table)
    error, training, task, rest = reml(table)
    assert found.mixed_model.standard_error == pytest.approx(error, rel=1e-3)
    parts = found.components
    assert [parts.training, parts.task, parts.rest] == pytest.approx([training, task, rest], rel=5e-3)
    assert found.unbiased.standard_error == pytest.approx(error, rel=1e-3)  # no component is at its bound here


def test_a_component_below_zero_is_pooled_with_the_rest():
    table = drawn(np.random.default_rng(3), 4, 8)
    table -= table.mean(axis=1, keepdims=True)  # no seed differs from another
    found = two_way(table + 0.1)
    assert found.row < found.rest
    assert found.components.training == 0
    assert found.mixed_model.standard_error >= found.unbiased.standard_error
    everything = found.row * 3 + found.column * 7 + found.rest * 21
    pooled = found.components
    assert pooled.rest * (3 + 21) + (pooled.rest + 4 * pooled.task) * 7 == pytest.approx(everything)


def test_the_unbiased_variance_is_right_on_average():
    random = np.random.default_rng(4)
    tables = [two_way(drawn(random, 6, 20, training=0.3, task=0.5)) for _ in range(800)]
    squares = np.array([table.unbiased.standard_error**2 for table in tables])
    truth = 0.3**2 / 6 + 0.5**2 / 20 + 1 / 120
    assert squares.mean() == pytest.approx(truth, rel=0.08)
    assert np.var([table.effect for table in tables]) == pytest.approx(truth, rel=0.15)


@pytest.mark.parametrize(
    ("shape", "reason"), [((1, 5), "no interval over training"), ((5, 1), "one task"), ((3, 4), "do not vary")]
)
def test_no_interval_without_what_it_would_rest_on(shape, reason):
    table = np.zeros(shape) if min(shape) > 1 else np.arange(float(np.prod(shape))).reshape(shape)
    with pytest.raises(NoInterval, match=reason):
        two_way(table)


def test_student_interval_and_p_value_agree():
    estimate = Estimate(0.4, 0.2, 7.0)
    low, high = estimate.interval(0.05)
    assert (high - low) / 2 == pytest.approx(2.3646243 * 0.2)
    assert estimate.p_value(low) == pytest.approx(0.05)
    assert estimate.p_above(high) == pytest.approx(0.975)


def test_equivalence_is_shown_exactly_where_the_shorter_interval_lies_within_the_margins():
    estimate = Estimate(0.01, 0.02, 30.0)
    low, high = estimate.interval(0.1)
    inside, outside = equivalence(estimate, high + 1e-6), equivalence(estimate, high - 1e-6)
    assert (inside.equivalent, outside.equivalent) == (True, False)
    assert (inside.lower, inside.upper) == (low, high)
    assert not equivalence(Estimate(0.0, 1.0, 30.0), 0.1).equivalent  # no difference seen, none excluded either


def test_holm_is_that_of_statsmodels():
    from statsmodels.stats.multitest import multipletests

    p_values = [0.04, 0.001, 0.3, 0.012, 0.04, 0.9]
    assert holm(p_values) == pytest.approx(list(multipletests(p_values, method="holm")[1]))
    assert holm([]) == []
