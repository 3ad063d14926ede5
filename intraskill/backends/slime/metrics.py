"""What slime's own logging (W&B, TensorBoard) is given beside what it measures itself.

The names are those of the run folder's `metrics.jsonl`, so that both backends draw the same curves. slime adds
`rollout/step` to a step's metrics and `eval/step` to an evaluation's; a gate carries `rollout/step` too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from intraskill.training.step import StepBatch

_HEADING = frozenset({"kind", "round", "step", "condition"})


def step_metrics(batch: StepBatch, cached_tokens: int, prompt_tokens: int) -> dict[str, float]:
    """One generated step's metrics; the two counts are the step's prompt tokens."""
    return {**batch.metrics, "rollout/prefix_cache_hit_rate_all": cached_tokens / max(1, prompt_tokens)}


def round_rows(rows: Sequence[Mapping[str, Any]], round_index: int, step: int) -> list[Mapping[str, Any]]:
    """The gate and evaluation rows that belong to the end of this round (-1: before the first step)."""
    return [
        row
        for row in rows
        if row["kind"] in ("gate", "evaluation") and row["round"] == round_index and row["step"] == step
    ]


def evaluation_metrics(rows: Sequence[Mapping[str, Any]], rollout_id: int) -> dict[str, float]:
    """`gate/*` as recorded, `eval/<condition>/*` for the validation runs."""
    values: dict[str, float] = {"rollout/step": rollout_id}
    for row in rows:
        prefix = f"eval/{row['condition']}/" if row["kind"] == "evaluation" else ""
        values |= {
            prefix + name: float(value)
            for name, value in row.items()
            if name not in _HEADING and name != "rollout/step" and isinstance(value, (int, float))
        }
    return values
