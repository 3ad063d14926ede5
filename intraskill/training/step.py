"""One training step: draw assignments, roll out, filter, retry the all-wrong groups, triage; then its records.

`generate_step` changes nothing on disk and nothing in the run: the batch it returns carries the state in which the run
will be once the step is finished. `write_step` puts the records down; only after it may that state be written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from intraskill.agent.trace import episode_trace, training_record
from intraskill.core.records import Episode, Group, Segment
from intraskill.objectives.objective import OBJECTIVES, lesson
from intraskill.rollout.collect import Collected, collect_in_completion_order, collect_in_submission_order
from intraskill.rollout.filter import GroupFilter
from intraskill.rollout.groups import PlannedGroup, retry_all_wrong, run_group
from intraskill.rollout.metrics import step_metrics
from intraskill.rollout.tasks import TaskStream
from intraskill.rollout.triage import Triage, triage
from intraskill.skills.bank import Bank
from intraskill.skills.curriculum import draw_assignment
from intraskill.storage.jsonl import JsonlLog
from intraskill.storage.run_folder import RunState
from intraskill.training.round import Round
from intraskill.training.run import Run


@dataclass(frozen=True)
class StepBatch:
    """One generated step: every finished group with its verdict and triage, and the state once it is finished.

    `checkpoint` names the weights that acted, `retries` are by group index; `lessons` are the kept groups as a trainer
    sees them.
    """

    step: int
    checkpoint: str
    round: Round
    collected: Collected
    lessons: Sequence[Sequence[Segment]]
    retries: Mapping[int, Episode]
    triages: Sequence[Triage]
    metrics: Mapping[str, float]
    next_state: RunState

    @property
    def kept(self) -> list[Group]:
        return self.collected.kept


async def generate_step(run: Run, state: RunState, current: Round, checkpoint: str) -> StepBatch:
    """Roll out the step after `state` under the round's bank and curriculum."""
    started = time.monotonic()
    rollout, seed = run.settings.rollout, run.settings.seed
    stream = TaskStream(run.splits.train, seed)
    if state.stream:
        stream.restore(state.stream)
    next_group = state.next_group

    def next_wave() -> list[PlannedGroup]:
        nonlocal next_group
        indices = range(next_group, next_group + rollout.generated_groups)
        next_group = indices.stop
        tasks = stream.take(len(indices))
        return [PlannedGroup(i, task, draw_assignment(current.curriculum, i)) for i, task in zip(indices, tasks)]

    async def roll_out(planned: PlannedGroup) -> Group:
        return await run_group(run.runner, planned, current.bank, rollout.group_size, seed)

    objective = OBJECTIVES[run.settings.train.objective]
    judge = GroupFilter(
        objective.carries_signal,
        rollout.kept_groups,
        rollout.technical_limit,
        state.technical_run,
        rollout.max_waves,
    )
    collect = collect_in_completion_order if rollout.order == "completion" else collect_in_submission_order
    collected = await collect(roll_out, next_wave, judge)
    stream.give_back([planned.task_id for planned in collected.aborted])
    groups = collected.groups
    retries = await retry_all_wrong(run.runner, groups, current.bank, seed)
    triages = [triage(group, retries.get(group.index)) for group in groups]
    verdicts, retried = collected.verdicts, list(retries.values())
    metrics = step_metrics(run.runner.family, groups, verdicts, triages, retried, current.curriculum)
    return StepBatch(
        step=state.step + 1,
        checkpoint=checkpoint,
        round=current,
        collected=collected,
        lessons=[lesson(group, objective) for group in collected.kept],
        retries=retries,
        triages=triages,
        metrics=metrics | {"timing/rollout_s": time.monotonic() - started},
        next_state=replace(
            state,
            step=state.step + 1,
            stream=stream.state(),
            next_group=next_group,
            technical_run=judge.technical_run,
        ),
    )


def write_step(
    run: Run, batch: StepBatch, updates: Sequence[Mapping[str, float]], timing: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Append the step's groups, episodes, retries, tokens and metrics; returns the retries' traces."""
    provenance = {**run.runner.protocol(), "checkpoint": batch.checkpoint}

    def trace(group_index: int, episode: Episode) -> dict[str, Any]:
        return {"step": batch.step, "group_index": group_index, **_trace(episode, provenance, batch.round.bank)}

    retried = [trace(index, episode) for index, episode in batch.retries.items()]
    rows = {
        "groups": [_group_row(batch, position) for position in range(len(batch.triages))],
        "episodes": [trace(group.index, episode) for group in batch.collected.groups for episode in group.episodes],
        "retries": retried,
        "tokens": [
            {"step": batch.step, "group_index": group.index, **training_record(episode, _of(episode, learnt))}
            for group, learnt in zip(batch.kept, batch.lessons)
            for episode in group.episodes
        ],
    }
    for name, records in rows.items():
        JsonlLog(run.folder.round_dir(batch.round.index) / f"{name}.jsonl").append_many(records)
    heading = {"round": batch.round.index, "step": batch.step}
    first = (batch.step - 1) * run.settings.train.updates_per_step
    run.folder.metrics.append_many(
        [
            {"kind": "step", **heading, "rollout/step": batch.step, **batch.metrics, **timing},
            *({"kind": "update", **heading, "train/step": first + i, **u} for i, u in enumerate(updates, start=1)),
        ]
    )
    return retried


def _of(episode: Episode, learnt: Sequence[Segment]) -> list[Segment]:
    return [segment for segment in learnt if segment.episode_id == episode.job.episode_id]


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
