"""The two differences a run is about, paired by task, with their 95 % intervals.

**Rise**: success without any skill, at the first gate and at the last: what training put into the weights.
**Gap**: at the last gate, success with the whole bank minus success without: what still has to stand in the prompt.
Both compare the same validation tasks, so the interval comes from the per-task differences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from intraskill.core.records import task_order
from intraskill.report.run_data import RunData, gate_dir
from intraskill.rollout.jobs import Outcome, completed_outcomes
from intraskill.stats.paired import paired_difference
from intraskill.storage.jsonl import JsonlLog

Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class Effect:
    """A mean per-task difference of success, over `pairs` tasks."""

    difference: float
    low: float
    high: float
    pairs: int


def rise(data: RunData) -> Effect | None:
    """Skill-free success at the latest gate minus at the first; None with fewer than two gates."""
    if len(data.gates) < 2:
        return None
    first, last = (gate_dir(data.path, data.gates[index].round) for index in (0, -1))
    return _effect(first / "bare.jsonl", last / "bare.jsonl")


def gap(data: RunData) -> Effect | None:
    """Success with the full bank minus success with none at the latest gate; None where not measured."""
    if not data.gates:
        return None
    folder = gate_dir(data.path, data.gates[-1].round)
    return _effect(folder / "bare.jsonl", folder / "equipped.jsonl")


def _effect(first: Path, second: Path) -> Effect | None:
    if not (first.exists() and second.exists()):
        return None
    before, after = _by_task(first), _by_task(second)
    shared = sorted(before.keys() & after.keys(), key=task_order)
    if len(shared) < 2:
        return None
    paired = paired_difference([before[task].success for task in shared], [after[task].success for task in shared])
    error = 0.0 if math.isnan(paired.standard_error) else Z95 * paired.standard_error
    return Effect(paired.difference, paired.difference - error, paired.difference + error, paired.pairs)


def _by_task(path: Path) -> dict[str, Outcome]:
    return {outcome.task_id: outcome for outcome in completed_outcomes(JsonlLog(path)).values()}
