"""What a run is made of, the weights aside: handed from `open_run` to the driver, the steps and the rounds."""

from __future__ import annotations

from dataclasses import dataclass

from intraskill.core.progress import Reporter
from intraskill.evolution.candidates import CandidateSource
from intraskill.families.base import TaskSplits
from intraskill.rollout.runner import EpisodeRunner
from intraskill.settings.models import RunSettings
from intraskill.skills.bank import Bank
from intraskill.storage.run_folder import RunFolder


@dataclass(frozen=True)
class Run:
    """The parts of one run. `bank` is the initial one, `wave_size` the number of episodes a gate runs at once."""

    settings: RunSettings
    folder: RunFolder
    runner: EpisodeRunner
    splits: TaskSplits
    bank: Bank
    proposer: CandidateSource
    reporter: Reporter
    wave_size: int

    @property
    def gate_tasks(self) -> tuple[str, ...]:
        """The validation tasks of every gate and every evaluation at a round's end."""
        return self.splits.val[: self.settings.gate.tasks]

    def closing_step(self, index: int) -> int:
        """The step after which round `index` closes; 0 for Gate A, which has the index -1."""
        return (index + 1) * self.settings.steps_per_round
