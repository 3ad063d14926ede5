"""What is learnt from a finished group: one advantage per sampled token.

An **objective** looks at a scorable group and says two things: how much each sampled token of each sibling should
become likelier (its **advantage**: positive for more, negative for less, 0 for leave it), and whether the group carries
any signal at all, which decides what the trainer is worth bothering with. Both are asked here and nowhere else, so a
step's filter, its records and every backend mean the same.

The objectives here know nothing but rewards (`advantages.py`): one value an episode, told to each of its tokens. One
that knows more, token by token, fills the same shape.

To add one: write it, give it a name in `OBJECTIVES`, and add the name to `train.objective` in the settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from intraskill.agent.segments import segments
from intraskill.core.records import Group, Segment
from intraskill.objectives.advantages import Estimator, group_mean, grpo, has_spread


class Objective(Protocol):
    """From a finished, scorable group to what its tokens are told."""

    def carries_signal(self, group: Group) -> bool:
        """Whether any token would be told anything but 0."""

    def advantages(self, group: Group) -> Sequence[Sequence[float]]:
        """For each episode one value per sampled token, in the order they were sampled."""


@dataclass(frozen=True)
class RewardObjective:
    """Every token of an episode is told what `estimate` makes of its reward among its siblings'."""

    estimate: Estimator

    def carries_signal(self, group: Group) -> bool:
        return has_spread(_rewards(group))

    def advantages(self, group: Group) -> list[list[float]]:
        values = self.estimate(_rewards(group))
        return [
            [value] * sum(len(step.turn.token_ids) for step in episode.steps)
            for episode, value in zip(group.episodes, values)
        ]


OBJECTIVES: Mapping[str, RewardObjective] = {"grpo": RewardObjective(grpo), "group_mean": RewardObjective(group_mean)}


def lesson(group: Group, objective: Objective) -> tuple[Segment, ...]:
    """The group as a trainer sees it: the segments of its episodes, each token with its advantage."""
    return tuple(
        told
        for episode, values in zip(group.episodes, objective.advantages(group), strict=True)
        for told in _tell(segments(episode, group.index), values)
    )


def _tell(parts: Sequence[Segment], values: Sequence[float]) -> Iterator[Segment]:
    """Hand the values out over the sampled tokens of an episode's segments; all others keep 0."""
    sampled = sum(sum(segment.loss_mask) for segment in parts)
    if len(values) != sampled:
        raise ValueError(f"{len(values)} advantages for {sampled} sampled tokens")
    left = iter(values)
    for segment in parts:
        yield replace(segment, advantages=tuple(next(left) if mask else 0.0 for mask in segment.loss_mask))


def _rewards(group: Group) -> list[float]:
    return [episode.reward for episode in group.episodes]
