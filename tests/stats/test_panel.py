import numpy as np
import pytest

from intraskill.stats.clustered import clustered_covariance
from intraskill.stats.panel import random_effects


def grouped(groups, size, seed, *, between=1.0, inside=0.5):
    random = np.random.default_rng(seed)
    names = [str(group) for group in range(groups) for _ in range(size)]
    design = np.column_stack([random.normal(size=(groups * size, 2)), np.ones(groups * size)])
    target = design @ [1.0, -2.0, 0.5] + np.repeat(between * random.normal(size=groups), size)
    return design, target + inside * random.normal(size=groups * size), names


def test_the_share_of_the_groups_is_found():
    found = [random_effects(*grouped(200, 3, seed)).group_share for seed in range(10)]
    assert np.mean(found) == pytest.approx(1 / (1 + 0.25), abs=0.03)
    none = [random_effects(*grouped(200, 3, seed, between=0.0)).group_share for seed in range(10)]
    assert np.mean(none) < 0.05


def test_without_group_effects_it_is_ordinary_least_squares():
    design, target, _ = grouped(60, 1, 0)
    fitted = random_effects(design, target, [str(i) for i in range(60)])
    np.testing.assert_allclose(fitted.coefficients, np.linalg.lstsq(design, target, rcond=None)[0], rtol=1e-10)
    assert fitted.group_share == 0.0


def test_it_is_sharper_than_ignoring_the_groups():
    truth, gls, ols = 1.0, [], []
    for seed in range(60):
        design, target, names = grouped(60, 3, seed)
        gls.append(random_effects(design, target, names).coefficients[0])
        ols.append(np.linalg.lstsq(design, target, rcond=None)[0][0])
    assert np.std(gls) < 0.75 * np.std(ols)
    assert np.mean(gls) == pytest.approx(truth, abs=0.03)


def test_a_row_twice_is_no_more_evidence_when_it_is_the_same_group():
    design, target, names = grouped(50, 1, 1)
    once = clustered_covariance(design, target, names)
    twice = clustered_covariance(np.tile(design, (2, 1)), np.tile(target, 2), [*names, *names])
    np.testing.assert_allclose(twice, once * (99 / 97) / (49 / 47), rtol=1e-9)


def test_errors_that_one_group_or_too_few_rows_cannot_tell_are_nan():
    design, target, names = grouped(20, 1, 1)
    assert np.isnan(clustered_covariance(design, target, ["x"] * 20)).all()
    assert np.isnan(clustered_covariance(design[:3], target[:3], names[:3])).all()
