"""A run from where it stands to its end, for backends that are called by us (slime calls instead).

The backend's part of a step is one call, `learn`: update the weights, put a checkpoint on disk, hand the new weights
to the sampler. The checkpoint is there before the state counts the step, and an older one goes only afterwards, so the
state always points at weights that exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from intraskill.core.errors import NotFinite
from intraskill.training.driver import RoundDriver
from intraskill.training.step import StepBatch


@dataclass(frozen=True)
class Learnt:
    """One step's updates: their metrics, what its seconds went to, and the name of the weights from now on."""

    checkpoint: str
    updates: Sequence[Mapping[str, float]]
    timing: Mapping[str, float]


class Learner(Protocol):
    """The backend's trainer."""

    def learn(self, batch: StepBatch) -> Learnt:
        """Train on the batch, save, and let the policy sample from the new weights."""

    def forget(self, step: int) -> None:
        """Step `step` is counted: checkpoints that are needed no more may go."""


class Observer(Protocol):
    """Whoever shows or copies a run's records, called when new ones are on disk."""

    def stepped(self) -> None: ...

    def gated(self, index: int) -> None:
        """The gate that closes round `index` and its evaluations are there (-1: Gate A)."""

    def ended(self) -> None:
        """No more will come; the run folder is still locked."""


class Unobserved:
    """Nobody looks."""

    def stepped(self) -> None:
        pass

    def gated(self, index: int) -> None:
        pass

    def ended(self) -> None:
        pass


async def run_to_end(driver: RoundDriver, learner: Learner, observer: Observer) -> None:
    """Open the run, then steps and gates until it is finished."""
    if not driver.state.opened:
        await driver.open()
        observer.gated(-1)
    while not driver.finished:
        if driver.round_due:
            index = driver.round_index
            await driver.close_round()
            observer.gated(index)
            continue
        try:
            batch = await driver.generate()
            learnt = learner.learn(batch)
        except NotFinite as error:
            raise NotFinite(_broken_step(driver, error)) from error
        driver.checkpoint = learnt.checkpoint
        driver.commit(batch, learnt.updates, learnt.timing)
        learner.forget(batch.step)
        driver.run.reporter.say(_step_line(driver, batch, learnt))
        observer.stepped()


def _broken_step(driver: RoundDriver, error: NotFinite) -> str:
    """Which step broke, what is left, and why resuming does not help."""
    folder, step = driver.run.folder, driver.state.step
    kept = f"what was finished is kept, with {folder.checkpoint_dir(step)}" if step else "no step was finished"
    return (
        f"{folder.path}: step {step + 1}: {error}; {kept}. A resumed run ends the same way: start another one with a "
        "lower train.lr"
    )


def _step_line(driver: RoundDriver, batch: StepBatch, learnt: Learnt) -> str:
    prefix = driver.run.settings.environment.metric_prefix
    total = driver.run.closing_step(driver.run.settings.rounds - 1)
    return (
        f"step {batch.step}/{total}  success {batch.metrics[f'{prefix}success_rate']:.3f}  "
        f"reward {batch.metrics[f'{prefix}reward_mean']:.3f}  "
        f"kept {len(batch.kept)}/{len(batch.collected.groups)} groups  "
        f"{batch.metrics['timing/rollout_s']:.1f} s acting, {learnt.timing['timing/train_s']:.1f} s learning"
    )
