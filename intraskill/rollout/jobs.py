"""Many independent episodes under one protocol: the gate's two runs, retried failures, evaluations.

Jobs run in **waves** of a fixed partition of the job list; a finished wave is appended to the run's trace log in one
write. After a kill, waves that are wholly on disk are skipped. A wave cut in the middle is run again as a whole and
only what is missing is appended: a batching policy then sees the very batches it would have seen without the kill, so
the results are the same to the last bit. With one episode a wave this is plain skipping.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from intraskill.agent.trace import episode_trace
from intraskill.errors import StateCorrupted
from intraskill.progress import Bar
from intraskill.records import Episode, EpisodeJob
from intraskill.rollout.runner import EpisodeRunner
from intraskill.skills.bank import Chunk
from intraskill.store import JsonlLog


@dataclass(frozen=True, slots=True)
class JobPlan:
    """An episode before it ran: its job and the chunks it will be shown."""

    job: EpisodeJob
    chunks: tuple[Chunk, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What statistics need of one finished episode, whether it just ran or was read back from its trace."""

    episode_id: str
    task_id: int
    completed: bool
    reward: float
    success: bool
    detail: Mapping[str, Any]
    steps: int
    termination: str | None
    provenance: Mapping[str, Any]


async def run_jobs(
    runner: EpisodeRunner,
    plans: Sequence[JobPlan],
    log: JsonlLog,
    provenance: Mapping[str, Any],
    wave_size: int,
    bar: Bar,
) -> list[Outcome]:
    """Run what `log` does not hold yet; outcomes in the order of `plans`. A failed episode is tried once more."""
    done = completed_outcomes(log)
    for start in range(0, len(plans), wave_size):
        wave = plans[start : start + wave_size]
        missing = {plan.job.episode_id for plan in wave} - done.keys()
        if missing:
            episodes = await _run_wave(runner, wave)
            rows = [episode_trace(one, provenance, plan.chunks) for one, plan in zip(episodes, wave)]
            log.append_many([row for row in rows if outcome(row).episode_id in missing])
            done |= {outcome(row).episode_id: outcome(row) for row in rows}
        bar.advance(len(wave))
    return [done[plan.job.episode_id] for plan in plans]


def completed_outcomes(log: JsonlLog) -> dict[str, Outcome]:
    """Completed episodes of a trace log by episode id. Raises `StateCorrupted` when one stands there twice."""
    done: dict[str, Outcome] = {}
    for row in log.read():
        found = outcome(row)
        if not found.completed:
            continue
        if found.episode_id in done:
            raise StateCorrupted(f"{log.path}: {found.episode_id} is completed twice; remove one of the records")
        done[found.episode_id] = found
    return done


def outcome(row: Mapping[str, Any]) -> Outcome:
    """The outcome of one trace."""
    job, final = row["job"], row["final"] or {}
    return Outcome(
        episode_id=EpisodeJob(job["task_id"], job["sample_id"], job["seed"], job["split"]).episode_id,
        task_id=job["task_id"],
        completed=row["status"] == "completed",
        reward=float(final.get("reward", 0.0)),
        success=bool(final.get("success", False)),
        detail=final.get("reward_detail") or {},
        steps=len(row["steps"]),
        termination=final.get("termination_reason"),
        provenance=row["provenance"],
    )


async def _run_wave(runner: EpisodeRunner, wave: Sequence[JobPlan]) -> list[Episode]:
    episodes = await _gather(runner, wave)
    failed = [index for index, episode in enumerate(episodes) if not episode.scorable]
    for index, again in zip(failed, await _gather(runner, [wave[index] for index in failed])):
        episodes[index] = again
    return episodes


async def _gather(runner: EpisodeRunner, wave: Sequence[JobPlan]) -> list[Episode]:
    return list(await asyncio.gather(*(runner.run(plan.job, plan.chunks, plan.job.episode_id) for plan in wave)))
