"""What one gate runs, and what must be the same in all of its episodes.

A gate compares one checkpoint with itself: only the chunks may differ between its runs. `check_pairing` refuses
anything else. What was the same is written beside every measured contribution, as the weights' name and as a hash of
all other **conditions**, so that a bank can say later whether its numbers were measured right here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from intraskill.core.errors import UserError
from intraskill.gate.estimators import ESTIMATORS, TWO_RUNS
from intraskill.rollout.jobs import Outcome
from intraskill.settings.models import GateSettings
from intraskill.skills.bank import Bank
from intraskill.storage.fingerprint import fingerprint


@dataclass(frozen=True)
class GateProtocol:
    """What one gate runs. `round_index` -1 is Gate A, `checkpoint` names the weights, `wave_size` is in episodes.

    The rule `evidence` asks for `confidence`, lets effects move by `drift` between two gates, and may spend
    `extra_tasks` on what is undecided.
    """

    task_ids: tuple[str, ...]
    budget: int
    estimator: str
    seed: int
    round_index: int
    step: int
    checkpoint: str
    wave_size: int
    design: str = "published"
    rule: str = "published"
    confidence: float = 0.9
    drift: float = 0.05
    extra_tasks: int = 0

    @classmethod
    def of(cls, settings: GateSettings, **where: Any) -> GateProtocol:
        """The protocol that a run's settings ask for; `where` says which tasks, seed, round, step and checkpoint."""
        chosen = {name: getattr(settings, name) for name in GateSettings.model_fields if name in cls.__annotations__}
        return cls(**chosen, **where)

    @property
    def name(self) -> str:
        """The curriculum that this gate follows."""
        return f"seed-{self.seed}/round-{self.round_index:03d}"

    @property
    def estimators(self) -> tuple[str, ...]:
        """All that the design's runs suffice for, the chosen one first."""
        others = TWO_RUNS if self.design == "published" else tuple(ESTIMATORS)
        return (self.estimator, *(name for name in others if name != self.estimator))


def conditions(protocol: Mapping[str, Any]) -> str:
    """Sixteen digits that stand for everything an episode's runner protocol says, but for the name of the weights."""
    policy = {key: value for key, value in protocol["policy"].items() if key != "weight_version"}
    return fingerprint({**protocol, "policy": policy})[:16]


def measured_here(bank: Bank, checkpoint: str, protocol: Mapping[str, Any]) -> bool:
    """Whether every contribution of the bank was measured with these weights under these conditions."""
    here = (checkpoint, conditions(protocol))
    return all((chunk.contribution_checkpoint, chunk.contribution_conditions) == here for chunk in bank.chunks)


def check_pairing(reference: Sequence[Outcome], other: Sequence[Outcome]) -> None:
    """Refuse two runs that do not answer the same question. Raises `UserError` naming the first difference."""
    if [one.task_id for one in reference] != [one.task_id for one in other]:
        raise UserError("gate: its runs cover different tasks; run all of them over the same task list")
    check_conditions(reference, other)


def check_conditions(reference: Sequence[Outcome], other: Iterable[Outcome]) -> None:
    """Refuse episodes that were not run as the others were. Raises `UserError` naming the first difference."""
    wanted = dict(reference[0].provenance) if reference else {}
    for run in (*reference, *other):
        for key in wanted.keys() | run.provenance.keys():
            if run.provenance.get(key) != wanted.get(key):
                raise UserError(
                    f"gate: {run.episode_id} ran under another {key} ({run.provenance.get(key)!r}, not "
                    f"{wanted.get(key)!r}); a gate compares one checkpoint with itself: delete the gate folder "
                    "and start again"
                )
