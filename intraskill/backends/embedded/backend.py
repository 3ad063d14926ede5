"""The embedded backend: the driver's loop with a torch sampler and a torch trainer in one process.

The trainer owns the float32 master weights; the sampler holds a copy in its own type, renewed after every step.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from intraskill.assets import model_directory
from intraskill.backends.embedded.checkpoint import load_checkpoint, save_checkpoint
from intraskill.backends.embedded.engine import BatchEngine
from intraskill.backends.embedded.models import load_model, weights_hash
from intraskill.backends.embedded.trainer import Trainer
from intraskill.core.errors import UserError
from intraskill.core.progress import Reporter
from intraskill.policies.chat import load_chat
from intraskill.policies.model_files import model_files
from intraskill.policies.token import TokenPolicy
from intraskill.settings.models import RunSettings
from intraskill.storage.lock import RunLock
from intraskill.storage.run_folder import RunFolder
from intraskill.training.driver import RoundDriver
from intraskill.training.late_gate import complete_gate as complete_late_gate
from intraskill.training.loop import Learnt, Observer, Unobserved, run_to_end
from intraskill.training.open_run import open_run
from intraskill.training.step import StepBatch

_UNOBSERVED = Unobserved()


def train(
    settings: RunSettings,
    path: Path,
    reporter: Reporter,
    observer: Observer = _UNOBSERVED,
    overrides: Sequence[str] = (),
) -> None:
    """Start the run in `path`, or continue it from its last finished step. Raises `UserError` for bad input."""
    with RunLock(path):
        driver, backend = open_training(settings, path, reporter, overrides)
        try:
            if driver.finished:
                reporter.say(f"{path}: already finished, nothing to do")
            else:
                asyncio.run(run_to_end(driver, backend, observer))
        finally:
            driver.run.proposer.close()
            observer.ended()


def complete_gate(
    settings: RunSettings, path: Path, index: int, reporter: Reporter, observer: Observer = _UNOBSERVED
) -> bool:
    """Run what the incomplete gate of round `index` lacks, at its own checkpoint; whether it is complete now."""
    with RunLock(path):
        driver, backend = open_training(settings, path, reporter)
        if not (driver.run.folder.gate_dir(index) / "contributions.json").exists():
            raise UserError(f"{path}: round {index} has no gate; name a closed round")
        driver.checkpoint = backend.go_back(driver.run.closing_step(index))
        try:
            result = asyncio.run(complete_late_gate(driver, index))
            observer.gated(index)
        finally:
            driver.run.proposer.close()
            observer.ended()
        return result.complete


def open_training(
    settings: RunSettings, path: Path, reporter: Reporter, overrides: Sequence[str] = ()
) -> tuple[RoundDriver, EmbeddedBackend]:
    """The run in `path` with its weights at the last finished step."""
    folder = RunFolder(path)
    backend = EmbeddedBackend(settings, folder)
    driver = RoundDriver(open_run(settings, folder, backend, reporter, overrides))
    driver.checkpoint = backend.version
    return driver, backend


class EmbeddedBackend:
    """The weights of one run: sampled through `policy`, trained by `learn`. `version` names them."""

    wave_size = 400
    episode_timeout_s = None

    def __init__(self, settings: RunSettings, folder: RunFolder) -> None:
        self.settings, self.folder = settings, folder
        self.model_dir = model_directory(settings.policy.model)
        self.version = ""

    def identity(self) -> Mapping[str, Any]:
        return {"model": model_files(self.model_dir)}

    def policy(self) -> TokenPolicy:
        policy, step = self.settings.policy, self.folder.read_state().step
        if policy.threads:
            torch.set_num_threads(policy.threads)
        for unfinished in self.folder.path.glob("checkpoints/.*"):  # what a kill left of a checkpoint being written
            shutil.rmtree(unfinished)
        self.model = load_model(policy.model)
        self.trainer = Trainer(self.model, self.settings.train, temperature=policy.sampling.temperature)
        if step:
            load_checkpoint(self.folder.checkpoint_dir(step), self.trainer)
        chat = load_chat(self.model_dir)
        self.engine = BatchEngine(self.model, chat.stop_ids, dtype=getattr(torch, policy.sampler_dtype))
        self._publish(step)
        return TokenPolicy(chat, self.engine)

    def learn(self, batch: StepBatch) -> Learnt:
        started = time.monotonic()
        updates = self.trainer.step(batch.lessons)
        trained = time.monotonic()
        save_checkpoint(self.folder.checkpoint_dir(batch.step), self.trainer, self.model_dir, {"step": batch.step})
        self._publish(batch.step)
        timing = {"timing/train_s": trained - started, "timing/save_s": time.monotonic() - trained}
        return Learnt(self.version, updates, timing)

    def forget(self, step: int) -> None:
        """Drop step checkpoints that neither end a round nor belong to the last few."""
        keep = self.settings.train.keep_checkpoints
        for directory in sorted(self.folder.path.glob("checkpoints/step-*")):
            number = int(directory.name.removeprefix("step-"))
            if number % self.settings.steps_per_round and not step - keep < number <= step:
                shutil.rmtree(directory)

    def go_back(self, step: int) -> str:
        """Sample from the weights of an earlier step; returns their name. Raises `UserError` when they are gone."""
        checkpoint = self.folder.checkpoint_dir(step)
        if not checkpoint.exists():
            raise UserError(f"{checkpoint}: this checkpoint is not there; name a round whose checkpoint was kept")
        load_checkpoint(checkpoint, self.trainer)
        self._publish(step)
        return self.version

    def _publish(self, step: int) -> None:
        """Hand the trainer's weights to the sampler under a name that says which they are."""
        self.version = f"step-{step:04d}-{weights_hash(self.model)}"
        self.engine.load_weights(self.model, self.version)
