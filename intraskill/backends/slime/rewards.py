"""Group-relative rewards for slime's trainer: advantages over unique episodes, broadcast to their samples.

slime's own normaliser reshapes the flat list of samples into groups of equal size, which is wrong as soon as one
episode has two segments: a long episode would count twice in its group's mean, and with an odd count the whole batch
becomes one group. Here the episode counts once, whatever it was cut into.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intraskill.objectives.objective import OBJECTIVES

OBJECTIVE_ARGUMENT = "intraskill_objective"  # the run puts the name of the settings' objective here


def post_process(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """(raw rewards, advantages), one of each per sample. A group with an unscored member is masked out as a whole."""
    estimate = OBJECTIVES[getattr(args, OBJECTIVE_ARGUMENT, "grpo")].estimate
    groups: dict[Any, dict[Any, list[int]]] = {}
    for position, sample in enumerate(samples):
        episode = ("own", position) if sample.rollout_id is None else sample.rollout_id
        groups.setdefault(sample.group_index, {}).setdefault(episode, []).append(position)
    values = [0.0] * len(samples)
    for episodes in groups.values():
        rewards = [samples[positions[0]].reward for positions in episodes.values()]
        if any(reward is None for reward in rewards):
            for positions in episodes.values():
                for position in positions:
                    samples[position].remove_sample = True
            continue
        for positions, value in zip(episodes.values(), estimate([float(reward) for reward in rewards])):
            for position in positions:
                values[position] = value
    return [float(sample.reward or 0.0) for sample in samples], values
