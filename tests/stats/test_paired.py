import csv
import math

import numpy as np
import pytest

from intraskill.core.errors import UserError
from intraskill.stats.paired import (
    Transitions,
    bootstrap_interval,
    hoeffding_radius,
    mcnemar_exact_p,
    paired_difference,
    transitions,
)

SEED = 20260901


@pytest.fixture
def outcomes(published):
    with (published / "test_outcomes.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def test_published_means(outcomes):
    free = paired_difference(outcomes["base_free_success"], outcomes["iter80_free_success"])
    equipped = paired_difference(outcomes["base_s0_success"], outcomes["iter80_st_success"])
    assert (free.pairs, free.first_mean, free.second_mean) == (400, 0.5175, 0.8425)
    assert (equipped.first_mean, equipped.second_mean) == (0.545, 0.8625)
    rewards = paired_difference(outcomes["base_free_reward"], outcomes["base_s0_reward"])
    trained = paired_difference(outcomes["iter80_free_reward"], outcomes["iter80_st_reward"])
    means = [rewards.first_mean, rewards.second_mean, trained.first_mean, trained.second_mean]
    assert [round(mean, 6) for mean in means] == [0.542167, 0.566301, 0.850060, 0.867143]


def test_published_transitions(outcomes):
    assert transitions(outcomes["base_free_success"], outcomes["iter80_free_success"]) == Transitions(139, 9, 198, 54)
    assert transitions(outcomes["iter80_free_success"], outcomes["iter80_st_success"]) == Transitions(19, 11, 326, 44)


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [
        ("base_free", "iter80_free", 0.2750, 0.3750),
        ("base_free", "base_s0", -0.0150, 0.0725),
        ("iter80_free", "iter80_st", -0.0050, 0.0475),
    ],
)
def test_published_success_intervals(outcomes, first, second, low, high):
    interval = bootstrap_interval(outcomes[f"{first}_success"], outcomes[f"{second}_success"], seed=SEED)
    assert interval == pytest.approx((low, high), abs=0.006)


@pytest.mark.parametrize(
    ("comparison", "first", "second"),
    [
        ("base_s0_minus_base_free", "base_free", "base_s0"),
        ("iter80_st_minus_iter80_free", "iter80_free", "iter80_st"),
    ],
)
def test_published_reward_intervals(outcomes, published_json, comparison, first, second):
    reward = published_json("comparisons.json")["comparisons"][comparison]["metrics"]["reward"]
    a, b = outcomes[f"{first}_reward"], outcomes[f"{second}_reward"]
    assert bootstrap_interval(a, b, seed=SEED) == pytest.approx(tuple(reward["confidence_interval"]), abs=0.006)
    assert paired_difference(a, b).difference == pytest.approx(reward["mean_difference"], abs=1e-12)


def test_thirteen_wins_and_five_losses():
    first, second = [0] * 13 + [1] * 5 + [0] * 382, [1] * 13 + [0] * 5 + [0] * 382
    result, moved = paired_difference(first, second), transitions(first, second)
    assert result.difference == pytest.approx(0.02, abs=1e-12)
    assert result.standard_error == pytest.approx(0.01057, abs=5e-6)
    assert moved.p_value == pytest.approx(0.0963, abs=5e-5)


@pytest.mark.parametrize("changes", [(0, 0), (1, 0), (5, 5), (3, 9), (40, 12), (700, 800)])
def test_mcnemar_counts_the_throws_of_a_fair_coin_that_are_as_one_sided(changes):
    gained, lost = changes
    throws = [math.comb(gained + lost, heads) for heads in range(gained + lost + 1)]
    as_rare = sum(ways for ways in throws if ways <= throws[gained])
    assert mcnemar_exact_p(gained, lost) == pytest.approx(as_rare / 2 ** (gained + lost), rel=1e-9)
    assert mcnemar_exact_p(lost, gained) == mcnemar_exact_p(gained, lost)


def test_the_bootstrap_is_seeded_and_its_blocks_do_not_show():
    random = np.random.default_rng(0)
    first, second = random.random(3000), random.random(3000)
    interval = bootstrap_interval(first, second, seed=1, samples=2000)
    assert interval == bootstrap_interval(first, second, seed=1, samples=2000)
    assert interval != bootstrap_interval(first, second, seed=2, samples=2000)
    result = paired_difference(first, second)
    normal = (result.difference - 1.96 * result.standard_error, result.difference + 1.96 * result.standard_error)
    assert interval == pytest.approx(normal, abs=0.15 * result.standard_error)


def test_bootstrap_intervals_cover_the_truth():
    hits = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        hits += (lambda low, high: low <= 0.1 <= high)(
            *bootstrap_interval(np.zeros(80), random.normal(0.1, 1, 80), seed=seed, samples=800)
        )
    assert 178 <= hits <= 198


def test_hoeffding_holds_for_any_bounded_difference():
    two_at_once = hoeffding_radius(60, confidence=1 - 0.05 / 2)
    assert two_at_once == pytest.approx(0.38218785)  # a published half-width
    assert hoeffding_radius(400) == pytest.approx(2 * math.sqrt(math.log(40) / 800))
    assert hoeffding_radius(400, span=1.0) == hoeffding_radius(400) / 2
    assert hoeffding_radius(1600) == hoeffding_radius(400) / 2
    random = np.random.default_rng(0)
    means = random.choice([-1.0, 1.0], size=(2000, 50)).mean(axis=1)  # the widest distribution there is
    assert np.mean(np.abs(means) >= hoeffding_radius(50, confidence=0.9)) <= 0.1


def test_a_single_pair_has_no_standard_error():
    assert math.isnan(paired_difference([0], [1]).standard_error)
    assert bootstrap_interval([0], [1], seed=0) == (1.0, 1.0)


def test_broken_comparisons_are_refused():
    with pytest.raises(UserError, match="2 against 1 outcomes"):
        paired_difference([0, 1], [1])
    with pytest.raises(UserError, match="no pairs"):
        bootstrap_interval([], [], seed=0)
    with pytest.raises(UserError, match=r"second\[1\] is nan"):
        paired_difference([0, 1], [1, math.nan])
    with pytest.raises(UserError, match="0 or 1"):
        transitions([0, 1], [0.5, 1])
    with pytest.raises(UserError, match="0 samples"):
        bootstrap_interval([0], [1], seed=0, samples=0)
    with pytest.raises(UserError, match="0 pairs"):
        hoeffding_radius(0)
