"""Power before the experiment, against experiments that were simulated."""

import numpy as np
import pytest
from seed_tables import drawn

from intraskill.stats.paired import hoeffding_radius
from intraskill.stats.power import needed_seeds, needed_tasks, power_of_hoeffding, power_over_training
from intraskill.stats.two_way import Components, two_way


@pytest.mark.parametrize("effect", [0.0, 0.3, 0.6])
def test_predicted_power_is_the_share_of_simulated_experiments(effect):
    random = np.random.default_rng(5)
    found = [
        two_way(drawn(random, 6, 30, training=0.4, task=0.5, effect=effect)).unbiased.interval(0.05)[0] > 0
        for _ in range(600)
    ]
    predicted = power_over_training(Components(0.16, 0.25, 1.0), 6, 30, effect=effect)
    assert np.mean(found) == pytest.approx(predicted, abs=0.06)


def test_tasks_do_not_replace_seeds():
    parts = Components(training=0.04, task=0.0, rest=0.2)
    few, many = needed_seeds(parts, [50, 50_000], effect=0.1)
    assert many.seeds > 30
    assert few.seeds >= many.seeds
    assert few.power >= 0.8 > power_over_training(parts, few.seeds - 1, 50, effect=0.1)
    assert needed_seeds(parts, [50], effect=0.001)[0].seeds is None


def test_needed_tasks_is_the_first_number_that_reaches_the_power():
    asked = {"deviation": 0.5, "effect": 0.1, "span": 2.0, "alpha": 0.025}
    tasks = needed_tasks(**asked)
    assert power_of_hoeffding(tasks, **asked) >= 0.8 > power_of_hoeffding(tasks - 1, **asked)
    assert hoeffding_radius(tasks, confidence=0.975) < 0.1
    assert needed_tasks(**(asked | {"effect": 0.0})) is None
