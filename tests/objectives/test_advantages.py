"""Group-relative advantages: the formula, and the groups that must teach nothing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intraskill.objectives.advantages import Estimator, group_mean, grpo

REWARDS = st.lists(st.floats(0, 1), min_size=1, max_size=16)


def test_grpo_divides_by_the_sample_deviation() -> None:
    values = grpo([1.0, 0.0, 0.0, 0.0])
    deviation = math.sqrt((0.75**2 + 3 * 0.25**2) / 3)
    assert values == pytest.approx([0.75 / (deviation + 1e-6), *[-0.25 / (deviation + 1e-6)] * 3])


def test_group_mean_only_subtracts() -> None:
    assert group_mean([1.0, 0.0, 0.0, 0.0]) == pytest.approx([0.75, -0.25, -0.25, -0.25])


@pytest.mark.parametrize("estimate", [grpo, group_mean])
@pytest.mark.parametrize("rewards", [[0.1] * 8, [0.0] * 8, [1.0] * 8, [0.7], [], [0.5, 0.5 + 1e-7]])
def test_equal_rewards_give_exactly_zero(estimate: Estimator, rewards: list[float]) -> None:
    assert estimate(rewards) == [0.0] * len(rewards)


@given(REWARDS)
def test_finite_and_centred(rewards: list[float]) -> None:
    for estimate in (grpo, group_mean):
        values = estimate(rewards)
        assert all(math.isfinite(value) for value in values)
        assert sum(values) == pytest.approx(0.0, abs=1e-6)
