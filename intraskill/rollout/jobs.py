"""Many independent episodes under one protocol: the gate's two runs, retried failures, evaluations.

Jobs run in **waves** of a fixed partition of the job list; a finished wave is appended to the run's trace log in one
write. After a kill, waves that are wholly on disk are skipped. A wave cut in the middle is run again as a whole and
only what is missing is appended: a batching policy then sees the very batches it would have seen without the kill, so
the results are the same to the last bit.

What failed for technical reasons is another matter: its wave ran to the end without it, and the whole wave once more
would only repeat what is known. A wave in which everything was attempted runs just the episodes that failed, **apart**
from the others. An episode's seed is its own, so being sampled apart changes it by rounding only; `Outcome.attempts`
tells which ones were.

A policy that answers each episode by itself (an endpoint) needs no waves: `run_rolling` keeps a bounded number of
episodes running, starts the next one whenever one ends, and skips exactly the completed ones after a kill.

Either way a technically failed episode is tried once more, and every attempt stands in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from intraskill.agent.trace import episode_trace, succeeded
from intraskill.core.errors import StateCorrupted
from intraskill.core.progress import Bar
from intraskill.core.records import Episode, EpisodeJob
from intraskill.rollout.episode_numbers import read_numbers
from intraskill.rollout.runner import EpisodeRunner
from intraskill.skills.bank import Chunk
from intraskill.storage.store import JsonlLog


@dataclass(frozen=True, slots=True)
class PlannedEpisode:
    """An episode before it ran: its job and the chunks it will be shown."""

    job: EpisodeJob
    chunks: tuple[Chunk, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What statistics need of one finished episode, whether it just ran or was read back from its trace."""

    episode_id: str
    task_id: str
    completed: bool
    reward: float
    success: bool
    detail: Mapping[str, Any]
    steps: int
    termination: str | None
    provenance: Mapping[str, Any]
    attempts: int = 1

    @property
    def apart(self) -> bool:
        """Whether it was sampled apart from its wave, because an earlier attempt had failed."""
        return self.attempts > 1


async def run_jobs(
    runner: EpisodeRunner,
    planned: Sequence[PlannedEpisode],
    log: JsonlLog,
    provenance: Mapping[str, Any],
    wave_size: int,
    bar: Bar,
) -> list[Outcome]:
    """Run what `log` does not hold yet; outcomes in the order of `planned`. A failed episode is tried once more."""
    latest = latest_outcomes(log)
    tally = Tally()
    for start in range(0, len(planned), wave_size):
        wave = planned[start : start + wave_size]
        missing = [one for one in wave if not _completed(latest, one)]
        if missing:
            cut = any(one.job.episode_id not in latest for one in missing)
            attempts = await _run_wave(runner, wave if cut else missing)
            ids = {one.job.episode_id for one in missing}
            rows = [episode_trace(episode, provenance, one.chunks) for one, episode in attempts]
            rows = [row for row in rows if outcome(row).episode_id in ids]
            log.append_many(rows)
            _add(latest, rows, log)
        for one in wave:
            ended = latest[one.job.episode_id]
            tally.count(ended.completed, ended.reward, ended.success)
        bar.advance(len(wave), tally.note())
    return [latest[one.job.episode_id] for one in planned]


async def run_rolling(
    runner: EpisodeRunner,
    planned: Sequence[PlannedEpisode],
    log: JsonlLog,
    provenance: Mapping[str, Any],
    concurrency: int,
    bar: Bar,
) -> None:
    """Run what `log` does not hold yet, `concurrency` episodes at a time; failed ones once more at the end."""
    window = _Window(runner, log, provenance, concurrency, bar)
    failed = await window.run([one for one in planned if one.job.episode_id not in window.done])
    if failed:
        await window.run(failed)


@dataclass
class Tally:
    """The running means that a progress bar shows."""

    completed: int = 0
    failed: int = 0
    reward: float = 0.0
    successes: int = 0

    def count(self, completed: bool, reward: float, success: bool) -> None:
        if completed:
            self.completed += 1
            self.reward += reward
            self.successes += success
        else:
            self.failed += 1

    def note(self) -> str:
        n = max(1, self.completed)
        return f"reward {self.reward / n:.3f}  success {self.successes / n:.3f}  failed attempts {self.failed}"


class _Window:
    """A bounded number of running episodes over one trace log; `done` are the episodes that log completes."""

    def __init__(
        self, runner: EpisodeRunner, log: JsonlLog, provenance: Mapping[str, Any], concurrency: int, bar: Bar
    ) -> None:
        self.runner, self.log, self.provenance = runner, log, provenance
        self.concurrency, self.bar = concurrency, bar
        self.tally = Tally()
        self.done: set[str] = set()
        for trace in read_numbers(log):
            if trace.final is None:
                continue
            if trace.episode_id in self.done:
                raise _completed_twice(log, trace.episode_id)
            self.done.add(trace.episode_id)
            self.tally.count(True, trace.final.reward, trace.final.success)
        bar.advance(len(self.done), self.tally.note())

    async def run(self, planned: Sequence[PlannedEpisode]) -> list[PlannedEpisode]:
        """One attempt at each; returns those that failed."""
        failed: list[PlannedEpisode] = []
        queue = iter(planned)
        running: dict[asyncio.Task[Episode], PlannedEpisode] = {}

        def refill() -> None:
            for one in islice(queue, self.concurrency - len(running)):
                running[asyncio.ensure_future(self.runner.run(one.job, one.chunks, one.job.episode_id))] = one

        try:
            refill()
            while running:
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                attempts = [(running.pop(task), task.result()) for task in ended]
                refill()
                failed += [one for one, episode in attempts if not episode.scorable]
                await self._keep(attempts)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return failed

    async def _keep(self, attempts: Sequence[tuple[PlannedEpisode, Episode]]) -> None:
        """Put the attempts on disk; the others keep running meanwhile."""
        rows = [episode_trace(episode, self.provenance, one.chunks) for one, episode in attempts]
        await asyncio.to_thread(self.log.append_many, rows)
        for _, episode in attempts:
            self.tally.count(episode.scorable, episode.reward, episode.success)
        self.bar.advance(sum(episode.scorable for _, episode in attempts), self.tally.note())


def completed_outcomes(log: JsonlLog) -> dict[str, Outcome]:
    """Completed episodes of a trace log by episode id. Raises `StateCorrupted` when one stands there twice."""
    return {name: found for name, found in latest_outcomes(log).items() if found.completed}


def latest_outcomes(log: JsonlLog) -> dict[str, Outcome]:
    """Every attempted episode of a trace log by id: how it was completed, else its last failure.

    Raises `StateCorrupted` when one is completed twice.
    """
    latest: dict[str, Outcome] = {}
    _add(latest, log.read(), log)
    return latest


def _add(latest: dict[str, Outcome], rows: Iterable[Mapping[str, Any]], log: JsonlLog) -> None:
    """Count these attempts in."""
    for row in rows:
        try:
            found = outcome(row)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateCorrupted(f"{log.path}: a record is no episode trace ({error}); restore the file") from error
        earlier = latest.get(found.episode_id)
        if earlier is None:
            latest[found.episode_id] = found
        elif not earlier.completed:
            latest[found.episode_id] = replace(found, attempts=earlier.attempts + 1)
        elif found.completed:
            raise _completed_twice(log, found.episode_id)


def _completed(latest: Mapping[str, Outcome], one: PlannedEpisode) -> bool:
    return one.job.episode_id in latest and latest[one.job.episode_id].completed


def outcome(row: Mapping[str, Any]) -> Outcome:
    """The outcome of one trace."""
    job, final = EpisodeJob.from_record(row["job"]), row["final"] or {}
    return Outcome(
        episode_id=job.episode_id,
        task_id=job.task_id,
        completed=row["status"] == "completed",
        reward=float(final.get("reward", 0.0)),
        success=succeeded(final),
        detail=final.get("reward_detail") or {},
        steps=len(row["steps"]),
        termination=final.get("termination_reason"),
        provenance=row["provenance"],
    )


def _completed_twice(log: JsonlLog, episode_id: str) -> StateCorrupted:
    return StateCorrupted(f"{log.path}: {episode_id} is completed twice; remove one of the records")


async def _run_wave(runner: EpisodeRunner, wave: Sequence[PlannedEpisode]) -> list[tuple[PlannedEpisode, Episode]]:
    """Every attempt, the later one of an episode after the earlier."""
    attempts = await _gather(runner, wave)
    failed = [one for one, episode in attempts if not episode.scorable]
    return attempts + await _gather(runner, failed)


async def _gather(runner: EpisodeRunner, wave: Sequence[PlannedEpisode]) -> list[tuple[PlannedEpisode, Episode]]:
    episodes = await asyncio.gather(*(runner.run(one.job, one.chunks, one.job.episode_id) for one in wave))
    return list(zip(wave, episodes))
