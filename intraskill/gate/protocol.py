"""What one gate runs, and what must be the same in all of its episodes.

A gate compares one checkpoint with itself: only the chunks may differ between its runs. `check_pairing` refuses
anything else. What was the same is written beside every measured contribution, as the weights' name and as a hash of
all other **conditions**, so that a bank can say later whether its numbers were measured right here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from intraskill.core.errors import UserError
from intraskill.rollout.jobs import Outcome
from intraskill.skills.bank import Bank
from intraskill.storage.store import fingerprint


@dataclass(frozen=True)
class GateProtocol:
    """What one gate runs. `round_index` -1 is Gate A, `checkpoint` names the weights, `wave_size` is in episodes."""

    task_ids: tuple[str, ...]
    budget: int
    estimator: str
    seed: int
    round_index: int
    step: int
    checkpoint: str
    wave_size: int


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
    wanted = dict(reference[0].provenance) if reference else {}
    for run in (*reference, *other):
        for key in wanted.keys() | run.provenance.keys():
            if run.provenance.get(key) != wanted.get(key):
                raise UserError(
                    f"gate: {run.episode_id} ran under another {key} ({run.provenance.get(key)!r}, not "
                    f"{wanted.get(key)!r}); a gate compares one checkpoint with itself: delete the gate folder "
                    "and start again"
                )
