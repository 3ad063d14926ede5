"""Reads a run directory for people: whatever is there so far, in the order it happened.

Reports are drawn while a run is still going, so nothing here is required: a missing or half-finished part reads as
empty. Round -1 is the gate on the initial bank, before the first step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intraskill.core.errors import UserError
from intraskill.families.registry import kind_of
from intraskill.skills.bank import bank_record, read_bank
from intraskill.storage.documents import read_json
from intraskill.storage.jsonl import JsonlLog
from intraskill.storage.run_documents import CurriculumShape, GateShape, MetricsRow, RunShape, StateShape

GATE_SCHEMA = "intraskill-contributions-v1"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GateFile:
    """One gate's result. `contributions` keep the order of the regression's columns.

    A gate that isn't `complete` (some task could not be scored) has no coefficients and leaves the bank as it was.
    `kept` are the chunks of the next bank, `dropped` those of the old one that it lacks: a rewritten one keeps its id,
    a candidate that was turned down never was in a bank.
    """

    round: int
    step: int
    observations: int
    estimator: str
    contributions: tuple[Row, ...]
    complete: bool
    kept: tuple[str, ...]

    @property
    def dropped(self) -> tuple[str, ...]:
        old = [str(row["intervention_id"]) for row in self.contributions if row["kind"] == "current"]
        return tuple(name for name in old if name not in self.kept)

    @property
    def measured(self) -> tuple[Row, ...]:
        """The rows that carry a coefficient."""
        return tuple(row for row in self.contributions if row.get("coefficient") is not None)


@dataclass(frozen=True, slots=True)
class Bank:
    """The chunks in force during one round; `probabilities` maps skill ids to inclusion probabilities."""

    round: int
    chunks: tuple[Row, ...]
    probabilities: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RunData:
    """Everything a report shows of one run. Rows are those of `metrics.jsonl`, by kind."""

    path: Path
    name: str
    settings: Mapping[str, Any]
    versions: Mapping[str, Any]
    fingerprint: str
    state: Mapping[str, Any]
    steps: tuple[Row, ...]
    updates: tuple[Row, ...]
    gate_rows: tuple[Row, ...]
    evaluations: tuple[Row, ...]
    gates: tuple[GateFile, ...]
    banks: tuple[Bank, ...]

    def outcome(self, name: str) -> str:
        """The key of a step's outcome, such as `success_rate`, under the prefix of the run's task family."""
        return kind_of(self.settings).metric_prefix + name

    @property
    def finished(self) -> bool:
        return bool(self.state.get("finished"))

    @property
    def step(self) -> int:
        """Training steps done so far."""
        return max([int(self.state.get("step", 0)), *(int(row["step"]) for row in self.steps)])

    @property
    def total_steps(self) -> int:
        """Training steps of the whole run; 0 when the settings don't tell."""
        return int(self.settings.get("rounds", 0)) * int(self.settings.get("steps_per_round", 0))

    def series(self, condition: str, field: str) -> list[tuple[int, float]]:
        """(step, value) of one evaluation condition, for example ("equipped", "success_rate").

        "bare" and "masked" are the gate's own runs; "skill_free" falls back to "bare", which is the same thing.
        """
        rows = [row for row in self.evaluations if row.get("condition") == condition and _number(row.get(field))]
        points = {int(row["step"]): float(row[field]) for row in rows}
        if condition in ("bare", "masked", "skill_free"):
            key = f"gate/{'masked' if condition == 'masked' else 'bare'}/{field}"
            for row in self.gate_rows:
                if _number(row.get(key)):
                    points.setdefault(int(row["step"]), float(row[key]))
        return sorted(points.items())

    def conditions(self) -> list[str]:
        """Evaluation conditions other than the gate's, in order of first appearance."""
        return list(dict.fromkeys(str(row["condition"]) for row in self.evaluations if "condition" in row))

    def titles(self) -> dict[str, str]:
        """A human title for every chunk that was ever in a bank or a gate."""
        named = {str(chunk["skill_id"]): str(chunk.get("title") or chunk["skill_id"]) for chunk in self._all_chunks()}
        for gate in self.gates:
            for row in gate.contributions:
                named.setdefault(str(row["intervention_id"]), str(row.get("title") or row["intervention_id"]))
        return named

    def _all_chunks(self) -> Iterable[Row]:
        return (chunk for bank in self.banks for chunk in bank.chunks)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def gate_dir(run_dir: Path, round_index: int) -> Path:
    """Where the gate that closed round `round_index` keeps its files; -1 is the gate on the initial bank."""
    return run_dir / "gate_a" if round_index < 0 else run_dir / "rounds" / f"round-{round_index:03d}" / "gate"


def read_gate(directory: Path) -> GateFile | None:
    """The gate in `directory`, or None when it isn't finished."""
    path = directory / "contributions.json"
    if not path.exists():
        return None
    document = read_json(path, GATE_SCHEMA, GateShape)
    selected = directory / "selected_skill_bank.json"
    return GateFile(
        round=document["round"],
        step=document["step"],
        observations=document["observations"],
        estimator=str(document.get("estimator", "")),
        contributions=tuple(document["contributions"]),
        complete=bool(document.get("complete", True)),
        kept=read_bank(selected).ids if selected.exists() else (),
    )


def _read_bank(directory: Path, round_index: int) -> Bank | None:
    path = directory / "skill_bank.json"
    if not path.exists():
        return None
    curriculum = directory / "curriculum.json"
    chances = read_json(curriculum, None, CurriculumShape)["chunks"] if curriculum.exists() else ()
    return Bank(
        round=round_index,
        chunks=_chunks(path),
        probabilities={chunk["skill_id"]: float(chunk["inclusion_probability"]) for chunk in chances},
    )


def _chunks(path: Path) -> tuple[Row, ...]:
    return tuple(bank_record(read_bank(path))["chunks"])


def _final_bank(run_dir: Path, round_index: int) -> Bank | None:
    """The bank the last gate selected, shown as the bank of the round after it."""
    path = gate_dir(run_dir, round_index) / "selected_skill_bank.json"
    return Bank(round_index + 1, _chunks(path), {}) if path.exists() else None


def read_run(run_dir: Path | str) -> RunData:
    """Everything there is to show of a run directory. Raises `UserError` when it is none."""
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise UserError(f"{run_dir}: no such run directory; give the folder that `intraskill train` made")
    if not (run_dir / "run.json").exists():
        raise UserError(f"{run_dir} is no run directory (it has no run.json); give the folder `intraskill train` made")
    run = read_json(run_dir / "run.json", "intraskill-run-v1", RunShape)
    rows = JsonlLog(run_dir / "metrics.jsonl", MetricsRow).read()
    rounds = sorted(
        int(path.name[6:])
        for path in run_dir.glob("rounds/round-*")
        if path.name[6:].isascii() and path.name[6:].isdigit()
    )
    banks = [_read_bank(run_dir / "rounds" / f"round-{index:03d}", index) for index in rounds]
    if rounds:
        banks.append(_final_bank(run_dir, rounds[-1]))
    state_path = run_dir / "state.json"
    return RunData(
        path=run_dir,
        name=str(run.get("name") or run_dir.resolve().name),
        settings=run.get("settings", {}),
        versions=run.get("versions", {}),
        fingerprint=str(run.get("fingerprint", "")),
        state=read_json(state_path, "intraskill-state-v1", StateShape) if state_path.exists() else {},
        steps=_of_kind(rows, "step"),
        updates=_of_kind(rows, "update"),
        gate_rows=_latest(_of_kind(rows, "gate")),
        evaluations=_latest(_of_kind(rows, "evaluation")),
        gates=tuple(gate for index in (-1, *rounds) if (gate := read_gate(gate_dir(run_dir, index)))),
        banks=tuple(bank for bank in banks if bank),
    )


def _latest(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """One row a round and condition: a gate that was completed later is measured and written down a second time."""
    return tuple({(row["round"], row.get("condition")): row for row in rows}.values())


def _of_kind(rows: list[Row], kind: str) -> tuple[Row, ...]:
    return tuple(row for row in rows if row.get("kind") == kind)
