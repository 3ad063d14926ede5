"""The embedded backend: the driver's loop with a torch sampler and a torch trainer in one process.

The trainer owns the float32 master weights; the sampler holds a copy in its own type, renewed after every step. A
step's checkpoint is on disk before the state counts the step, and the one before it goes only afterwards, so the
state always points at weights that exist.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from intraskill.agent.episode import EpisodeSettings
from intraskill.agent.segments import segments
from intraskill.assets import bank_path, model_directory
from intraskill.backends.embedded.checkpoint import load_checkpoint, save_checkpoint
from intraskill.backends.embedded.engine import BatchEngine
from intraskill.backends.embedded.models import eos_ids, load_model, weights_hash
from intraskill.backends.embedded.trainer import Trainer
from intraskill.core.errors import UserError
from intraskill.core.progress import Reporter
from intraskill.core.records import Sampling, Segment
from intraskill.evolution.proposer import open_proposer
from intraskill.families.shop.environment import ShopSource, open_world
from intraskill.families.shop.prompts import prompt_template
from intraskill.objectives.advantages import advantages
from intraskill.policies.chat import load_chat
from intraskill.policies.token import TokenPolicy
from intraskill.report.html import write_report
from intraskill.report.tables import round_table
from intraskill.report.wandb_sink import WandbSink
from intraskill.rollout.runner import EpisodeRunner
from intraskill.settings.models import RunSettings
from intraskill.skills.bank import Bank, read_bank
from intraskill.storage.run_folder import RunFolder
from intraskill.storage.store import RunLock
from intraskill.training.driver import RoundDriver, Splits, StepBatch


def train(settings: RunSettings, path: Path, reporter: Reporter) -> None:
    """Start the run in `path`, or continue it from its last finished step. Raises `UserError` for bad input."""
    with RunLock(path):
        _Training(settings, RunFolder(path), reporter).run()


def complete_gate(settings: RunSettings, path: Path, index: int, reporter: Reporter) -> bool:
    """Run what the incomplete gate of round `index` lacks, at its own checkpoint; whether it is complete now."""
    with RunLock(path):
        return _Training(settings, RunFolder(path), reporter).complete_gate(index)


class _Training:
    """One run: the driver, the weights, and what ties them together."""

    def __init__(self, settings: RunSettings, folder: RunFolder, reporter: Reporter) -> None:
        if settings.policy.threads:
            torch.set_num_threads(settings.policy.threads)
        self.settings, self.folder, self.reporter = settings, folder, reporter
        self.source = open_world(settings.environment, folder.path.parent / ".worlds")
        self.model_dir = model_directory(settings.policy.model)
        bank = read_bank(bank_path(settings.bank))
        folder.claim(settings, self._meaning(bank))
        for unfinished in folder.path.glob("checkpoints/.*"):  # what a kill left of a checkpoint being written
            shutil.rmtree(unfinished)
        state = folder.read_state()
        self.model = load_model(settings.policy.model)
        self.trainer = Trainer(self.model, settings.train, temperature=settings.policy.sampling.temperature)
        if state.step:
            load_checkpoint(folder.checkpoint_dir(state.step), self.trainer)
        chat = load_chat(self.model_dir)
        self.engine = BatchEngine(self.model, eos_ids(self.model), dtype=getattr(torch, settings.policy.sampler_dtype))
        self.runner = EpisodeRunner(
            self.source, TokenPolicy(chat, self.engine), prompt_template(settings.policy.prompt), self._limits()
        )
        splits = _splits(self.source)
        proposer = open_proposer(settings, folder, self.source.catalog, splits.train)
        self.driver = RoundDriver(settings, folder, self.runner, splits, bank, reporter, proposer=proposer)
        self._publish_weights(state.step)

    def run(self) -> None:
        sink = WandbSink(self.folder.path, self.settings)
        if self.driver.finished:
            self.reporter.say(f"{self.folder.path}: already finished, nothing to do")
        else:
            try:
                asyncio.run(self._loop(sink))
            finally:
                self.driver.proposer.close()
                sink.close()
        page = write_report(self.folder.path)
        self.reporter.say(f"report: {page}")

    def complete_gate(self, index: int) -> bool:
        step = (index + 1) * self.settings.steps_per_round
        checkpoint = self.folder.checkpoint_dir(step)
        if not (self.folder.gate_dir(index) / "contributions.json").exists() or not checkpoint.exists():
            raise UserError(f"{self.folder.path}: round {index} has no gate with a checkpoint; name a closed round")
        load_checkpoint(checkpoint, self.trainer)
        self._publish_weights(step)
        try:
            result = asyncio.run(self.driver.complete_gate(index))
        finally:
            self.driver.proposer.close()
        write_report(self.folder.path)
        return result.complete

    async def _loop(self, sink: WandbSink) -> None:
        driver, rounds = self.driver, self.settings.rounds
        if not driver.state.opened:
            await driver.open()
            self.reporter.console.print(round_table(self.folder.path, -1))
            sink.push()
        while not driver.finished:
            if driver.round_due:
                index = driver.round_index
                await driver.close_round()
                self.reporter.console.print(round_table(self.folder.path, index))
                sink.push()
                continue
            self._step(await driver.generate(), rounds)
            sink.push()

    def _step(self, batch: StepBatch, rounds: int) -> None:
        started = time.monotonic()
        updates = self.trainer.step([group_segments(group, self.settings.train.advantage) for group in batch.kept])
        trained = time.monotonic()
        self._save(batch.step)
        self._publish_weights(batch.step)
        timing = {"timing/train_s": trained - started, "timing/save_s": time.monotonic() - trained}
        self.driver.commit(batch, updates, timing)
        self._prune(batch.step)
        total = rounds * self.settings.steps_per_round
        self.reporter.say(
            f"step {batch.step}/{total}  success {batch.metrics['rollout/shopsim/success_rate']:.3f}  "
            f"reward {batch.metrics['rollout/shopsim/reward_mean']:.3f}  "
            f"kept {len(batch.kept)}/{len(batch.collected.groups)} groups  "
            f"{batch.metrics['timing/rollout_s']:.1f} s acting, {timing['timing/train_s']:.1f} s learning"
        )

    def _publish_weights(self, step: int) -> None:
        """Hand the trainer's weights to the sampler under a name that says which they are."""
        version = f"step-{step:04d}-{weights_hash(self.model)}"
        self.engine.load_weights(self.model, version)
        self.driver.checkpoint = version

    def _save(self, step: int) -> None:
        save_checkpoint(self.folder.checkpoint_dir(step), self.trainer, self.model_dir, {"step": step})

    def _prune(self, step: int) -> None:
        """Drop step checkpoints that neither end a round nor belong to the last few."""
        keep = self.settings.train.keep_checkpoints
        for directory in sorted(self.folder.path.glob("checkpoints/step-*")):
            number = int(directory.name.removeprefix("step-"))
            if number % self.settings.steps_per_round and not step - keep < number <= step:
                shutil.rmtree(directory)

    def _limits(self) -> EpisodeSettings:
        policy = self.settings.policy
        sampling = Sampling(**policy.sampling.model_dump())
        return EpisodeSettings(self.settings.environment.max_steps, sampling, policy.tool_schema)

    def _meaning(self, bank: Bank) -> dict[str, Any]:
        weights = hashlib.sha256()
        for file in sorted(self.model_dir.glob("*.safetensors")):
            weights.update(file.read_bytes())
        return {
            "environment": self.source.identity(),
            "model_sha256": weights.hexdigest(),
            "prompt_sha256": prompt_template(self.settings.policy.prompt).sha256,
            "bank_sha256": bank.sha256,
        }


def group_segments(group: Any, estimator: str) -> list[Segment]:
    """The trainer's view of one group: every sibling's segments with its group-relative advantage."""
    values = advantages(estimator)([episode.reward for episode in group.episodes])
    return [
        replace(segment, advantage=value)
        for episode, value in zip(group.episodes, values)
        for segment in segments(episode, group.index)
    ]


def _splits(source: ShopSource) -> Splits:
    splits = source.splits()
    if not splits.train:
        raise UserError("the train split is empty; there is nothing to train on")
    return Splits(train=tuple(splits.train), validation=tuple(splits.val))
