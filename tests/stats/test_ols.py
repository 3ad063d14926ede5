import numpy as np
import pytest
import statsmodels.api as sm

from intraskill.stats.ols import RankDeficient, fit_ols


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_statsmodels_on_real_valued_designs(seed):
    random = np.random.default_rng(seed)
    design, target = random.normal(size=(40, 4)), random.normal(size=40)
    ours, reference = fit_ols(design, target), sm.OLS(target, design).fit()
    np.testing.assert_allclose(ours.coefficients, reference.params, rtol=1e-11)
    np.testing.assert_allclose(ours.standard_errors, reference.bse, rtol=1e-10)
    np.testing.assert_allclose(ours.standard_errors_hc3, reference.HC3_se, rtol=1e-10)


def test_a_nearly_singular_design_is_still_solved():
    design = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-10], [1.0, 1.0 - 1e-10]])
    fitted = fit_ols(design, design @ np.array([2.0, -1.0]))
    np.testing.assert_allclose(fitted.coefficients, [2.0, -1.0], rtol=1e-5)


def test_dependent_columns_are_named_and_innocent_ones_are_not():
    a, b, c = np.eye(3)
    design = np.column_stack([a, b, a + b, c, np.zeros(3)])
    with pytest.raises(RankDeficient) as caught:
        fit_ols(design, np.ones(3))
    assert caught.value.columns == (0, 1, 2, 4)
    assert caught.value.rank == 3
