"""What earlier gates of a run know: how each task went at their checkpoints, and what was believed of each chunk.

Both are read back from the gates' folders, so a run that was killed knows what it knew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from intraskill.gate.evidence import Belief
from intraskill.gate.table import TableRow
from intraskill.rollout.jobs import completed_outcomes
from intraskill.skills.bank import Bank
from intraskill.storage.documents import read_json
from intraskill.storage.jsonl import JsonlLog
from intraskill.storage.run_documents import EvidenceShape

EVIDENCE_SCHEMA = "intraskill-evidence-v1"
_SAMPLED_ALIKE = ("bare", "masked", "mirror", "equipped")  # at the policy's own temperature


@dataclass(frozen=True)
class Earlier:
    """`rewards` by checkpoint and task; `beliefs` by the name of a chunk of the bank."""

    rewards: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    beliefs: Mapping[str, Belief] = field(default_factory=dict)

    def rows(self, columns: int) -> tuple[TableRow, ...]:
        """The rewards as rows of a table with so many columns. What was shown then is not what is shown now."""
        nothing = (0,) * columns
        return tuple(
            TableRow(task, "earlier", nothing, reward, checkpoint)
            for checkpoint, tasks in self.rewards.items()
            for task, rewards in tasks.items()
            for reward in rewards
        )


def read_earlier(gates: Iterable[Path], bank: Bank, drift: float, rewards: bool) -> Earlier:
    """What the gates in these folders, oldest first, know that helps to measure `bank`.

    A belief is kept from the gate that let the chunk into the bank or left it there, and is one `drift` wider at every
    gate since. `rewards` False: the tasks' history is not needed.
    """
    history: dict[str, dict[str, list[float]]] = {}
    beliefs: dict[str, Belief] = {}
    for gate in gates:
        path = gate / "evidence.json"
        if path.exists():
            found = read_json(path, EVIDENCE_SCHEMA, EvidenceShape)
            beliefs = {item["skill_id"]: Belief(item["mean"], item["variance"]) for item in found["beliefs"]}
            if rewards:
                history[found["checkpoint_id"]] = _rewards(gate)
        beliefs = {name: belief.later(drift) for name, belief in beliefs.items()}
    return Earlier(history, {name: belief for name, belief in beliefs.items() if name in bank.ids})


def _rewards(gate: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name in _SAMPLED_ALIKE:
        for outcome in completed_outcomes(JsonlLog(gate / f"{name}.jsonl")).values():
            found.setdefault(outcome.task_id, []).append(outcome.reward)
    return found
