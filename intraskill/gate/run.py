"""The gate: what is each chunk still worth, at this very checkpoint?

Two runs over the same validation tasks: **bare** (no skill) and **masked** (every slot randomised independently). Their
per-task differences are regressed on the masks; the coefficients decide which chunks stay. Both runs must come from
one checkpoint under one protocol: `check_pairing` refuses anything else, so that a difference can only be the chunks'.
The bare run is at the same time the reported validation score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intraskill.core.errors import UserError
from intraskill.core.progress import Reporter
from intraskill.core.records import EpisodeJob
from intraskill.core.seeds import stable_seed
from intraskill.gate.design import draw_masks
from intraskill.gate.estimators import ESTIMATORS, Estimate, fit
from intraskill.gate.interventions import Candidate, Intervention, build_pool, next_bank, slots
from intraskill.gate.selection import Contribution, Selection, select
from intraskill.rollout.jobs import Outcome, PlannedEpisode, run_jobs
from intraskill.rollout.metrics import mean
from intraskill.rollout.runner import EpisodeRunner
from intraskill.skills.bank import Bank, render_chunk, write_bank
from intraskill.storage.store import JsonlLog, write_bytes_atomic, write_json_atomic

CONTRIBUTIONS_SCHEMA = "intraskill-contributions-v1"


@dataclass(frozen=True)
class GateProtocol:
    """What one gate runs. `round_index` -1 is Gate A, `checkpoint` names the weights, `wave_size` is in episodes."""

    task_ids: tuple[str, ...]
    budget: int
    estimator: str
    seed: int
    round_index: int
    step: int
    checkpoint: str
    wave_size: int


@dataclass(frozen=True)
class GateResult:
    """What a gate found: the next bank and the numbers it rests on. `complete` means every task has both runs."""

    bank: Bank
    bare: tuple[Outcome, ...]
    masked: tuple[Outcome, ...]
    pool: tuple[Intervention, ...]
    estimates: Mapping[str, Estimate]
    selection: Selection | None
    complete: bool


async def run_gate(
    runner: EpisodeRunner,
    bank: Bank,
    candidates: Sequence[Candidate],
    protocol: GateProtocol,
    folder: Path,
    reporter: Reporter,
) -> GateResult:
    """Measure, select, and write everything a reader needs to do it again into `folder`."""
    pool = build_pool(bank, candidates)
    ids = [item.intervention_id for item in pool]
    masks = draw_masks(slots(pool), len(protocol.task_ids), stable_seed("masks", protocol.seed, protocol.round_index))
    write_json_atomic(
        folder / "assignments.json", {"interventions": ids, "task_ids": protocol.task_ids, "masks": masks}
    )
    bare = await _run(runner, protocol, "bare", [()] * len(protocol.task_ids), pool, folder, reporter)
    masked = await _run(runner, protocol, "masked", masks, pool, folder, reporter) if pool else []
    result = _judge(protocol, bank, pool, masks, bare, masked)
    _write(folder, protocol, result)
    return result


def check_pairing(bare: Sequence[Outcome], masked: Sequence[Outcome]) -> None:
    """Refuse two runs that do not answer the same question. Raises `UserError` naming the first difference."""
    if [one.task_id for one in bare] != [one.task_id for one in masked]:
        raise UserError("gate: the bare and the masked run cover different tasks; run both over the same task list")
    reference = dict(bare[0].provenance) if bare else {}
    for run in (*bare, *masked):
        for key in reference.keys() | run.provenance.keys():
            if run.provenance.get(key) != reference.get(key):
                raise UserError(
                    f"gate: {run.episode_id} ran under another {key} ({run.provenance.get(key)!r}, not "
                    f"{reference.get(key)!r}); a gate compares one checkpoint with itself: delete the gate folder "
                    "and start again"
                )


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


async def _run(
    runner: EpisodeRunner,
    protocol: GateProtocol,
    kind: str,
    masks: Sequence[Sequence[int]],
    pool: Sequence[Intervention],
    folder: Path,
    reporter: Reporter,
) -> list[Outcome]:
    planned = []
    for task_id, mask in zip(protocol.task_ids, masks):
        job = EpisodeJob(task_id, 0, stable_seed(kind, protocol.seed, protocol.round_index, task_id), "val")
        planned.append(PlannedEpisode(job, tuple(item.chunk for item, bit in zip(pool, mask) if bit)))
    provenance = {**runner.protocol(), "checkpoint": protocol.checkpoint}
    with reporter.bar(f"gate: {kind} run", len(planned)) as bar:
        return await run_jobs(runner, planned, JsonlLog(folder / f"{kind}.jsonl"), provenance, protocol.wave_size, bar)


def _judge(
    protocol: GateProtocol,
    bank: Bank,
    pool: tuple[Intervention, ...],
    masks: Sequence[tuple[int, ...]],
    bare: Sequence[Outcome],
    masked: Sequence[Outcome],
) -> GateResult:
    complete = all(run.completed for run in (*bare, *masked))
    if not pool or not complete:  # nothing to select from, or not enough to select by: the bank stays
        return GateResult(bank, tuple(bare), tuple(masked), pool, {}, None, complete)
    check_pairing(bare, masked)
    ids = [item.intervention_id for item in pool]
    rewards = [run.reward for run in bare], [run.reward for run in masked]
    order = (protocol.estimator, *(name for name in ESTIMATORS if name != protocol.estimator))
    estimates = {name: fit(masks, *rewards, ids, name) for name in order}
    coefficients = estimates[protocol.estimator].coefficients
    rows = [
        Contribution(
            item.intervention_id,
            item.kind,
            item.logical_chunk_id,
            item.operation,
            item.order,
            coefficients[item.intervention_id],
        )
        for item in pool
    ]
    selection = select(rows, protocol.budget)
    chosen = next_bank(bank, pool, selection.selected_ids, coefficients, protocol.checkpoint)
    return GateResult(chosen, tuple(bare), tuple(masked), pool, estimates, selection, complete)


def _write(folder: Path, protocol: GateProtocol, result: GateResult) -> None:
    write_json_atomic(folder / "contributions.json", contributions_record(protocol, result))
    write_bank(folder / "selected_skill_bank.json", result.bank)
    markdown = "\n\n".join(render_chunk(chunk, "full") for chunk in result.bank.chunks)
    write_bytes_atomic(folder / "selected_skill.md", f"{markdown}\n".encode())


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
        "contributions": rows,
        "selected_intervention_ids": list(selection.selected_ids) if selection else [],
        "replacement_winners": dict(selection.replacement_winners) if selection else {},
        "bare_mean": metrics["gate/reward/bare_mean"],
        "masked_mean": metrics.get("gate/reward/masked_mean"),
        "delta_mean": metrics.get("gate/reward/delta_mean"),
    }


def _summary(runs: Sequence[Outcome]) -> dict[str, float]:
    done = [run for run in runs if run.completed]
    return {
        "coverage": len(done) / max(1, len(runs)),
        "reward_mean": mean([run.reward for run in done]),
        "success_rate": mean([float(run.success) for run in done]),
        "steps_mean": mean([float(run.steps) for run in done]),
    }
