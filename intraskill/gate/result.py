"""What a gate found, and what is kept of it: its metrics, and the files from which a reader can do it again.

`assignments.json` and the runs' traces are written while the gate runs; `write_gate` adds what it found:
`contributions.json` (every intervention with its coefficient under each estimator, rank and status),
`selected_skill_bank.json` and `selected_skill.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intraskill.gate.estimate import Estimate
from intraskill.gate.interventions import Intervention
from intraskill.gate.protocol import GateProtocol
from intraskill.gate.selection import Selection
from intraskill.rollout.jobs import Outcome
from intraskill.rollout.metrics import mean
from intraskill.skills.bank import Bank, render_chunk, write_bank
from intraskill.storage.store import write_bytes_atomic, write_json_atomic

CONTRIBUTIONS_SCHEMA = "intraskill-contributions-v1"


@dataclass(frozen=True)
class GateResult:
    """What a gate found: the next bank and the numbers it rests on.

    `complete` means that every task has all its runs. `estimates` begins with the protocol's own estimator; it is empty
    where that one could not be fitted, and `problems` says why, by estimator.
    """

    bank: Bank
    pool: tuple[Intervention, ...]
    runs: Mapping[str, tuple[Outcome, ...]]
    complete: bool
    estimates: Mapping[str, Estimate]
    problems: Mapping[str, str]
    selection: Selection | None

    @property
    def bare(self) -> tuple[Outcome, ...]:
        return self.runs["bare"]

    @property
    def masked(self) -> tuple[Outcome, ...]:
        return self.runs.get("masked", ())

    @property
    def problem(self) -> str:
        """Why the protocol's estimator has no answer; nothing where it has one, or was never asked."""
        return "" if self.estimates else next(iter(self.problems.values()), "")

    @property
    def unscored(self) -> int:
        """Episodes that failed for technical reasons."""
        return sum(not one.completed for run in self.runs.values() for one in run)


def write_gate(folder: Path, protocol: GateProtocol, result: GateResult) -> None:
    """The gate's result; the bank comes last, since what reads it relies on the rest."""
    write_json_atomic(folder / "contributions.json", contributions_record(protocol, result))
    write_bank(folder / "selected_skill_bank.json", result.bank)
    markdown = "\n\n".join(render_chunk(chunk, "full") for chunk in result.bank.chunks)
    write_bytes_atomic(folder / "selected_skill.md", f"{markdown}\n".encode())


def gate_metrics(result: GateResult) -> dict[str, float]:
    """The `gate/*` metrics of one gate."""
    bare, masked = _summary(result.bare), _summary(result.masked)
    values = {f"gate/bare/{name}": value for name, value in bare.items()}
    values |= {f"gate/masked/{name}": value for name, value in masked.items() if result.masked}
    values |= {
        "gate/complete": float(result.complete),
        "gate/reward/bare_mean": bare["reward_mean"],
        "gate/intervention_count": len(result.pool),
        "gate/selected_chunk_count": len(result.bank.chunks),
    }
    if result.masked:
        values["gate/reward/masked_mean"] = masked["reward_mean"]
        values["gate/reward/delta_mean"] = masked["reward_mean"] - bare["reward_mean"]
    if result.estimates:
        chosen = next(iter(result.estimates.values()))
        values["gate/positive_chunk_count"] = sum(value > 0 for value in chosen.coefficients.values())
    return values


def contributions_record(protocol: GateProtocol, result: GateResult) -> dict[str, Any]:
    """The gate's result as JSON: every intervention with its coefficient under each estimator, rank and status."""
    selection = result.selection
    verdicts = {row.intervention_id: row for row in selection.rows} if selection else {}
    rows = []
    for item in result.pool:
        row: dict[str, Any] = {
            "intervention_id": item.intervention_id,
            "kind": item.kind,
            "logical_chunk_id": item.logical_chunk_id,
            "operation": item.operation,
            "order": item.order,
            "title": item.chunk.title,
        }
        for name, estimate in result.estimates.items():
            values = {
                "coefficient": estimate.coefficients[item.intervention_id],
                "standard_error": estimate.standard_errors[item.intervention_id],
                "standard_error_hc3": estimate.standard_errors_hc3[item.intervention_id],
            }
            row |= values if name == protocol.estimator else {name: values}
        if verdict := verdicts.get(item.intervention_id):
            row |= {"rank": verdict.rank, "status": verdict.status}
        rows.append(row)
    metrics = gate_metrics(result)
    return {
        "schema": CONTRIBUTIONS_SCHEMA,
        "round": protocol.round_index,
        "step": protocol.step,
        "checkpoint_id": protocol.checkpoint,
        "observations": len(result.masked),
        "estimator": protocol.estimator,
        "complete": result.complete,
        "problems": dict(result.problems),
        "sampled_apart": {name: _apart(run) for name, run in result.runs.items()},
        "contributions": rows,
        "selected_intervention_ids": list(selection.selected_ids) if selection else [],
        "replacement_winners": dict(selection.replacement_winners) if selection else {},
        "bare_mean": metrics["gate/reward/bare_mean"],
        "masked_mean": metrics.get("gate/reward/masked_mean"),
        "delta_mean": metrics.get("gate/reward/delta_mean"),
    }


def _apart(run: Sequence[Outcome]) -> list[str]:
    """Tasks whose episode was not sampled together with the others, since it failed at first."""
    return [one.task_id for one in run if one.completed and one.apart]


def _summary(runs: Sequence[Outcome]) -> dict[str, float]:
    done = [run for run in runs if run.completed]
    return {
        "coverage": len(done) / max(1, len(runs)),
        "reward_mean": mean([run.reward for run in done]),
        "success_rate": mean([float(run.success) for run in done]),
        "steps_mean": mean([float(run.steps) for run in done]),
    }
