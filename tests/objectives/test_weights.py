"""Every attempt counts the same, whatever its length, its cut into segments, and however often its task occurs."""

from __future__ import annotations

import pytest

from intraskill.core.records import Segment
from intraskill.objectives.weights import attempt_of, token_weights


def segment(group: int, sample: int, mask: tuple[int, ...], task: int = 7) -> Segment:
    size = len(mask)
    return Segment(f"task-{task}__sample-{sample}", group, tuple(range(size)), mask, (0.0,) * size, 1, (0.0,) * size)


def test_the_mean_is_over_an_attempts_tokens_and_then_over_attempts() -> None:
    cut = [segment(0, 0, (0, 1, 1)), segment(0, 0, (0, 1, 0, 1)), segment(0, 1, (0, 1))]
    assert token_weights(cut) == {(0, "task-7__sample-0"): 1 / 8, (0, "task-7__sample-1"): 1 / 2}


def test_two_groups_of_one_task_are_twice_as_many_attempts() -> None:
    groups = [segment(group, sample, (0, *[1] * (1 + sample))) for group in (3, 40) for sample in range(24)]
    weights = token_weights(groups)
    assert len(weights) == 48
    assert sum(weights[attempt_of(one)] * sum(one.loss_mask) for one in groups) == pytest.approx(1.0)
    assert all(weights[attempt_of(one)] * sum(one.loss_mask) == pytest.approx(1 / 48) for one in groups)


def test_an_attempt_that_sampled_nothing_has_no_share() -> None:
    assert token_weights([segment(0, 0, (0, 0)), segment(0, 1, (0, 1))]) == {(0, "task-7__sample-1"): 1.0}
