"""Recorded episodes, and a small job without slime behind a fake SGLang server."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest

from intraskill.records import Assignment, Episode, EpisodeJob, EpisodeStep, Group, Turn


def pytest_collection_modifyitems(items):
    """Tests marked `slime` need slime itself (and what it imports)."""
    missing = [name for name in ("slime", "ray") if importlib.util.find_spec(name) is None]
    for item in items:
        if missing and item.get_closest_marker("slime"):
            item.add_marker(pytest.mark.skip(reason=f"{', '.join(missing)} not installed; docs/four_gpus.md says how"))


def make_turn(prompt, sampled, version="7", text="", cached=0) -> Turn:
    logs = tuple(-0.1 * (position + 1) for position in range(len(sampled)))
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(sampled), "cached_tokens": cached}
    return Turn(text, "", "", (), "stop", tuple(prompt), tuple(sampled), logs, None, version, usage)


def make_episode(reward, turns, task_id=1, sample_id=0, status="completed", termination="purchase") -> Episode:
    return Episode(
        job=EpisodeJob(task_id, sample_id, 0, "train"),
        status=status,
        skill_ids=(),
        reset=None,
        messages=(),
        steps=tuple(EpisodeStep(turn, None, None) for turn in turns),
        reward=reward,
        success=reward == 1.0,
        detail={},
        termination=termination,
        error=None if status == "completed" else {"stage": "policy", "type": "x", "message": "x"},
    )


def make_group(index, episodes) -> Group:
    return Group(index, 1, Assignment(index, True, ()), tuple(episodes))


@pytest.fixture(scope="session")
def recorded():
    """Builders of recorded turns, episodes and groups."""
    return SimpleNamespace(turn=make_turn, episode=make_episode, group=make_group)
