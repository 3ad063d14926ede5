"""Finished episodes and groups made by hand."""

from collections.abc import Callable, Sequence

import pytest

from intraskill.core.records import Assignment, Episode, EpisodeJob, Group


def _episode(reward: float | None, task_id: str = "1", sample: int = 0) -> Episode:
    failed = reward is None
    return Episode(
        job=EpisodeJob(task_id, sample, 7, "train"),
        status="failed" if failed else "completed",
        skill_ids=(),
        reset=None,
        messages=(),
        steps=(),
        reward=reward or 0.0,
        success=reward == 1.0,
        detail={"r_strict": reward or 0.0},
        termination=None if failed else "purchase",
        error={"stage": "environment", "type": "EnvironmentUnavailable", "message": "gone"} if failed else None,
    )


@pytest.fixture
def make_episode() -> Callable[..., Episode]:
    return _episode


@pytest.fixture
def make_group() -> Callable[..., Group]:
    def make(rewards: Sequence[float | None], index: int = 0, skills: Sequence[str] = (), free: bool = True) -> Group:
        episodes = tuple(_episode(reward, sample=i) for i, reward in enumerate(rewards))
        return Group(index, "1", Assignment(index, free, tuple(skills)), episodes)

    return make
