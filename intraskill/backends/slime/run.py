"""The one object that lives as long as slime's process: the round driver and everything it needs.

slime calls plain functions with its arguments and the data source. The data source holds the `SlimeRun`; so whatever
must survive from call to call has an owner, and nothing is global.

Where steps are counted. slime trains only after `generate` has returned, and saves only every so many steps. The
driver's state therefore runs ahead of the checkpoints: a step is committed to the run folder when it has been
generated, and its state remembered. When slime starts from a checkpoint it tells the data source which one, and the
run folder goes back to the state of that step (`load`). Nothing generated later is kept, since the weights it came
from are gone; a gate that closed a round at that very checkpoint is.

A process that died between a save and its gate is started again at the next step: the round is closed first. A gate
that could not score every task is tried once more before training goes on from its checkpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from intraskill.assets import model_directory
from intraskill.backends.slime.arguments import (
    RunSpec,
    SlimeRunSettings,
    check_arguments,
    load_slime_settings,
    read_spec,
)
from intraskill.backends.slime.metrics import evaluation_metrics, round_rows, step_metrics
from intraskill.backends.slime.rewards import OBJECTIVE_ARGUMENT
from intraskill.backends.slime.timing import BusyClock, TimingLog, timed
from intraskill.core.errors import IntraSkillError, StateCorrupted, UserError
from intraskill.core.progress import Reporter
from intraskill.core.records import Group
from intraskill.policies.chat import load_chat
from intraskill.policies.sglang import SGLangEngine, SGLangServer
from intraskill.policies.token import TokenPolicy
from intraskill.storage.documents import read_json, write_json_atomic
from intraskill.storage.fingerprint import fingerprint
from intraskill.storage.lock import RunLock
from intraskill.storage.run_folder import RUN_SCHEMA, RunFolder
from intraskill.training.driver import RoundDriver
from intraskill.training.late_gate import complete_gate, lacking_here
from intraskill.training.open_run import open_run
from intraskill.training.step import StepBatch

NOTE_SCHEMA = "intraskill-checkpoint-note-v1"
Result = TypeVar("Result")


@dataclass(frozen=True)
class Generated:
    """One generated step as slime gets it: the groups to train on and what to log."""

    batch: StepBatch
    groups: Sequence[Group]
    metrics: Mapping[str, float]


class SlimeRun:
    """One run under slime. `args` is slime's namespace; the inference router must be known to it already."""

    def __init__(self, args: Any) -> None:
        spec = read_spec(args)
        self.settings = load_slime_settings(spec.settings, spec.overrides)
        check_arguments(args, self.settings)
        setattr(args, OBJECTIVE_ARGUMENT, self.settings.train.objective)
        self.args = args
        self._lock = RunLock(spec.run)
        self._lock.__enter__()  # held until the process ends
        self.folder, self.timing, self.clock = RunFolder(spec.run), TimingLog(spec.run), BusyClock()
        self._loop = asyncio.new_event_loop()
        backend = SlimeBackend(args, spec, self.settings)
        run = open_run(self.settings.method(), self.folder, backend, Reporter(), spec.overrides, spec.environment_url)
        self.engine, self.driver = backend.engine, RoundDriver(replace(run, runner=timed(run.runner, self.clock)))

    def generate(self, rollout_id: int) -> Generated:
        """The step's groups, rolled out, filtered and on disk."""
        if self.driver.state.step != rollout_id:
            raise StateCorrupted(
                f"{self.folder.path}: slime wants step {rollout_id + 1}, the run folder is at step "
                f"{self.driver.state.step}; start again with launch/four_rounds.sh"
            )
        with self.timing.plugin(rollout_id + 1, self.clock):
            return self._run(self._generate())

    def evaluate(self, rollout_id: int) -> tuple[list[float], dict[str, float]]:
        """Close the round that is due, or score the untrained policy. Asked twice, it answers from the record.

        Returns the skill-free mean reward (nothing between rounds) and what to log.
        """
        with self.timing.plugin(self.driver.state.step, self.clock):
            self._run(self._evaluate())
        step, closed = self.driver.state.step, self.driver.state.rounds_closed
        index = closed - 1 if step else -1
        rows = round_rows(self.folder.metrics.read(), index, step)
        rewards = [float(row["reward_mean"]) for row in rows if row.get("condition") == "skill_free"]
        return rewards, evaluation_metrics(rows, max(0, step - 1))

    def save(self, rollout_id: int) -> None:
        """Leave a note beside the checkpoint that says which run and step it belongs to."""
        note = {"schema": NOTE_SCHEMA, "fingerprint": self._fingerprint(), "step": rollout_id + 1}
        write_json_atomic(_note_path(self.args.save, rollout_id), {**note, "run": str(self.folder.path)})

    def load(self, rollout_id: int | None) -> None:
        """Go back to the state of the checkpoint slime starts from (-1: the untrained model)."""
        step = 0 if rollout_id is None else rollout_id + 1
        note = _note_path(self.args.load, step - 1) if step and self.args.load else None
        if note is not None and note.exists() and read_json(note, NOTE_SCHEMA)["fingerprint"] != self._fingerprint():
            raise UserError(
                f"{note}: this checkpoint belongs to another run than {self.folder.path}; use its own folder"
            )
        self.driver.rewind(step)
        self.timing.rewind(step)

    def close(self) -> None:
        """Close connections and let the run folder go."""
        self.driver.run.proposer.close()
        self._run(self.engine.close())
        self._loop.close()
        self._lock.__exit__(None, None, None)

    async def _generate(self) -> Generated:
        await self._begin()
        if self.driver.round_due:
            await self.driver.close_round()
        if (index := lacking_here(self.driver)) is not None:
            await complete_gate(self.driver, index)
        cached, prompts = self.engine.cached_tokens, self.engine.prompt_tokens
        batch = await self.driver.generate()
        groups = self._whole_updates(batch)
        self.driver.commit(batch, (), {})
        self.folder.remember_state(self.driver.state)
        counts = self.engine.cached_tokens - cached, self.engine.prompt_tokens - prompts
        return Generated(batch, groups, step_metrics(batch, *counts))

    def _whole_updates(self, batch: StepBatch) -> list[Group]:
        """The kept groups that fill updates: slime's batch has a fixed size. Raises when there is not even one."""
        size = self.settings.rollout.kept_groups // self.settings.train.updates_per_step
        whole = batch.kept[: len(batch.kept) // size * size]
        if not whole:
            raise IntraSkillError(
                f"{self.folder.path}: step {batch.step} kept {len(batch.kept)} groups after rollout.max_waves waves, "
                f"an update needs {size}; mend what makes groups unscorable, or allow more waves, and start again"
            )
        return whole

    async def _evaluate(self) -> None:
        await self._begin()
        if self.driver.state.step == 0:
            await self.driver.evaluate_start()
        elif self.driver.round_due:
            await self.driver.close_round()

    async def _begin(self) -> None:
        """Name the weights the engines hold now, and make sure that round 0 is set up."""
        self.engine.pin()
        step = self.driver.state.step
        # Nobody hashes weights that live in the engines: what made them stands for them.
        weights = self._fingerprint() if step else fingerprint(read_spec(self.args).model)
        self.driver.checkpoint = f"step-{step:04d}-{weights[:8]}"
        await self.driver.open()

    def _fingerprint(self) -> str:
        return str(read_json(self.folder.path / "run.json", RUN_SCHEMA)["fingerprint"])

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(work)


class SlimeBackend:
    """What slime's engines give a run: they hold the weights and answer over HTTP."""

    wave_size = 400

    def __init__(self, args: Any, spec: RunSpec, settings: SlimeRunSettings) -> None:
        self._spec, self._settings = spec, settings
        self.episode_timeout_s = settings.slime.episode_timeout_s
        self._chat = load_chat(model_directory(settings.policy.model))
        self.engine = SGLangEngine(
            SGLangServer(
                url=f"http://{args.sglang_router_ip}:{args.sglang_router_port}",
                model=fingerprint(spec.model)[:16],
                context_length=settings.slime.context_length,
                stop_ids=tuple(sorted(self._chat.stop_ids)),
                concurrency=settings.slime.concurrency,
                routing=settings.slime.routing,
                timeout_s=settings.slime.episode_timeout_s,
            )
        )

    def identity(self) -> Mapping[str, Any]:
        return {
            "backend": "slime",
            "model": self._spec.model,
            "context_length": self._settings.slime.context_length,
        }

    def policy(self) -> TokenPolicy:
        return TokenPolicy(self._chat, self.engine)


def _note_path(directory: str, rollout_id: int) -> Path:
    return Path(directory) / "rollout" / f"intraskill_{rollout_id}.json"


def validation_data(rewards: Sequence[float]) -> dict[str, dict[str, list[Any]]]:
    """slime's evaluation data: one data set, empty between rounds."""
    return {"skill_free": {"rewards": list(rewards), "truncated": [False] * len(rewards)}} if rewards else {}
