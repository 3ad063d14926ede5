"""How likely is `supported`, and how many seeds and tasks would it take?

Asked before an experiment, from the variances of a pilot (`two_way.Components`) and an effect worth finding:

- over training, the mean of S seeds x T tasks has variance training/S + task/T + rest/(S T), and the lower end of its
  interval lies above the margin with a probability that the noncentral t distribution gives. More tasks never buy
  what too few seeds lack: the first term stays, and so do the degrees of freedom;
- for fixed checkpoints and `paired_hoeffding`, the half-width is known before; the mean must exceed margin and
  half-width together, and is taken as normal.

With several criteria alpha is shared, so pass each its share; all are met at least with the sum of the single
probabilities minus (their number - 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from scipy.special import nctdtr, ndtr

from intraskill.stats.paired import hoeffding_radius
from intraskill.stats.two_way import Components, satterthwaite, t_reach

MOST_SEEDS = 1000


@dataclass(frozen=True, slots=True)
class Size:
    """An experiment that reaches the power asked for; `seeds` is None where `MOST_SEEDS` do not."""

    tasks: int
    seeds: int | None
    power: float


def power_over_training(
    components: Components, seeds: int, tasks: int, *, effect: float, margin: float = 0.0, alpha: float = 0.05
) -> float:
    """Probability that the interval of level 1 - alpha over S >= 2 seeds and T >= 2 tasks lies above the margin."""
    row = tasks * components.training + components.rest
    column = seeds * components.task + components.rest
    if row <= 0 and column <= 0:
        return float(effect > margin)
    error, freedom = satterthwaite(seeds, tasks, (row, column, components.rest))
    beyond = nctdtr(freedom, (effect - margin) / error, t_reach(alpha, freedom))
    return 1 - float(beyond)


def power_of_hoeffding(
    tasks: int, *, deviation: float, effect: float, span: float, margin: float = 0.0, alpha: float = 0.05
) -> float:
    """Probability that the Hoeffding interval over T tasks lies above the margin.

    `deviation` is that of one paired difference, `span` the length of the interval it must lie in.
    """
    room = effect - margin - hoeffding_radius(tasks, confidence=1 - alpha, span=span)
    return float(ndtr(room * math.sqrt(tasks) / deviation)) if deviation > 0 else float(room > 0)


def needed_seeds(
    components: Components,
    tasks: Iterable[int],
    *,
    effect: float,
    margin: float = 0.0,
    alpha: float = 0.05,
    power: float = 0.8,
) -> list[Size]:
    """For each number of tasks, the fewest seeds that find `effect` with the probability `power`."""
    return [_smallest(components, count, effect, margin, alpha, power) for count in tasks]


def needed_tasks(
    *, deviation: float, effect: float, span: float, margin: float = 0.0, alpha: float = 0.05, power: float = 0.8
) -> int | None:
    """The fewest tasks with which `paired_hoeffding` finds `effect`; None where no number does."""
    if effect <= margin:
        return None

    def reached(tasks: int) -> bool:
        chance = power_of_hoeffding(tasks, deviation=deviation, effect=effect, span=span, margin=margin, alpha=alpha)
        return chance >= power

    high = 1
    while not reached(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _smallest(components: Components, tasks: int, effect: float, margin: float, alpha: float, power: float) -> Size:
    chance = 0.0
    for seeds in range(2, MOST_SEEDS + 1):
        chance = power_over_training(components, seeds, tasks, effect=effect, margin=margin, alpha=alpha)
        if chance >= power:
            return Size(tasks, seeds, chance)
    return Size(tasks, None, chance)
