"""One evaluation's outcomes as columns, one row a job in the order of the manifest.

The order of the traces (which episode finished first) leaves no mark, so summaries and comparisons are the same for
any concurrency. A technical failure has no outcome: its row stays empty (NaN) and is counted, never scored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from intraskill.core.errors import StateCorrupted
from intraskill.core.records import EpisodeJob, task_order
from intraskill.rollout.episode_numbers import TraceNumbers

Column = NDArray[np.float64]

COUNTS = ("steps", "actions", "invalid_actions", "protocol_errors")
TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens")


@dataclass
class EpisodeTable:
    """`values[name][i]` is job i's number, NaN unless it completed; `parts` are those of the reward."""

    parts: tuple[str, ...]
    jobs: tuple[EpisodeJob, ...]
    values: dict[str, Column]
    started: Column  # seconds since the epoch
    failed_attempts: NDArray[np.int64]
    terminations: Counter[str] = field(default_factory=Counter)
    protocol_codes: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    last_failure: str | None = None  # what the latest failed attempt said

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The columns that say how well an episode went, each between 0 and 1."""
        return ("reward", "success", *self.parts)

    @property
    def completed(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.values["reward"])

    def task_means(self, name: str) -> dict[str, float]:
        """Mean of a column over each task's completed episodes; tasks without any are left out."""
        values, done = self.values[name], self.completed
        tasks = [job.task_id for job, kept in zip(self.jobs, done) if kept]
        ids = sorted(set(tasks), key=task_order)
        index = {task: place for place, task in enumerate(ids)}
        places = np.array([index[task] for task in tasks], dtype=np.int64)
        sums = np.bincount(places, weights=values[done], minlength=len(ids))
        return dict(zip(ids, (sums / np.bincount(places, minlength=len(ids))).tolist()))

    def complete_tasks(self) -> set[str]:
        """The tasks all of whose episodes completed."""
        missing = {job.task_id for job, done in zip(self.jobs, self.completed) if not done}
        return {job.task_id for job in self.jobs} - missing


def build_table(
    jobs: Sequence[EpisodeJob], traces: Iterable[TraceNumbers], parts: Sequence[str], where: str
) -> EpisodeTable:
    """The table of `jobs` from a trace log called `where`. Raises `StateCorrupted` when the two contradict."""
    columns = ("reward", "success", *parts, *COUNTS, *TOKENS, "seconds")
    table = EpisodeTable(
        tuple(parts),
        tuple(jobs),
        {name: np.full(len(jobs), np.nan) for name in columns},
        np.full(len(jobs), np.nan),
        np.zeros(len(jobs), dtype=np.int64),
    )
    places = {(job.task_id, job.sample_id): index for index, job in enumerate(jobs)}
    for trace in traces:
        index = places.get((trace.job.task_id, trace.job.sample_id), -1)
        if index < 0 or jobs[index].seed != trace.job.seed or jobs[index].split != trace.job.split:
            raise StateCorrupted(f"{where}: {trace.episode_id} is not in the manifest's job list; restore the file")
        if trace.final is None:
            table.failed_attempts[index] += 1
            table.failures[f"{trace.error.stage}: {trace.error.type}" if trace.error else "unknown"] += 1
            table.last_failure = trace.error.message if trace.error else None
            continue
        if not np.isnan(table.values["reward"][index]):
            raise StateCorrupted(f"{where}: {trace.episode_id} is completed twice; remove one of the records")
        _fill(table, index, trace)
    return table


def _fill(table: EpisodeTable, index: int, trace: TraceNumbers) -> None:
    assert trace.final is not None
    for name, value in _numbers(trace, table.parts).items():
        table.values[name][index] = value
    table.started[index] = datetime.fromisoformat(trace.started_at).timestamp()
    table.terminations[trace.final.termination_reason or "unknown"] += 1
    for step in trace.steps:
        if step.protocol_error is not None:
            table.protocol_codes[step.protocol_error.code] += 1


def _numbers(trace: TraceNumbers, parts: Sequence[str]) -> dict[str, float]:
    final, steps = trace.final, trace.steps
    assert final is not None
    numbers = {"reward": final.reward, "success": float(final.success), "seconds": trace.seconds}
    numbers |= {name: float(final.reward_detail.get(name) or 0.0) for name in parts}
    numbers |= {
        "steps": len(steps),
        "actions": sum(step.action is not None for step in steps),
        "invalid_actions": sum(step.invalid for step in steps),
        "protocol_errors": sum(step.protocol_error is not None for step in steps),
    }
    return numbers | {name: sum(getattr(step.model.usage, name) for step in steps) for name in TOKENS}
