"""Simulated experiments: how often a rule is wrong, and how often its interval holds the truth.

Outcomes are 0 or 1. A task has its own difficulty; how much the treatment changes it differs by task and by training,
and is zero on average. A few experiments run always; 2,000 of each run with the slow tests.
"""

import numpy as np
import pytest

from intraskill.stats.anytime import confidence_sequence
from intraskill.stats.decision import Criterion, Rule, decide
from intraskill.stats.two_way import NoInterval
from intraskill.stats.two_way_bootstrap import two_way_interval

SEEDS, TASKS, ALPHA = 8, 400, 0.05
SHAPES = {  # standard deviations of the treatment's change: between trainings, between tasks
    "training": (0.08, 0.05),
    "tasks": (0.005, 0.3),
    "both": (0.03, 0.25),
    "chance": (0.0, 0.0),
}


def experiment(random, shape, seeds=SEEDS, tasks=TASKS):
    """(baseline, treatment), each (seeds, tasks) of 0 and 1, without a true difference."""
    between_trainings, between_tasks = SHAPES[shape]
    difficulty = random.uniform(0.35, 0.65, size=tasks)
    change = np.clip(between_tasks * random.choice([-1, 1], size=tasks), -0.3, 0.3)
    training = np.clip(between_trainings * random.normal(size=(seeds, 1)), -0.3, 0.3)
    chance = difficulty + (change + training) / 2
    return (
        (random.random((seeds, tasks)) < np.clip(difficulty - (change + training) / 2, 0, 1)).astype(float),
        (random.random((seeds, tasks)) < np.clip(chance, 0, 1)).astype(float),
    )


def coverage(shape, experiments, samples, seed):
    """Share of two-way intervals that hold the true difference, 0."""
    random = np.random.default_rng(seed)
    held = 0
    for i in range(experiments):
        baseline, treatment = experiment(random, shape)
        low, high = two_way_interval(treatment - baseline, alpha=ALPHA, seed=i, samples=samples)
        held += low <= 0 <= high
    return held / experiments


def wrongly_supported(method, experiments, seed):
    """Share of experiments without a difference that a rule calls supported; margin 0."""
    random = np.random.default_rng(seed)
    wrong = 0
    for i in range(experiments):
        by_seed = method == "bootstrap"
        baseline, treatment = experiment(random, "both", seeds=SEEDS if by_seed else 1, tasks=100)
        criterion = Criterion("a", (0.0, 1.0), 0.0, baseline, treatment, by_seed=by_seed)
        _, verdict = decide(Rule(method, ALPHA, (criterion,), seed=i, samples=400))
        wrong += verdict == "supported"
    return wrong / experiments


@pytest.mark.parametrize("shape", ["both", "chance"])
def test_two_way_intervals_hold_the_truth(shape):
    assert 0.90 <= coverage(shape, 100, 200, seed=6) <= 0.995


@pytest.mark.parametrize("method", ["paired_hoeffding", "bootstrap", "anytime"])
def test_no_difference_is_seldom_called_supported(method):
    assert wrongly_supported(method, 150, seed=7) <= ALPHA


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("shape", SHAPES)
def test_two_thousand_two_way_intervals_hold_the_truth(shape):
    assert 0.93 <= coverage(shape, 2000, 600, seed=8) <= 0.97


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("method", ["paired_hoeffding", "bootstrap", "anytime"])
def test_two_thousand_experiments_without_a_difference(method):
    assert wrongly_supported(method, 2000, seed=9) <= ALPHA


def test_looking_after_every_task_is_safe_only_with_the_anytime_rule():
    """500 tasks without a difference, looked at after each: at some look the usual interval excludes 0."""
    random = np.random.default_rng(10)
    usual = anytime = 0
    looks = np.arange(20, 501)
    for _ in range(400):
        values = random.choice([-1.0, 0.0, 1.0], size=500)
        sums, squares = np.cumsum(values)[looks - 1], np.cumsum(values**2)[looks - 1]
        means = sums / looks
        errors = np.sqrt((squares / looks - means**2) / looks)
        usual += bool((np.abs(means) > 1.96 * errors).any())
        try:
            low, high = confidence_sequence(values, alpha=ALPHA, low=-1.0, high=1.0)
            anytime += not low <= 0 <= high
        except NoInterval:  # 0 was excluded at one look, and all others later
            anytime += 1
    assert usual > 80
    assert anytime <= ALPHA * 400
