"""Where a run's time goes: `timing.jsonl` in the run folder, one row a stretch of time.

A training step is spent on **episodes** (anything during which at least one runs, the gate's included), on the
**plugin**'s own work around them (drawing, filtering, fitting, writing), and **outside** the plugin, where slime
converts, trains, saves and hands over weights. What a trainer reports of its own (the smoke run's does) is a part of
the outside. The overhead of a round is all that is neither episodes nor training.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from intraskill.core.records import Episode, EpisodeJob
from intraskill.rollout.runner import EpisodeRunner
from intraskill.skills.bank import Chunk
from intraskill.storage.jsonl import JsonlLog

PARTS = ("train", "save", "weights")  # of the outside


@dataclass
class BusyClock:
    """Wall-clock seconds during which at least one episode was running."""

    seconds: float = 0.0
    _running: int = 0
    _since: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        if self._running == 0:
            self._since = time.monotonic()
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if self._running == 0:
                self.seconds += time.monotonic() - self._since


@dataclass(frozen=True)
class TimedRunner(EpisodeRunner):
    """An episode runner whose clock runs while episodes do."""

    clock: BusyClock = field(default_factory=BusyClock)

    async def run(self, job: EpisodeJob, chunks: Sequence[Chunk], group: str) -> Episode:
        with self.clock.running():
            return await super().run(job, chunks, group)


def timed(runner: EpisodeRunner, clock: BusyClock) -> TimedRunner:
    """The same runner, with a clock."""
    return TimedRunner(runner.family, runner.policy, runner.prompt, runner.settings, clock)


class TimingLog:
    """The run's `timing.jsonl`. The plugin and the trainer, two processes, write to it in turn."""

    def __init__(self, run: Path) -> None:
        self._log = JsonlLog(run / "timing.jsonl")
        self._left: float | None = None
        self._step = 0

    @contextmanager
    def plugin(self, step: int, clock: BusyClock) -> Iterator[None]:
        """One call of slime's into the plugin; the time since the last one belongs to that one's step."""
        entered, busy = time.monotonic(), clock.seconds
        if self._left is not None:
            self._write(self._step, "outside", entered - self._left)
        yield
        self._step, self._left = step, time.monotonic()
        episodes = clock.seconds - busy
        self._write(step, "episodes", episodes)
        self._write(step, "plugin", self._left - entered - episodes)

    @contextmanager
    def part(self, step: int, name: str) -> Iterator[None]:
        """A part of the outside that the trainer knows of; one of `PARTS`."""
        started = time.monotonic()
        yield
        self._write(step, name, time.monotonic() - started)

    def rewind(self, step: int) -> None:
        """Drop what belongs to steps that will be done again."""
        self._log.keep_where(lambda row: row["step"] <= step)

    def rounds(self, steps_per_round: int) -> dict[int, dict[str, float]]:
        """Seconds by round (-1: before the first step) and phase."""
        found: dict[int, dict[str, float]] = {}
        for row in self._log.read():
            phases = found.setdefault((row["step"] - 1) // steps_per_round, {})
            phases[row["phase"]] = phases.get(row["phase"], 0.0) + row["seconds"]
        return found

    def _write(self, step: int, phase: str, seconds: float) -> None:
        self._log.append({"step": step, "phase": phase, "seconds": round(seconds, 3)})


def overhead(phases: Mapping[str, float]) -> dict[str, float]:
    """Seconds of one round that are neither episodes nor training; `slime` is the rest of the outside."""
    rest = phases.get("outside", 0.0) - sum(phases.get(part, 0.0) for part in PARTS)
    found = {"plugin": phases.get("plugin", 0.0), "save": phases.get("save", 0.0)}
    return {**found, "weights": phases.get("weights", 0.0), "slime": max(0.0, rest)}
