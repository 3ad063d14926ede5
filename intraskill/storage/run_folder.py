"""One run's folder: what is in it, how far it got, and how it is opened again.

`state.json` alone says what is finished; it is replaced atomically after everything it speaks of is on disk. Whatever
the logs hold beyond it belongs to work that was cut short: opening the folder drops those records, and the work is
done again from the same state with the same seeds. That is why a run killed at any point ends like one never killed.
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import intraskill
from intraskill.core.errors import StateCorrupted, UserError
from intraskill.storage.documents import read_json, write_json_atomic
from intraskill.storage.fingerprint import describe_difference, fingerprint
from intraskill.storage.jsonl import JsonlLog
from intraskill.storage.run_documents import Count, LedgerShape, MetricsRow, StepRow
from intraskill.storage.schema import parse, unknown_keys

RUN_SCHEMA = "intraskill-run-v1"
STATE_SCHEMA = "intraskill-state-v1"
_WORK = ("state.json", "metrics.jsonl", "gate_a", "rounds", "checkpoints", "states")


class Meaning(Protocol):
    """A run's settings, as far as its folder looks at them."""

    @property
    def name(self) -> str: ...

    def semantic(self) -> dict[str, Any]:
        """The part that decides what the run means."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """All of them, as they are stored."""


@dataclass(frozen=True)
class RunState:
    """What is finished: `step` training steps, `rounds_closed` rounds, and Gate A if `opened`.

    `stream` is the position in the task stream, `next_group` the index of the next group, `technical_run` the number
    of unscorable groups in a row at the end of the last step.
    """

    step: Count = 0
    rounds_closed: Count = 0
    opened: bool = False
    finished: bool = False
    next_group: Count = 0
    technical_run: Count = 0
    stream: dict[str, Any] = field(default_factory=dict)


class RunFolder:
    """Paths and logs of `runs/<name>/`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = JsonlLog(path / "metrics.jsonl", MetricsRow)
        self.ledger = JsonlLog(path / "ledger.jsonl", LedgerShape)

    def round_dir(self, index: int) -> Path:
        return self.path / "rounds" / f"round-{index:03d}"

    def gate_dir(self, index: int) -> Path:
        """The gate that closed round `index`; -1 is Gate A, before the first step."""
        return self.path / "gate_a" if index < 0 else self.round_dir(index) / "gate"

    def checkpoint_dir(self, step: int) -> Path:
        return self.path / "checkpoints" / f"step-{step:04d}"

    def read_state(self) -> RunState:
        path = self.path / "state.json"
        return parse_state(path) if path.exists() else RunState()

    def write_state(self, state: RunState) -> None:
        write_json_atomic(self.path / "state.json", {"schema": STATE_SCHEMA, **asdict(state)})

    def remember_state(self, state: RunState) -> None:
        """Keep the state of this step, so that the run can go back to it; for backends whose checkpoints lag behind."""
        write_json_atomic(self._remembered(state.step), {"schema": STATE_SCHEMA, **asdict(state)})

    def rewind(self, step: int, steps_per_round: int) -> RunState:
        """Go back to where `step` steps were finished, the point of the checkpoint that training continues from.

        Gates that closed a round up to that step stay: they ran at that checkpoint. Everything later is dropped.
        Raises `StateCorrupted` when the folder does not reach that step or does not remember it.
        """
        found = self.read_state()
        if step == found.step:
            return found
        if step > found.step:
            raise StateCorrupted(
                f"{self.path}: the checkpoint is at step {step}, the run folder only at step {found.step}; "
                "continue with the run folder that belongs to the checkpoint"
            )
        closed = min(found.rounds_closed, step // steps_per_round)
        state = replace(self._recall(step), opened=found.opened, rounds_closed=closed, finished=False)
        for index in range(closed, found.rounds_closed + 1):
            shutil.rmtree(self.gate_dir(index), ignore_errors=True)
            for summary in self.round_dir(index).glob("analysis/*.json"):  # its logs are cut by `roll_back`
                summary.unlink()
            if index > closed:
                shutil.rmtree(self.round_dir(index), ignore_errors=True)
        self.write_state(state)
        return state

    def _recall(self, step: int) -> RunState:
        return parse_state(self._remembered(step)) if step else RunState()

    def _remembered(self, step: int) -> Path:
        return self.path / "states" / f"step-{step:04d}.json"

    def claim(self, settings: Meaning, meaning: Mapping[str, Any], overrides: Sequence[str] = ()) -> None:
        """Write run.json, or check that the folder was made by a run of the same meaning.

        `meaning` holds the identities that settings only point at: model, environment, prompt, bank. `overrides` are
        what of the settings the command line said; they are written down. Raises `UserError` naming every difference
        to the run that the folder belongs to. A folder in which no work was done yet, because the settings were
        refused, belongs to nobody: mended settings take it over.
        """
        path = self.path / "run.json"
        semantic = {"settings": settings.semantic(), **meaning}
        if path.exists() and any((self.path / name).exists() for name in _WORK):
            found = read_json(path, RUN_SCHEMA)
            if found.get("fingerprint") != fingerprint(semantic):
                changes = "; ".join(describe_difference(found.get("semantic"), semantic)) or "run.json was edited"
                raise UserError(f"{self.path} belongs to a run with other settings ({changes}); choose another name")
            return
        write_json_atomic(
            path,
            {
                "schema": RUN_SCHEMA,
                "name": settings.name,
                "settings": settings.model_dump(mode="json"),
                "semantic": semantic,
                "fingerprint": fingerprint(semantic),
                "versions": {"intraskill": intraskill.__version__, "python": platform.python_version()},
                "command": sys.argv[1:],
                "overrides": list(overrides),
            },
        )

    def roll_back(self, state: RunState) -> None:
        """Drop the records of work that `state` does not count as finished; only the current round can hold any."""
        self.metrics.keep_where(lambda row: _finished(row, state))
        self.ledger.keep_where(lambda row: row["round"] < state.rounds_closed)
        current = self.round_dir(state.rounds_closed)
        for log in sorted([*current.glob("*.jsonl"), *current.glob("analysis/*.jsonl")]):
            JsonlLog(log, StepRow).keep_where(lambda row: row["step"] <= state.step)


def _finished(row: dict[str, Any], state: RunState) -> bool:
    if row["kind"] in ("step", "update"):
        return bool(row["step"] <= state.step)
    if row["round"] < 0:
        return state.opened
    return bool(row["round"] < state.rounds_closed)


def parse_state(path: Path) -> RunState:
    """The state in this file. Raises `StateCorrupted` naming the key that does not fit."""
    document = read_json(path, STATE_SCHEMA)
    document.pop("schema")
    for key in unknown_keys(document, RunState):
        raise StateCorrupted(f"{path}: {key} is no part of a run's state; restore the file")
    return parse(RunState, document, str(path))
