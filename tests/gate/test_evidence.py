"""What may be believed of an effect: shrunken, with what was known before, and honest about doubt."""

import numpy as np
import pytest

from intraskill.core.errors import UserError
from intraskill.gate.estimate import Estimate
from intraskill.gate.evidence import (
    Belief,
    believe,
    expected_errors,
    pool_spread,
    probability_positive,
    smallest_effect,
)


def estimated(values, error=0.03, correlation=0.0):
    ids = [f"c{i}" for i in range(len(values))]
    size = len(ids)
    covariance = error**2 * ((1 - correlation) * np.eye(size) + correlation * np.ones((size, size)))
    errors = dict.fromkeys(ids, error)
    return Estimate("foldover", dict(zip(ids, values)), errors, errors, 400, 400, size, covariance)


def test_coefficients_that_scatter_no_more_than_their_errors_are_shrunk_to_almost_nothing():
    noise = np.random.default_rng(1).normal(0, 0.03, 12)
    posterior = believe(estimated(noise), {})
    assert np.abs(posterior.mean).max() < 0.35 * np.abs(noise).max()
    assert max(posterior.helps(name) for name in posterior.ids) < 0.9


def test_coefficients_far_beyond_their_errors_are_left_almost_alone():
    values = np.array([0.3, -0.2, 0.25, -0.3, 0.15])
    posterior = believe(estimated(values), {})
    np.testing.assert_allclose(posterior.mean, values, rtol=0.05)
    assert posterior.helps("c0") > 0.999
    assert posterior.helps("c1") < 0.001


def test_the_spread_of_a_large_pool_is_found():
    random = np.random.default_rng(0)
    for truth in (0.02, 0.06, 0.2):
        found = [
            pool_spread(random.normal(0, np.hypot(truth, 0.03), 200), np.diag(np.full(200, 0.03**2))) for _ in range(8)
        ]
        assert np.mean(found) == pytest.approx(truth, rel=0.2)


def test_what_an_earlier_gate_knew_counts_and_fades_with_drift():
    values = [0.0, 0.0]
    sure = believe(estimated(values), {"c0": Belief(0.1, 0.02**2)})
    faded = believe(estimated(values), {"c0": Belief(0.1, 0.02**2).later(0.05)})
    assert sure.mean[0] == pytest.approx(0.1 * 0.03**2 / (0.03**2 + 0.02**2))
    assert 0 < faded.mean[0] < 0.4 * sure.mean[0]
    assert sure.helps("c0") > 0.95 > faded.helps("c0")
    assert sure.mean[1] == 0.0


def test_versions_of_one_text_are_compared_with_their_correlation():
    values = [0.10, 0.15]
    apart, together = (believe(estimated(values, 0.05, c), {}) for c in (0.0, 0.9))
    assert together.better("c1", "c0") > apart.better("c1", "c0") > 0.5
    assert together.better("c0", "c1") == pytest.approx(1 - together.better("c1", "c0"))


def test_the_beliefs_are_calibrated_over_pools():
    """Of effects said to help with probability p, a share p does."""
    random = np.random.default_rng(2)
    said, true = [], []
    for _ in range(250):
        effects = random.normal(0, 0.05, 8)
        posterior = believe(estimated(effects + random.normal(0, 0.04, 8), 0.04), {})
        said += [posterior.helps(name) for name in posterior.ids]
        true += (effects > 0).tolist()
    said, true = np.array(said), np.array(true)
    for low, high in ((0.05, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 0.95)):
        inside = (said >= low) & (said < high)
        assert true[inside].mean() == pytest.approx(said[inside].mean(), abs=0.05)


def test_an_estimate_without_errors_is_no_evidence():
    with pytest.raises(UserError, match="needs standard errors"):
        believe(estimated([0.1], error=float("nan")), {})


def test_what_is_known_exactly_is_believed():
    posterior = believe(estimated([0.1, 0.0, -0.2], error=0.0), {})
    assert [round(posterior.helps(name), 6) for name in posterior.ids] == [1.0, 0.5, 0.0]
    assert probability_positive(0.0, 0.0) == 0.5


def test_the_smallest_effect_is_found_in_four_of_five_gates():
    random = np.random.default_rng(3)
    effect = smallest_effect(0.03, 0.06, 0.9)
    reliability = 0.06**2 / (0.06**2 + 0.03**2)
    seen = effect + random.normal(0, 0.03, 40_000)
    helps = [probability_positive(value * reliability, reliability * 0.03**2) for value in seen]
    assert np.mean(np.array(helps) >= 0.9) == pytest.approx(0.8, abs=0.01)
    assert smallest_effect(0.03, 0.06, 0.5) == pytest.approx(0.8416 * 0.03, rel=1e-3)


def test_expected_errors_are_sums_of_probabilities():
    posterior = believe(estimated([0.1, 0.0, -0.1], 0.05), {})
    keeps, drops = expected_errors(posterior, ["c0", "c1"], ["c2"])
    assert keeps == pytest.approx(1 - posterior.helps("c0") + 0.5)
    assert drops == pytest.approx(posterior.helps("c2"))
    assert expected_errors(posterior, [], []) == (0, 0)
