"""The gate: what is each chunk still worth, at this very checkpoint?

Two runs over the same validation tasks: **bare** (no skill) and **masked** (every slot randomised independently). Their
per-task differences are regressed on the masks; the coefficients decide which chunks stay. Both runs must come from
one checkpoint under one protocol, so that a difference can only be the chunks'. The bare run is at the same time the
reported validation score.

A gate that lacks an episode, or whose estimator finds no answer, selects nothing: the bank stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from intraskill.core.errors import UserError
from intraskill.core.progress import Reporter
from intraskill.core.records import EpisodeJob
from intraskill.core.seeds import stable_seed
from intraskill.gate.design import Mask, draw_distinguishable_masks
from intraskill.gate.estimate import Estimate
from intraskill.gate.estimators import TWO_RUNS, fit
from intraskill.gate.interventions import Candidate, Intervention, build_pool, next_bank, slots
from intraskill.gate.protocol import GateProtocol, check_pairing, conditions
from intraskill.gate.result import GateResult, write_gate
from intraskill.gate.selection import Contribution, select
from intraskill.gate.table import RunTable, TableRow
from intraskill.rollout.jobs import Outcome, PlannedEpisode, run_jobs
from intraskill.rollout.runner import EpisodeRunner
from intraskill.skills.bank import Bank
from intraskill.storage.store import JsonlLog, write_json_atomic


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
    tasks = protocol.task_ids
    seed = stable_seed("masks", protocol.seed, protocol.round_index)
    masks = draw_distinguishable_masks(slots(pool), len(tasks), seed)
    ids = [item.intervention_id for item in pool]
    write_json_atomic(folder / "assignments.json", {"interventions": ids, "task_ids": tasks, "masks": masks})
    runs = {"bare": await _run(runner, protocol, "bare", [()] * len(tasks), pool, folder, reporter)}
    if pool:
        runs["masked"] = await _run(runner, protocol, "masked", masks, pool, folder, reporter)
    result = _judge(protocol, bank, pool, masks, runs, conditions(runner.protocol()))
    write_gate(folder, protocol, result)
    return result


async def _run(
    runner: EpisodeRunner,
    protocol: GateProtocol,
    kind: str,
    masks: Sequence[Mask],
    pool: Sequence[Intervention],
    folder: Path,
    reporter: Reporter,
) -> tuple[Outcome, ...]:
    planned = []
    for task_id, mask in zip(protocol.task_ids, masks):
        job = EpisodeJob(task_id, 0, stable_seed(kind, protocol.seed, protocol.round_index, task_id), "val")
        planned.append(PlannedEpisode(job, tuple(item.chunk for item, bit in zip(pool, mask) if bit)))
    provenance = {**runner.protocol(), "checkpoint": protocol.checkpoint}
    log = JsonlLog(folder / f"{kind}.jsonl")
    with reporter.bar(f"gate: {kind} run", len(planned)) as bar:
        return tuple(await run_jobs(runner, planned, log, provenance, protocol.wave_size, bar))


def _judge(
    protocol: GateProtocol,
    bank: Bank,
    pool: tuple[Intervention, ...],
    masks: Sequence[Mask],
    runs: Mapping[str, tuple[Outcome, ...]],
    here: str,
) -> GateResult:
    """Fit and select; `here` stands for the conditions that the bank's contributions were measured under."""
    complete = all(one.completed for run in runs.values() for one in run)
    if not pool or not complete:  # nothing to select from, or not enough to select by
        return GateResult(bank, pool, runs, complete, {}, {}, None)
    check_pairing(runs["bare"], runs["masked"])
    estimates, problems = _fit(protocol, pool, masks, runs)
    if protocol.estimator in problems:
        return GateResult(bank, pool, runs, complete, {}, problems, None)
    coefficients = estimates[protocol.estimator].coefficients
    selection = select([_contribution(item, coefficients[item.intervention_id]) for item in pool], protocol.budget)
    chosen = next_bank(bank, pool, selection.selected_ids, coefficients, (protocol.checkpoint, here))
    return GateResult(chosen, pool, runs, complete, estimates, problems, selection)


def _fit(
    protocol: GateProtocol,
    pool: Sequence[Intervention],
    masks: Sequence[Mask],
    runs: Mapping[str, tuple[Outcome, ...]],
) -> tuple[dict[str, Estimate], dict[str, str]]:
    """Every estimator's answer, the protocol's own first, or why it has none: one that fails leaves the others."""
    table = _table(pool, masks, runs)
    estimates: dict[str, Estimate] = {}
    problems: dict[str, str] = {}
    for name in (protocol.estimator, *(name for name in TWO_RUNS if name != protocol.estimator)):
        try:
            estimates[name] = fit(table, name)
        except UserError as error:
            problems[name] = str(error)
    return estimates, problems


def _table(pool: Sequence[Intervention], masks: Sequence[Mask], runs: Mapping[str, tuple[Outcome, ...]]) -> RunTable:
    """Every scored episode with what it was shown."""
    nothing = [(0,) * len(pool)] * len(masks)
    rows = [
        TableRow(str(one.task_id), name, mask, one.reward)
        for name, shown in (("bare", nothing), ("masked", masks))
        for one, mask in zip(runs[name], shown, strict=True)
    ]
    return RunTable(tuple(item.intervention_id for item in pool), tuple(rows))


def _contribution(item: Intervention, coefficient: float) -> Contribution:
    return Contribution(item.intervention_id, item.kind, item.logical_chunk_id, item.operation, item.order, coefficient)
