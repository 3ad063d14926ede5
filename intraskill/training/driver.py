"""The method, as one driver that both backends call.

A backend owns the weights; the driver owns everything else: which tasks, which assignments, which groups are trained
on, what a round's gate says, and what is on disk. The whole run reads:

    await driver.open()                      # Gate A on the initial bank, where it has not been measured yet
    while not driver.finished:
        batch = await driver.generate()      # draw assignments, roll out, filter, retry, triage
        updates = backend.train(batch)       # two optimizer updates on the kept groups, then a checkpoint
        driver.commit(batch, updates)        # records first, then the state that says the step is finished
        if driver.round_due:
            await driver.close_round()       # propose, bare, masked, fit, select, next curriculum

`state.json` moves only in `open`, `commit` and `close_round`, each time after everything it speaks of is on disk, so
calling the same sequence again after a kill continues exactly where the finished work ends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from intraskill.agent.trace import episode_trace, training_record
from intraskill.core.errors import IntraSkillError, UserError
from intraskill.core.progress import Reporter
from intraskill.core.records import Episode, EpisodeJob, Group
from intraskill.core.seeds import stable_seed
from intraskill.gate.interventions import Candidate, CandidateSource, NoCandidates
from intraskill.gate.run import GateProtocol, GateResult, gate_metrics, run_gate
from intraskill.rollout.collect import Collected, collect_in_completion_order, collect_in_submission_order
from intraskill.rollout.filter import GroupFilter
from intraskill.rollout.groups import GroupPlan, retry_all_wrong, run_group
from intraskill.rollout.jobs import Outcome, PlannedEpisode, completed_outcomes, run_jobs
from intraskill.rollout.metrics import mean, standard_error, step_metrics
from intraskill.rollout.runner import EpisodeRunner
from intraskill.rollout.tasks import TaskStream
from intraskill.rollout.triage import Triage, triage
from intraskill.settings.models import RunSettings
from intraskill.skills.bank import Bank, Chunk, read_bank, write_bank
from intraskill.skills.curriculum import (
    Curriculum,
    build_curriculum,
    curriculum_record,
    draw_assignment,
    parse_curriculum,
)
from intraskill.storage.run_documents import CurriculumShape, GateShape
from intraskill.storage.run_folder import RunFolder, RunState
from intraskill.storage.store import JsonlLog, read_json, write_json_atomic


@dataclass(frozen=True)
class Splits:
    """Task ids by role: `train` makes the stream, `validation` feeds the gates."""

    train: tuple[int, ...]
    validation: tuple[int, ...]


@dataclass(frozen=True)
class StepBatch:
    """One generated step: every finished group with its verdict and triage, and where the stream stands after it."""

    step: int
    round_index: int
    checkpoint: str
    collected: Collected
    retries: Mapping[int, Episode]
    triages: Sequence[Triage]
    metrics: Mapping[str, float]
    next_state: RunState

    @property
    def kept(self) -> list[Group]:
        return self.collected.kept


class RoundDriver:
    """Everything of a run but the weights. `checkpoint` is set by the backend whenever the policy's weights change."""

    def __init__(
        self,
        settings: RunSettings,
        folder: RunFolder,
        runner: EpisodeRunner,
        splits: Splits,
        bank: Bank,
        reporter: Reporter,
        wave_size: int = 400,
        proposer: CandidateSource | None = None,
    ) -> None:
        if len(splits.validation) < settings.gate.tasks:
            raise UserError(
                f"gate.tasks is {settings.gate.tasks} but the validation split has {len(splits.validation)} tasks; "
                "lower gate.tasks or use a larger world"
            )
        if bank.draft_only:
            raise UserError(
                "the initial bank is a draft that no gate has measured; run `intraskill coldstart gate` on it and "
                "train with the selected_skill_bank.json it writes"
            )
        self.settings, self.folder, self.runner, self.reporter = settings, folder, runner, reporter
        self.splits, self.initial_bank, self.wave_size = splits, bank, wave_size
        self.proposer = proposer or NoCandidates()
        self.checkpoint = ""
        self._round: tuple[int, tuple[Bank, Curriculum]] | None = None
        self.state = folder.read_state()
        folder.roll_back(self.state)

    def rewind(self, step: int) -> None:
        """Continue from an earlier step than the last finished one: the backend's checkpoint is that of `step`."""
        self.state = self.folder.rewind(step, self.settings.steps_per_round)
        self._round = None
        self.folder.roll_back(self.state)

    @property
    def finished(self) -> bool:
        return self.state.finished

    @property
    def round_index(self) -> int:
        return self.state.rounds_closed

    @property
    def round_due(self) -> bool:
        """Whether a whole round of steps is finished and its gate is not."""
        return self.state.step >= (self.state.rounds_closed + 1) * self.settings.steps_per_round

    async def open(self) -> None:
        """Prepare round 0: gate the initial bank unless its contributions were measured at this very checkpoint."""
        if self.state.opened:
            return
        bank = self.initial_bank
        if self._first_gate_needed():
            result = await self._gate(-1, bank)
            self._check_first_gate(result)
            bank = result.bank
            await self._evaluate(-1, bank, also={"initial_bank": self.initial_bank.chunks})
        self._prepare_round(0, bank)
        self._advance(replace(self.state, opened=True))

    async def evaluate_start(self) -> None:
        """Score the untrained policy without skills, once; Gate A's bare run is the same thing."""
        done = any(row["kind"] == "evaluation" and row["round"] < 0 for row in self.folder.metrics.read())
        if not done:
            await self._validate(-1, "skill_free", self.runner, ())

    async def generate(self) -> StepBatch:
        """Roll out the next step's groups, filter them, retry the all-wrong ones, and measure."""
        started = time.monotonic()
        step, bank, curriculum = self.state.step + 1, self.bank(), self.curriculum()
        rollout, seed = self.settings.rollout, self.settings.seed
        stream = TaskStream(self.splits.train, seed)
        if self.state.stream:
            stream.restore(self.state.stream)
        next_group = self.state.next_group

        def plan_wave() -> list[GroupPlan]:
            nonlocal next_group
            indices = range(next_group, next_group + rollout.generated_groups)
            next_group = indices.stop
            tasks = stream.take(len(indices))
            return [GroupPlan(i, task, draw_assignment(curriculum, i)) for i, task in zip(indices, tasks)]

        async def run(plan: GroupPlan) -> Group:
            return await run_group(self.runner, plan, bank, rollout.group_size, seed)

        judge = GroupFilter(rollout.kept_groups, rollout.technical_limit, self.state.technical_run)
        by_completion = rollout.order == "completion"
        collect = collect_in_completion_order if by_completion else collect_in_submission_order
        collected = await collect(run, plan_wave, judge)
        stream.give_back([plan.task_id for plan in collected.aborted])
        retries = await retry_all_wrong(self.runner, collected.groups, bank, seed)
        triages = [triage(group, retries.get(group.index)) for group in collected.groups]
        metrics = step_metrics(collected.groups, collected.verdicts, triages, list(retries.values()), curriculum)
        return StepBatch(
            step=step,
            round_index=self.round_index,
            checkpoint=self.checkpoint,
            collected=collected,
            retries=retries,
            triages=triages,
            metrics=metrics | {"timing/rollout_s": time.monotonic() - started},
            next_state=replace(
                self.state,
                step=step,
                stream=stream.state(),
                next_group=next_group,
                technical_run=judge.technical_run,
            ),
        )

    def commit(self, batch: StepBatch, updates: Sequence[Mapping[str, float]], timing: Mapping[str, float]) -> None:
        """Put the step's records on disk, then the state that counts it as finished."""
        folder = self.folder.round_dir(batch.round_index)
        provenance = {**self.runner.protocol(), "checkpoint": batch.checkpoint}
        bank = self.bank()
        groups = [_group_row(batch, position) for position in range(len(batch.triages))]
        traces = [
            {"step": batch.step, "group_index": group.index, **_trace(episode, provenance, bank)}
            for group in batch.collected.groups
            for episode in group.episodes
        ]
        retried = [
            {"step": batch.step, "group_index": index, **_trace(episode, provenance, bank)}
            for index, episode in batch.retries.items()
        ]
        tokens = [
            {"step": batch.step, "group_index": group.index, **training_record(episode)}
            for group in batch.kept
            for episode in group.episodes
        ]
        for name, rows in (("groups", groups), ("episodes", traces), ("retries", retried), ("tokens", tokens)):
            JsonlLog(folder / f"{name}.jsonl").append_many(rows)
        heading = {"round": batch.round_index, "step": batch.step}
        first = (batch.step - 1) * self.settings.train.updates_per_step
        self.folder.metrics.append_many(
            [
                {"kind": "step", **heading, "rollout/step": batch.step, **batch.metrics, **timing},
                *({"kind": "update", **heading, "train/step": first + i, **u} for i, u in enumerate(updates, start=1)),
            ]
        )
        self._advance(batch.next_state)
        self.proposer.observe(batch.round_index, bank, retried)

    async def close_round(self) -> None:
        """Gate the bank at the round's end and set up the next round."""
        index = self.round_index
        result = await self._gate(index, self.bank())
        await self._evaluate(index, result.bank)
        last = index + 1 >= self.settings.rounds
        if not last:
            self._prepare_round(index + 1, result.bank)
        self._advance(replace(self.state, rounds_closed=index + 1, finished=last))

    async def complete_gate(self, index: int) -> GateResult:
        """Run what an incomplete gate lacks, at the checkpoint it stands for; episodes it holds are not run again.

        If no step was taken since, the next round starts from what it selects, and the bank it selects is evaluated
        anew; else it only completes the record. After a kill, calling it again does what is left.
        Raises `UserError` when there is nothing to complete or the weights are others.
        """
        path = self.folder.gate_dir(index) / "contributions.json"
        record = read_json(path, None, GateShape)
        latest = index + 1 == self.round_index and self.state.step == self._closing_step(index)
        if record.get("complete", True) and (not latest or self._taken_up(index)):
            raise UserError(f"{path}: this gate is complete; nothing is left to run")
        if record.get("checkpoint_id") != self.checkpoint:
            raise UserError(f"{path} stands for {record.get('checkpoint_id')}, the policy is {self.checkpoint}")
        bank = self.initial_bank if index < 0 else read_bank(self.folder.round_dir(index) / "skill_bank.json")
        result = await self._gate(index, bank)
        if latest and result.complete:
            if not self.finished:
                self._prepare_round(index + 1, result.bank)
            if self._outdated(index, result.bank):
                (self.folder.gate_dir(index) / "equipped.jsonl").unlink()
            await self._evaluate(index, result.bank)
        return result

    def _taken_up(self, index: int) -> bool:
        """Whether the next round and the evaluation of the whole bank rest on what this gate selected."""
        folder, after = self.folder.gate_dir(index), self.folder.round_dir(index + 1) / "skill_bank.json"
        selected = read_bank(folder / "selected_skill_bank.json")
        if not self.finished and read_bank(after) != selected:
            return False
        scored = len(completed_outcomes(JsonlLog(folder / "equipped.jsonl")))
        whole = scored == self.settings.gate.tasks or not self.settings.evaluation.equipped
        return whole and not self._outdated(index, selected)

    def _outdated(self, index: int, bank: Bank) -> bool:
        """Whether the round's evaluation of the whole bank showed other chunks than these."""
        shown = [(chunk.skill_id, chunk.visible()) for chunk in bank.chunks]
        rows = JsonlLog(self.folder.gate_dir(index) / "equipped.jsonl").read()
        return any([(skill["skill_id"], skill["content"]) for skill in row["selected_skills"]] != shown for row in rows)

    def bank(self) -> Bank:
        """The bank of the round in progress. Raises `UserError` when it is not the one the round was set up with."""
        return self._in_force()[0]

    def curriculum(self) -> Curriculum:
        """The curriculum of the round in progress. Raises `UserError` for one of another round or another bank."""
        return self._in_force()[1]

    def _in_force(self) -> tuple[Bank, Curriculum]:
        """Bank and curriculum of the round in progress, read and checked once a round."""
        if self._round is None or self._round[0] != self.round_index:
            self._round = self.round_index, read_round(self.folder, self.round_index, self.settings.seed)
        return self._round[1]

    def _closing_step(self, index: int) -> int:
        """The step after which round `index` closes; 0 for Gate A."""
        return (index + 1) * self.settings.steps_per_round

    def _heading(self, kind: str, index: int) -> dict[str, Any]:
        step = self._closing_step(index)
        return {"kind": kind, "round": index, "step": step, "rollout/step": step}

    def _first_gate_needed(self) -> bool:
        first = self.settings.gate.first
        measured = all(chunk.contribution_checkpoint == self.checkpoint for chunk in self.initial_bank.chunks)
        if first == "never" and any(chunk.contribution is None for chunk in self.initial_bank.chunks):
            raise UserError(
                "gate.first is never, but the initial bank carries no contributions, so no chunk has an inclusion "
                "probability; set gate.first to auto"
            )
        return first == "always" or (first == "auto" and not measured)

    def _check_first_gate(self, result: GateResult) -> None:
        """Raise `IntraSkillError` for an incomplete one: unlike a later gate it has no older values to keep."""
        if not result.complete:
            runs = (*result.bare, *result.masked)
            raise IntraSkillError(
                f"{self.folder.gate_dir(-1)}: the gate on the initial bank could not score "
                f"{sum(not run.completed for run in runs)} of {len(runs)} episodes (`error` in its *.jsonl says why); "
                "mend the environment or the policy's server and start again: what was scored is kept"
            )

    async def _gate(self, index: int, bank: Bank) -> GateResult:
        settings = self.settings.gate
        plan = GateProtocol(
            task_ids=self.splits.validation[: settings.tasks],
            budget=settings.budget,
            estimator=settings.estimator,
            seed=self.settings.seed,
            round_index=index,
            step=self._closing_step(index),
            checkpoint=self.checkpoint,
            wave_size=self.wave_size,
        )
        candidates = await self._propose(index, bank) if index >= 0 else ()
        started = time.monotonic()
        folder = self.folder.gate_dir(index)
        result = await run_gate(self.runner, bank, candidates, plan, folder, self.reporter)
        if not result.complete and index >= 0:
            self.reporter.say("gate: some episodes could not be scored twice in a row; the bank stays as it is")
        timing = {"timing/gate_s": time.monotonic() - started}
        self.folder.metrics.append({**self._heading("gate", index), **gate_metrics(result), **timing})
        self._record(index, "skill_free", result.bare)
        if index >= 0:
            self.proposer.settle(index, self.checkpoint, result)
        return result

    async def _propose(self, index: int, bank: Bank) -> tuple[Candidate, ...]:
        """What the round's failed retries suggest, within the gate's limit."""
        retries = JsonlLog(self.folder.round_dir(index) / "retries.jsonl").read()
        proposed = await self.proposer.candidates(index, bank, retries)
        if proposed.metrics:
            self.folder.metrics.append({**self._heading("analysis", index), **proposed.metrics})
            cards = int(proposed.metrics.get("analysis/card_count", 0))
            self.reporter.say(f"analysis: failed retries read: {cards}, candidates: {len(proposed.candidates)}")
        return proposed.candidates[: self.settings.gate.candidates]

    async def _evaluate(self, index: int, bank: Bank, also: Mapping[str, Sequence[Chunk]] | None = None) -> None:
        """The round's other validation runs, each on the gate's tasks at the same checkpoint."""
        wanted: list[tuple[str, EpisodeRunner, Sequence[Chunk]]] = []
        if self.settings.evaluation.equipped:
            wanted.append(("equipped", self.runner, bank.chunks))
            wanted += [(name, self.runner, chunks) for name, chunks in (also or {}).items()]
        if self.settings.evaluation.greedy:
            wanted.append(("skill_free_greedy", self.runner.greedy(), ()))
        for condition, runner, chunks in wanted:
            await self._validate(index, condition, runner, chunks)

    async def _validate(self, index: int, condition: str, runner: EpisodeRunner, chunks: Sequence[Chunk]) -> None:
        """One run over the gate's tasks, all of them under the same chunks."""
        jobs = [
            EpisodeJob(task, 0, stable_seed("evaluate", condition, self.settings.seed, index, task), "val")
            for task in self.splits.validation[: self.settings.gate.tasks]
        ]
        log = JsonlLog(self.folder.gate_dir(index) / f"{condition}.jsonl")
        provenance = {**runner.protocol(), "checkpoint": self.checkpoint}
        with self.reporter.bar(f"validation: {condition.replace('_', ' ')}", len(jobs)) as bar:
            plans = [PlannedEpisode(job, tuple(chunks)) for job in jobs]
            runs = await run_jobs(runner, plans, log, provenance, self.wave_size, bar)
        self._record(index, condition, runs)

    def _record(self, index: int, condition: str, runs: Sequence[Outcome]) -> None:
        rewards = [run.reward for run in runs if run.completed]
        successes = [float(run.success) for run in runs if run.completed]
        self.folder.metrics.append(
            {
                "kind": "evaluation",
                "round": index,
                "step": self._closing_step(index),
                "condition": condition,
                "n": len(rewards),
                "reward_mean": mean(rewards),
                "reward_se": standard_error(rewards),
                "success_rate": mean(successes),
                "success_se": standard_error(successes),
                "steps_mean": mean([float(run.steps) for run in runs if run.completed]),
            }
        )

    def _prepare_round(self, index: int, bank: Bank) -> None:
        settings, folder = self.settings.curriculum, self.folder.round_dir(index)
        name = _curriculum_name(self.settings.seed, index)
        curriculum = build_curriculum(bank, settings.q, settings.rho_min, settings.rho_max, name)
        write_bank(folder / "skill_bank.json", bank)
        write_json_atomic(folder / "curriculum.json", {**curriculum_record(curriculum), "bank_sha256": bank.sha256})
        self._round = None

    def _advance(self, state: RunState) -> None:
        self.folder.write_state(state)
        self.state = state


def read_round(folder: RunFolder, index: int, seed: int) -> tuple[Bank, Curriculum]:
    """Bank and curriculum of round `index`. Raises `UserError` when they are not what the round was set up with."""
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
    return bank, curriculum


def _curriculum_name(seed: int, index: int) -> str:
    return f"seed-{seed}/round-{index:03d}"


def _trace(episode: Episode, provenance: Mapping[str, Any], bank: Bank) -> dict[str, Any]:
    return episode_trace(episode, provenance, bank.subset(episode.skill_ids).chunks)


def _group_row(batch: StepBatch, position: int) -> dict[str, Any]:
    group, retry = batch.collected.groups[position], None
    if (episode := batch.retries.get(group.index)) is not None:
        retry = {"reward": episode.reward, "success": episode.success, "status": episode.status}
    return {
        "step": batch.step,
        "group_index": group.index,
        "task_id": group.task_id,
        "skill_free": group.assignment.skill_free,
        "skill_ids": group.assignment.skill_ids,
        "rewards": [episode.reward if episode.scorable else None for episode in group.episodes],
        "successes": [episode.success for episode in group.episodes],
        "verdict": batch.collected.verdicts[position],
        "triage": batch.triages[position],
        "retry": retry,
        "weight_versions": sorted({s.turn.weight_version for e in group.episodes for s in e.steps}),
    }
