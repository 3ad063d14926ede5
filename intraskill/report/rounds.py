"""One line per round: what training saw, what the gate measured, what became of the bank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from intraskill.report.run_data import Row, RunData


@dataclass(frozen=True, slots=True)
class RoundSummary:
    """Round -1 is the start, before the first step. Values are None while not measured.

    `skill_free`, `skill_free_greedy`, `equipped` and `masked` are validation success rates at the end of the round;
    `kept` and `dropped` are the chunks the closing gate left in the bank and the ones it let go.
    """

    round: int
    step: int
    train_reward: float | None
    train_success: float | None
    skill_free: float | None
    skill_free_greedy: float | None
    equipped: float | None
    masked: float | None
    kept: tuple[str, ...] | None
    dropped: tuple[str, ...]

    @property
    def label(self) -> str:
        return "start" if self.round < 0 else str(self.round)

    @property
    def gap(self) -> float | None:
        """How much better the policy does with the whole bank than with none: what it hasn't absorbed yet."""
        if self.equipped is None or self.skill_free is None:
            return None
        return self.equipped - self.skill_free


def summarize_rounds(data: RunData) -> list[RoundSummary]:
    """One summary per round that left any trace, in order."""
    rows = (*data.steps, *data.gate_rows, *data.evaluations)
    indices = sorted({int(row["round"]) for row in rows if "round" in row})
    return [_summary(data, index) for index in indices]


def _summary(data: RunData, index: int) -> RoundSummary:
    steps = [row for row in data.steps if row.get("round") == index]
    gate_row: Row = next((row for row in data.gate_rows if row.get("round") == index), {})
    gate = next((gate for gate in data.gates if gate.round == index), None)
    success = {
        str(row.get("condition")): row.get("success_rate") for row in data.evaluations if row.get("round") == index
    }
    last = [int(row["step"]) for row in (*steps, *([gate_row] if gate_row else []))]
    return RoundSummary(
        round=index,
        step=max(last, default=0),
        train_reward=_mean(steps, data.outcome("reward_mean")),
        train_success=_mean(steps, data.outcome("success_rate")),
        skill_free=_first(success.get("skill_free"), gate_row.get("gate/bare/success_rate")),
        skill_free_greedy=success.get("skill_free_greedy"),
        equipped=success.get("equipped"),
        masked=gate_row.get("gate/masked/success_rate"),
        kept=gate.kept if gate else None,
        dropped=gate.dropped if gate else (),
    )


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _mean(rows: Sequence[Mapping[str, float]], key: str) -> float | None:
    values = [row[key] for row in rows if row.get(key) is not None]
    return sum(values) / len(values) if values else None
