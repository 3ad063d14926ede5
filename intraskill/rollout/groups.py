"""Running groups: G siblings of one task under one assignment, and the all-wrong group's single retry.

A sibling whose environment broke down is run once more, with the same seed, before its group is given up: the whole
group would be lost for it, and a service that restarts takes down every episode it holds. Other failures are not
repeated: a policy that hangs or cannot be reached may do so because of what it was sampling.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from intraskill.core.records import Assignment, Episode, EpisodeJob, Group
from intraskill.core.seeds import stable_seed
from intraskill.rollout.runner import EpisodeRunner
from intraskill.skills.bank import Bank, Chunk


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A group before it ran: its index in the run, its task, and the chunks all siblings will see."""

    index: int
    task_id: str
    assignment: Assignment


async def run_group(runner: EpisodeRunner, planned: PlannedGroup, bank: Bank, size: int, seed: int) -> Group:
    """Roll out its siblings together. Sibling seeds depend on (seed, group index, sibling) alone."""
    chunks = bank.subset(planned.assignment.skill_ids).chunks
    jobs = [
        EpisodeJob(planned.task_id, sibling, stable_seed("train", seed, planned.index, sibling), "train")
        for sibling in range(size)
    ]
    episodes = await asyncio.gather(*(_run_sibling(runner, job, chunks, f"group-{planned.index}") for job in jobs))
    return Group(planned.index, planned.task_id, planned.assignment, tuple(episodes))


async def _run_sibling(runner: EpisodeRunner, job: EpisodeJob, chunks: Sequence[Chunk], group: str) -> Episode:
    episode = await runner.run(job, chunks, group)
    if episode.error is not None and episode.error["stage"] == "environment":
        return await runner.run(job, chunks, group)
    return episode


async def retry_all_wrong(runner: EpisodeRunner, groups: Sequence[Group], bank: Bank, seed: int) -> dict[int, Episode]:
    """One diagnostic episode with the complete bank for every all-wrong group; returns {group index: episode}."""
    wrong = [group for group in groups if group.all_wrong]
    jobs = [
        EpisodeJob(group.task_id, len(group.episodes), stable_seed("retry", seed, group.index), "train")
        for group in wrong
    ]
    episodes = await asyncio.gather(
        *(runner.run(job, bank.chunks, f"retry-{group.index}") for job, group in zip(jobs, wrong))
    )
    return {group.index: episode for group, episode in zip(wrong, episodes)}
