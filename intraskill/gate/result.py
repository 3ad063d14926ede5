"""What a gate found, and what is kept of it: its metrics, and the files from which a reader can do it again.

`assignments.json` and the runs' traces are written while the gate runs; `write_gate` adds what it found:
`contributions.json` (every intervention with its coefficient under each estimator, rank and status), `evidence.json`
(how well each effect is known, and what is believed of it), `selected_skill_bank.json` and `selected_skill.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intraskill.gate.earlier import EVIDENCE_SCHEMA
from intraskill.gate.estimate import Estimate
from intraskill.gate.evidence import expected_errors, smallest_effect
from intraskill.gate.interventions import Intervention
from intraskill.gate.judge import Judgement
from intraskill.gate.protocol import GateProtocol
from intraskill.gate.selection import Selection
from intraskill.rollout.jobs import Outcome
from intraskill.rollout.metrics import mean
from intraskill.skills.bank import Bank, render_chunk, write_bank
from intraskill.storage.documents import write_bytes_atomic, write_json_atomic

CONTRIBUTIONS_SCHEMA = "intraskill-contributions-v1"


@dataclass(frozen=True)
class GateResult:
    """What a gate found: the next bank and what it rests on.

    `complete` means that every planned episode was scored; `judgement` is None where that is not so, and where there
    was nothing to judge.
    """

    bank: Bank
    pool: tuple[Intervention, ...]
    runs: Mapping[str, tuple[Outcome, ...]]
    complete: bool
    judgement: Judgement | None

    @property
    def bare(self) -> tuple[Outcome, ...]:
        return self.runs["bare"]

    @property
    def masked(self) -> tuple[Outcome, ...]:
        return self.runs.get("masked", ())

    @property
    def estimates(self) -> Mapping[str, Estimate]:
        """Every estimator's answer, the protocol's own first; empty where that one has none."""
        return self.judgement.estimates if self.judgement else {}

    @property
    def selection(self) -> Selection | None:
        return self.judgement.selection if self.judgement else None

    @property
    def problems(self) -> Mapping[str, str]:
        """Why estimators have no answer."""
        return self.judgement.problems if self.judgement else {}

    @property
    def problem(self) -> str:
        """Why nothing could be selected; nothing where it could, or where nobody asked."""
        return "" if self.estimates else next(iter(self.problems.values()), "")

    @property
    def unscored(self) -> int:
        """Episodes that failed for technical reasons."""
        return sum(not one.completed for run in self.runs.values() for one in run)


def write_gate(folder: Path, protocol: GateProtocol, result: GateResult) -> None:
    """The gate's result; the bank comes last, since what reads it relies on the rest."""
    write_json_atomic(folder / "contributions.json", contributions_record(protocol, result))
    if (evidence := evidence_record(protocol, result)) is not None:
        write_json_atomic(folder / "evidence.json", evidence)
    write_bank(folder / "selected_skill_bank.json", result.bank)
    markdown = "\n\n".join(render_chunk(chunk, "full") for chunk in result.bank.chunks)
    write_bytes_atomic(folder / "selected_skill.md", f"{markdown}\n".encode())


def gate_metrics(result: GateResult) -> dict[str, float]:
    """The `gate/*` metrics of one gate."""
    bare, masked = _summary(result.bare), _summary(result.masked)
    values = {f"gate/bare/{name}": value for name, value in bare.items()}
    values |= {f"gate/masked/{name}": value for name, value in masked.items() if result.masked}
    others = (name for name in result.runs if name not in ("bare", "masked"))
    values |= {f"gate/{run}/{name}": value for run in others for name, value in _summary(result.runs[run]).items()}
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
        rows = result.selection.rows if result.selection else ()
        if undecided := sum(row.status == "undecided" for row in rows):
            values["gate/undecided_chunk_count"] = undecided
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


def evidence_record(protocol: GateProtocol, result: GateResult) -> dict[str, Any] | None:
    """How much the gate could see, as JSON; None where nothing was measured well enough to tell.

    `smallest_effect` is what the rule would find with 80 % power. The expected wrong keeps and drops are sums of
    probabilities. `beliefs` are those about the next bank's chunks.
    """
    judged = result.judgement
    if judged is None or judged.posterior is None or judged.selection is None:
        return None
    posterior, estimate = judged.posterior, judged.estimates[protocol.estimator]
    confidence = protocol.confidence if protocol.rule == "evidence" else 0.5
    status = {row.intervention_id: row.status for row in judged.selection.rows}
    rows = []
    for item in result.pool:
        name = item.intervention_id
        belief, error = posterior.belief(name), estimate.standard_errors[name]
        rows.append(
            {
                "intervention_id": name,
                "logical_chunk_id": item.logical_chunk_id,
                "status": status[name],
                "estimate": estimate.coefficients[name],
                "standard_error": error,
                "smallest_effect": smallest_effect(error, posterior.spread, confidence),
                "mean": belief.mean,
                "variance": belief.variance,
                "helps": posterior.helps(name),
            }
        )
    kept = [name for name in judged.selection.selected_ids if status[name] == "selected"]
    dropped = [name for name, verdict in status.items() if verdict in ("retired", "non_positive")]
    wrong_keeps, wrong_drops = expected_errors(posterior, kept, dropped)
    return {
        "schema": EVIDENCE_SCHEMA,
        "round": protocol.round_index,
        "step": protocol.step,
        "checkpoint_id": protocol.checkpoint,
        "design": protocol.design,
        "estimator": protocol.estimator,
        "rule": protocol.rule,
        "confidence": confidence,
        "episodes": sum(map(len, result.runs.values())),
        "prior_spread": posterior.spread,
        "expected_wrong_keeps": wrong_keeps,
        "expected_wrong_drops": wrong_drops,
        "effects": rows,
        "beliefs": [
            {"skill_id": item.logical_chunk_id, "mean": belief.mean, "variance": belief.variance}
            for item in result.pool
            if item.intervention_id in judged.selection.selected_ids
            for belief in [posterior.belief(item.intervention_id)]
        ],
    }


def describe_evidence(record: Mapping[str, Any]) -> str:
    """One line about how much a gate could see."""
    errors = [row["standard_error"] for row in record["effects"]]
    smallest = max(row["smallest_effect"] for row in record["effects"])
    undecided = sum(row["status"] == "undecided" for row in record["effects"])
    keeps, drops = record["expected_wrong_keeps"], record["expected_wrong_drops"]
    seen = f"standard errors {min(errors):.3f} to {max(errors):.3f}, finds an effect of {smallest:.3f} with 80 % power"
    doubt = f"; {undecided} undecided" if undecided else ""
    return f"gate: {seen}; likely wrong: {keeps:.1f} kept, {drops:.1f} dropped{doubt}"


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
