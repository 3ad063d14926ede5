"""Rollout metrics count what they say they count."""

import csv
import os
from pathlib import Path

import pytest

from intraskill.rollout.metrics import standard_error, step_metrics
from intraskill.skills.curriculum import Curriculum, Inclusion

CURRICULUM = Curriculum("c", 0.2, 0.2, 0.9, 0.1, (Inclusion("a", 0.1, 0.9), Inclusion("b", 0.0, 0.2)))


def test_outcomes_count_all_scorable_episodes_and_drops_count_per_admitted(make_group, make_episode, shop_words):
    groups = [
        make_group([1.0] * 4 + [0.0] * 4, 0, ["a"], free=False),
        make_group([0.0] * 8, 1, [], free=False),
        make_group([1.0] * 7 + [None], 2),
        make_group([1.0] * 8, 3),
    ]
    verdicts = ["kept", "zero_std", "technical", "kept"]
    retries = [make_episode(1.0)]
    triages = ["solved", "model_internalization_deficit", "environment_or_runtime_error", "solved"]
    metrics = step_metrics(shop_words, groups, verdicts, triages, retries, CURRICULUM)
    value = {name.removeprefix("rollout/shopsim/"): number for name, number in metrics.items()}
    assert value["trajectory_count"] == 32
    assert value["train_trajectory_count"] == 16
    assert value["scored_rate"] == 31 / 32
    assert value["strict_reward_mean"] == pytest.approx(19 / 31)
    assert value["success_rate"] == pytest.approx(19 / 31)
    assert value["all_wrong_group_rate"] == pytest.approx(1 / 3)
    assert value["full_skill_retry_success_rate"] == 1.0
    assert value["technical_group_drop_count"] == 1
    assert value["zero_std_group_drop_rate"] == pytest.approx(1 / 3)
    assert value["skill_free_group_rate"] == 0.5
    assert value["assisted_empty_group_rate"] == 0.5
    assert value["skills_per_assisted_group_mean"] == 0.5
    assert value["chunk/a/target_rho"] == 0.9
    assert value["chunk/a/inclusion_rate"] == 0.5
    assert value["rho_mean"] == pytest.approx(0.55)


def test_standard_error_of_a_coin():
    assert standard_error([0.0, 1.0, 0.0, 1.0]) == pytest.approx((1 / 3 / 4) ** 0.5)
    assert standard_error([1.0]) == 0.0


def test_published_rates_follow_from_the_published_counts():
    """Step 1 of the published run: 32 groups, 4 technical, 12 without spread, 16 admitted, 3 of 28 all wrong."""
    folder = Path(os.environ.get("INTRASKILL_PUBLISHED", Path(__file__).parents[3] / "shared" / "published"))
    if not (folder / "training_steps.csv").exists():
        pytest.skip("the published figures are not beside the project")
    with (folder / "training_steps.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        zero = float(row["rollout/shopsim/zero_std_group_drop_count"])
        kept = float(row["rollout/shopsim/train_group_count"])
        assert float(row["rollout/shopsim/zero_std_group_drop_rate"]) == pytest.approx(zero / (kept + zero))
    assert float(rows[0]["rollout/shopsim/all_wrong_group_rate"]) == pytest.approx(3 / 28)
