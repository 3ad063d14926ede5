"""From a group's rewards to one value per episode.

Siblings saw byte-identical prompts, so their mean reward is the natural baseline: what is left over is what this
episode did differently. `grpo` also divides by the group's standard deviation, `group_mean` does not. A group whose
rewards do not differ (spread at most 1e-6, a single episode included) teaches nothing: exactly 0.0, never NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Estimator = Callable[[Sequence[float]], list[float]]

NO_SPREAD = 1e-6
EPSILON = 1e-6


def grpo(rewards: Sequence[float]) -> list[float]:
    """(reward - mean) / (sample standard deviation + 1e-6)."""
    values = np.asarray(rewards, dtype=np.float64)
    if not has_spread(rewards):
        return [0.0] * len(values)
    return ((values - values.mean()) / (values.std(ddof=1) + EPSILON)).tolist()


def group_mean(rewards: Sequence[float]) -> list[float]:
    """reward - mean: hard and easy tasks weigh by how much their rewards really differ."""
    values = np.asarray(rewards, dtype=np.float64)
    if not has_spread(rewards):
        return [0.0] * len(values)
    return (values - values.mean()).tolist()


def has_spread(rewards: Sequence[float]) -> bool:
    """Whether the rewards differ by more than rounding."""
    return len(rewards) > 1 and max(rewards) - min(rewards) > NO_SPREAD
