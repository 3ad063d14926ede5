"""An objective tells each sampled token its advantage, and says which groups are worth telling anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import pytest

from intraskill.agent.segments import segments
from intraskill.core.records import Assignment, Episode, EpisodeJob, EpisodeStep, Group, Turn
from intraskill.objectives.advantages import grpo
from intraskill.objectives.objective import OBJECTIVES, Objective, lesson
from intraskill.settings.models import TrainSettings

SPREAD = (1.0, 0.0, 0.25, 0.0)


def turn(prompt: tuple[int, ...], sampled: tuple[int, ...]) -> Turn:
    return Turn("", "", "", (), "stop", prompt, sampled, (-0.5,) * len(sampled))


ONE_SEGMENT = (turn((1, 2), (3, 4)), turn((1, 2, 3, 4, 9), (5,)))
TWO_SEGMENTS = (turn((1, 2), (3,)), turn((8, 2, 3), (6, 7)))
NOTHING_SAMPLED = (turn((1, 2), ()),)


def group(rewards: Sequence[float], turns: Sequence[Sequence[Turn]], index: int = 4) -> Group:
    episodes = tuple(
        Episode(
            EpisodeJob(7, sample, 0, "train"),
            "completed",
            (),
            None,
            (),
            tuple(EpisodeStep(turn, None, None) for turn in own),
            reward,
            reward == 1.0,
            {},
            None,
        )
        for sample, (reward, own) in enumerate(zip(rewards, turns, strict=True))
    )
    return Group(index, 7, Assignment(index, True, ()), episodes)


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_every_sampled_token_of_an_episode_is_told_what_its_reward_was_worth(name: str) -> None:
    objective = OBJECTIVES[name]
    mixed = group(SPREAD, (ONE_SEGMENT, TWO_SEGMENTS, NOTHING_SAMPLED, ONE_SEGMENT))
    values = objective.estimate(SPREAD)
    told = lesson(mixed, objective)
    assert [one.advantages for one in told] == [
        (0.0, 0.0, values[0], values[0], 0.0, values[0]),
        (0.0, 0.0, values[1]),
        (0.0, 0.0, 0.0, values[1], values[1]),
        (0.0, 0.0, values[3], values[3], 0.0, values[3]),
    ]
    assert [(one.group_index, one.episode_id) for one in told] == [
        (4, f"task-7__sample-{sample}") for sample in (0, 1, 1, 3)
    ]


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
@pytest.mark.parametrize(
    ("rewards", "signal"), [((1.0, 0.0), True), ((0.1,) * 8, False), ((0.5, 0.5 + 1e-7), False), ((0.7,), False)]
)
def test_a_group_carries_signal_exactly_when_some_token_is_told_something(
    name: str, rewards: tuple[float, ...], signal: bool
) -> None:
    objective, found = OBJECTIVES[name], group(rewards, [ONE_SEGMENT] * len(rewards))
    assert objective.carries_signal(found) is signal
    assert any(any(values) for values in objective.advantages(found)) is signal


def test_token_by_token_values_reach_the_tokens_they_were_meant_for() -> None:
    class Counting:
        def carries_signal(self, group: Group) -> bool:
            return True

        def advantages(self, group: Group) -> Sequence[Sequence[float]]:
            return [[float(10 * sibling + at) for at in range(3)] for sibling in range(len(group.episodes))]

    objective: Objective = Counting()
    first, second, third = lesson(group((0.0, 0.0), (ONE_SEGMENT, TWO_SEGMENTS)), objective)
    assert first.advantages == (0.0, 0.0, 0.0, 1.0, 0.0, 2.0)
    assert (second.advantages, third.advantages) == ((0.0, 0.0, 10.0), (0.0, 0.0, 0.0, 11.0, 12.0))


@pytest.mark.parametrize("count", [2, 4])
def test_one_value_too_many_or_too_few_is_a_bug_that_shows(count: int) -> None:
    class Wrong:
        def carries_signal(self, group: Group) -> bool:
            return True

        def advantages(self, group: Group) -> Sequence[Sequence[float]]:
            return [[1.0] * count]

    with pytest.raises(ValueError, match=f"{count} advantages for 3 sampled tokens"):
        lesson(group((1.0,), (ONE_SEGMENT,)), Wrong())


def test_nothing_but_advantages_is_changed() -> None:
    one = group((1.0, 0.0), (TWO_SEGMENTS, ONE_SEGMENT))
    plain = [segment for episode in one.episodes for segment in segments(episode, one.index)]
    for before, after in zip(plain, lesson(one, OBJECTIVES["grpo"]), strict=True):
        assert (before.token_ids, before.loss_mask, before.log_probs) == (
            after.token_ids,
            after.loss_mask,
            after.log_probs,
        )
        assert before.prompt_length == after.prompt_length


def test_the_settings_know_every_objective_by_name() -> None:
    assert sorted(get_args(TrainSettings.model_fields["objective"].annotation)) == sorted(OBJECTIVES)
    assert OBJECTIVES[TrainSettings().objective].estimate is grpo
