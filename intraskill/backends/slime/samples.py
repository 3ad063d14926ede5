"""Training samples from episodes, exactly as sampled.

One sample per segment (`agent.segments`): its tokens, a mask that is 1 on sampled tokens only, and the log-probs they
were sampled with. Everything after the leading prompt is slime's "response", observations included. The samples of one
episode share a `rollout_id`, unique in the run: slime's batches, loss and rewards then count episodes, not segments.

An episode in which nothing was sampled (its very first prompt did not fit) still is one of the group's eight. It
becomes a sample of two tokens that is masked out, so that the batch keeps its size.
"""

from __future__ import annotations

from typing import Any

from intraskill.agent.segments import segments
from intraskill.core.records import Episode, Group, Segment, stored_task_id


def group_samples(group: Group, group_size: int) -> list[list[dict[str, Any]]]:
    """One list an episode with the fields of its samples (slime's `Sample`, status by name)."""
    return [
        episode_samples(episode, group.index, group.index * group_size + sibling)
        for sibling, episode in enumerate(group.episodes)
    ]


def episode_samples(episode: Episode, group_index: int, rollout_id: int) -> list[dict[str, Any]]:
    """The fields of one episode's samples; `rollout_id` names the episode within the run."""
    found = segments(episode, group_index)
    shared = {
        "group_index": group_index,
        "rollout_id": rollout_id,
        "reward": episode.reward if episode.scorable else None,
        "status": _status(episode),
        "weight_versions": sorted({step.turn.weight_version for step in episode.steps}),
        "metadata": {"task_id": stored_task_id(episode.job.task_id), "episode_id": episode.job.episode_id},
    }
    if not found:
        return [{**shared, "index": _index(rollout_id, 0), **_nothing_sampled(episode)}]
    return [
        {**shared, "index": _index(rollout_id, position), **_tokens(segment)} for position, segment in enumerate(found)
    ]


def prefix_cache(episode: Episode) -> tuple[int, int]:
    """(cached, all) prompt tokens of the episode's turns."""
    usages = [step.turn.usage for step in episode.steps]
    return sum(u.get("cached_tokens", 0) for u in usages), sum(u.get("prompt_tokens", 0) for u in usages)


def _tokens(segment: Segment) -> dict[str, Any]:
    start = segment.prompt_length
    return {
        "tokens": list(segment.token_ids),
        "response_length": len(segment.token_ids) - start,
        "loss_mask": list(segment.loss_mask[start:]),
        "rollout_log_probs": list(segment.log_probs[start:]),
    }


def _nothing_sampled(episode: Episode) -> dict[str, Any]:
    prompt = next((step.turn.prompt_ids for step in episode.steps if len(step.turn.prompt_ids) > 1), (0, 0))
    return {
        "tokens": list(prompt[:2]),
        "response_length": 1,
        "loss_mask": [0],
        "rollout_log_probs": [0.0],
        "remove_sample": True,
    }


def _status(episode: Episode) -> str:
    if not episode.scorable:
        return "FAILED"
    return "TRUNCATED" if episode.termination == "generation_length" else "COMPLETED"


def _index(rollout_id: int, position: int) -> int:
    """Unique in the run: an episode has fewer than 256 segments (one a step at most)."""
    return rollout_id * 256 + position
