"""The interval that holds at every look."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intraskill.stats.anytime import confidence_sequence
from intraskill.stats.paired import hoeffding_radius
from intraskill.stats.two_way import NoInterval


def interval(values, alpha=0.05, low=-1.0, high=1.0):
    return confidence_sequence(np.asarray(values, dtype=float), alpha=alpha, low=low, high=high)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), chance=st.floats(0, 1), look=st.integers(1, 79))
def test_a_later_look_lies_within_an_earlier_one(seed, chance, look):
    values = np.random.default_rng(seed).random(80) < chance
    try:
        early, late = interval(values[:look], low=0, high=1), interval(values, low=0, high=1)
    except NoInterval:
        return
    assert 0 <= early[0] <= late[0] + 1e-12
    assert late[1] <= early[1] + 1e-12 <= 1 + 2e-12


def test_it_moves_and_stretches_with_the_values():
    values = np.random.default_rng(0).random(50)
    low, high = interval(values, low=0, high=1)
    assert interval(3 * values - 7, low=-7, high=-4) == pytest.approx((3 * low - 7, 3 * high - 7))


def test_one_value_excludes_almost_nothing_and_many_equal_ones_nearly_everything_else():
    assert interval([0.5])[1] - interval([0.5])[0] > 1.9
    low, high = interval([0.2] * 2000)
    assert low < 0.2 < high
    assert high - low < 0.02 < hoeffding_radius(2000)  # no spread: far shorter than a bound that cannot see it


def test_values_that_drift_are_said_to():
    with pytest.raises(NoInterval, match="random order"):
        interval([-1.0] * 200 + [1.0] * 2000)
