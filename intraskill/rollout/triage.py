"""The failure frontier: what an all-wrong group tells once it was retried with the complete bank.

A group in which every sibling is scorable and none succeeds gets one diagnostic retry. If the full bank rescues it,
the knowledge is in the prompt but not yet in the model: keep training. If not, the knowledge may be missing from the
bank: the analyst looks at the retry. The retry itself never reaches the trainer.
"""

from __future__ import annotations

from typing import Literal

from intraskill.core.records import Episode, Group

Triage = Literal[
    "solved",
    "model_internalization_deficit",
    "full_skill_failure_pending_analysis",
    "environment_or_runtime_error",
]


def triage(group: Group, retry: Episode | None) -> Triage:
    """Classify one finished group; `retry` is its full-bank retry, needed exactly when it is all-wrong."""
    if not group.scorable:
        return "environment_or_runtime_error"
    if not group.all_wrong:
        return "solved"
    if retry is None:
        raise ValueError(f"group {group.index} is all-wrong but was not retried")
    if not retry.scorable:
        return "environment_or_runtime_error"
    return "model_internalization_deficit" if retry.success else "full_skill_failure_pending_analysis"
