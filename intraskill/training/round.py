"""A round's two ends: the gate and the evaluations that close it, the bank and curriculum the next one starts with.

At a round's end nothing is trained. At one frozen checkpoint the failed retries become candidates, the gate measures
bank and candidates, and the bank it selects is evaluated as a whole; then the next round is set up from it. Gate A
is the same thing before the first step, as the end of a round -1 that had none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from intraskill.core.errors import IntraSkillError, UserError
from intraskill.core.records import EpisodeJob
from intraskill.core.seeds import stable_seed
from intraskill.gate.earlier import read_earlier
from intraskill.gate.interventions import Candidate
from intraskill.gate.protocol import GateProtocol, measured_here
from intraskill.gate.result import GateResult, describe_evidence, evidence_record, gate_metrics
from intraskill.gate.run import run_gate
from intraskill.rollout.jobs import Outcome, PlannedEpisode, run_jobs
from intraskill.rollout.metrics import mean, standard_error
from intraskill.rollout.runner import EpisodeRunner
from intraskill.skills.bank import Bank, Chunk, read_bank, write_bank
from intraskill.skills.curriculum import Curriculum, build_curriculum, curriculum_record, parse_curriculum
from intraskill.storage.documents import read_json, write_json_atomic
from intraskill.storage.jsonl import JsonlLog
from intraskill.storage.run_documents import CurriculumShape
from intraskill.storage.run_folder import RunFolder
from intraskill.training.run import Run


@dataclass(frozen=True)
class Round:
    """What is in force during a round: its bank, and who sees which chunk of it."""

    index: int
    bank: Bank
    curriculum: Curriculum


def prepare_round(run: Run, index: int, bank: Bank) -> None:
    """Write down the bank and the curriculum of round `index`."""
    settings, folder = run.settings.curriculum, run.folder.round_dir(index)
    name = _curriculum_name(run.settings.seed, index)
    curriculum = build_curriculum(bank, settings.q, settings.rho_min, settings.rho_max, name)
    write_bank(folder / "skill_bank.json", bank)
    write_json_atomic(folder / "curriculum.json", {**curriculum_record(curriculum), "bank_sha256": bank.sha256})


def read_round(folder: RunFolder, index: int, seed: int) -> Round:
    """Round `index` as it was set up. Raises `UserError` when its files are not that."""
    path, bank_path = folder.round_dir(index) / "curriculum.json", folder.round_dir(index) / "skill_bank.json"
    record, bank = read_json(path, None, CurriculumShape), read_bank(bank_path)
    if record.get("bank_sha256", bank.sha256) != bank.sha256:
        raise UserError(f"{bank_path} was changed after its round began; put it back, or start a run with the new bank")
    curriculum, name = parse_curriculum(record, str(path)), _curriculum_name(seed, index)
    if curriculum.curriculum_id != name:
        raise UserError(f"{path} belongs to {curriculum.curriculum_id}, not to {name}; restore the round's own file")
    measured = [(chunk.skill_id, chunk.contribution) for chunk in bank.chunks]
    if [(item.skill_id, item.contribution) for item in curriculum.probabilities] != measured:
        raise UserError(f"{path} was made for another bank than skill_bank.json beside it; restore both")
    return Round(index, bank, curriculum)


def first_gate_needed(run: Run, checkpoint: str) -> bool:
    """Whether Gate A has to run: unless the initial bank's contributions were measured at this very checkpoint."""
    first = run.settings.gate.first
    measured = measured_here(run.bank, checkpoint, run.runner.protocol())
    return first == "always" or (first == "auto" and not measured)


async def gate_initial_bank(run: Run, checkpoint: str) -> Bank:
    """Gate A and its evaluations; returns the bank to start from.

    Raises `IntraSkillError` for an incomplete gate: unlike a later one it has no older values to keep.
    """
    result = await gate_bank(run, checkpoint, -1, run.bank)
    if not result.complete:
        raise IntraSkillError(
            f"{run.folder.gate_dir(-1)}: the gate on the initial bank could not score {result.unscored} of "
            f"{sum(map(len, result.runs.values()))} episodes (`error` in its *.jsonl says why); "
            "mend the environment or the policy's server and start again: what was scored is kept"
        )
    if result.problem:
        raise UserError(f"{run.folder.gate_dir(-1)}: the gate on the initial bank has no answer: {result.problem}")
    await evaluate_bank(run, checkpoint, -1, result.bank, also={"initial_bank": run.bank.chunks})
    return result.bank


async def gate_bank(run: Run, checkpoint: str, index: int, bank: Bank) -> GateResult:
    """Propose, measure, select; the result is on disk and in the metrics."""
    settings = run.settings.gate
    protocol = GateProtocol.of(
        settings,
        task_ids=run.gate_tasks,
        seed=run.settings.seed,
        round_index=index,
        step=run.closing_step(index),
        checkpoint=checkpoint,
        wave_size=run.wave_size,
    )
    gates = [run.folder.gate_dir(number) for number in range(-1, index)]
    earlier = read_earlier(gates, bank, settings.drift, rewards="mixed" in protocol.estimators)
    candidates = await _propose(run, index, bank) if index >= 0 else ()
    started = time.monotonic()
    result = await run_gate(run.runner, bank, candidates, protocol, run.folder.gate_dir(index), run.reporter, earlier)
    if (evidence := evidence_record(protocol, result)) is not None:
        run.reporter.say(describe_evidence(evidence))
    if not result.complete and index >= 0:
        run.reporter.say("gate: some episodes could not be scored twice in a row; the bank stays as it is")
    if result.problem:
        run.reporter.say(f"gate: {result.problem}; the bank stays as it is")
    timing = {"timing/gate_s": time.monotonic() - started}
    run.folder.metrics.append({**_heading(run, "gate", index), **gate_metrics(result), **timing})
    _record(run, index, "skill_free", result.bare)
    if index >= 0:
        run.proposer.settle(index, checkpoint, result)
    return result


async def evaluate_bank(
    run: Run, checkpoint: str, index: int, bank: Bank, also: Mapping[str, Sequence[Chunk]] | None = None
) -> None:
    """The round's other validation runs, each on the gate's tasks at the same checkpoint."""
    wanted: list[tuple[str, EpisodeRunner, Sequence[Chunk]]] = []
    if run.settings.evaluation.equipped:
        wanted.append(("equipped", run.runner, bank.chunks))
        wanted += [(name, run.runner, chunks) for name, chunks in (also or {}).items()]
    if run.settings.evaluation.greedy:
        wanted.append(("skill_free_greedy", run.runner.greedy(), ()))
    for condition, runner, chunks in wanted:
        await validate(run, checkpoint, index, condition, runner, chunks)


async def validate(
    run: Run, checkpoint: str, index: int, condition: str, runner: EpisodeRunner, chunks: Sequence[Chunk]
) -> None:
    """One run over the gate's tasks, all of them under the same chunks."""
    jobs = [
        EpisodeJob(task, 0, stable_seed("evaluate", condition, run.settings.seed, index, task), "val")
        for task in run.gate_tasks
    ]
    log = JsonlLog(run.folder.gate_dir(index) / f"{condition}.jsonl")
    provenance = {**runner.protocol(), "checkpoint": checkpoint}
    with run.reporter.bar(f"validation: {condition.replace('_', ' ')}", len(jobs)) as bar:
        planned = [PlannedEpisode(job, tuple(chunks)) for job in jobs]
        outcomes = await run_jobs(runner, planned, log, provenance, run.wave_size, bar)
    _record(run, index, condition, outcomes)


async def _propose(run: Run, index: int, bank: Bank) -> tuple[Candidate, ...]:
    """What the round's failed retries suggest, within the gate's limit."""
    retries = JsonlLog(run.folder.round_dir(index) / "retries.jsonl").read()
    proposed = await run.proposer.candidates(index, bank, retries)
    if proposed.metrics:
        run.folder.metrics.append({**_heading(run, "analysis", index), **proposed.metrics})
        cards = int(proposed.metrics.get("analysis/card_count", 0))
        run.reporter.say(f"analysis: failed retries read: {cards}, candidates: {len(proposed.candidates)}")
    return proposed.candidates[: run.settings.gate.candidates]


def _record(run: Run, index: int, condition: str, outcomes: Sequence[Outcome]) -> None:
    done = [one for one in outcomes if one.completed]
    rewards, successes = [one.reward for one in done], [float(one.success) for one in done]
    run.folder.metrics.append(
        {
            "kind": "evaluation",
            "round": index,
            "step": run.closing_step(index),
            "condition": condition,
            "n": len(rewards),
            "reward_mean": mean(rewards),
            "reward_se": standard_error(rewards),
            "success_rate": mean(successes),
            "success_se": standard_error(successes),
            "steps_mean": mean([float(one.steps) for one in done]),
        }
    )


def _heading(run: Run, kind: str, index: int) -> dict[str, Any]:
    step = run.closing_step(index)
    return {"kind": kind, "round": index, "step": step, "rollout/step": step}


def _curriculum_name(seed: int, index: int) -> str:
    return f"seed-{seed}/round-{index:03d}"
