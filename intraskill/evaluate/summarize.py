"""What an evaluation says, coverage first.

Means are over tasks (with repeats: over each task's mean), and so are their standard errors: episodes of one task are
not independent. A part of the reward that an ending does not state counts 0. Rates are over steps or actions, as
their names say. Nothing that failed is left out silently: it is counted under `coverage`, with what was spent on it.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from intraskill.evaluate.episode_table import TOKENS, EpisodeTable, build_table
from intraskill.evaluate.folder import EvalFolder, manifest_jobs
from intraskill.families.registry import kind_of
from intraskill.rollout.episode_numbers import read_numbers
from intraskill.storage.documents import write_json_atomic

SUMMARY_SCHEMA = "intraskill-evaluation-summary-v1"


def write_summary(folder: EvalFolder) -> dict[str, Any]:
    """Read the folder's traces, write `summary.json`, return it."""
    manifest = folder.manifest()
    summary = {
        "schema": SUMMARY_SCHEMA,
        "name": manifest["name"],
        "split": manifest["semantic"]["split"]["name"],
        "condition": manifest["condition"],
        "checkpoint_id": manifest["semantic"]["checkpoint_id"],
        "final_test": manifest["final_test"],
        "fingerprint": manifest["fingerprint"],
        **summarize(read_table(folder, manifest)),
    }
    write_json_atomic(folder.path / "summary.json", summary)
    return summary


def read_table(folder: EvalFolder, manifest: dict[str, Any]) -> EpisodeTable:
    """The folder's outcomes in the order of its job list."""
    parts = kind_of(manifest["settings"]).reward_parts
    return build_table(manifest_jobs(manifest), read_numbers(folder.traces), parts, str(folder.traces.path))


def summarize(table: EpisodeTable) -> dict[str, Any]:
    """The summary of a table of outcomes. All means are None when nothing completed."""
    return {
        "coverage": _coverage(table),
        "outcomes": {name: _estimate(table, name) for name in table.outcomes},
        "steps": _steps(table),
        "terminations": _shares(table.terminations),
        "tokens": {
            name: {"total": int(np.nansum(table.values[name])), "per_episode": _estimate(table, name)["mean"]}
            for name in TOKENS
        },
        "time": _time(table),
    }


def _coverage(table: EpisodeTable) -> dict[str, Any]:
    done, tried = table.completed, table.failed_attempts
    return {
        "requested": len(table.jobs),
        "completed": int(done.sum()),
        "failed": int((~done & (tried > 0)).sum()),
        "missing": int((~done & (tried == 0)).sum()),
        "coverage": float(done.mean()),
        "failed_attempts": int(tried.sum()),
        "completed_after_retry": int((done & (tried > 0)).sum()),
        "failures": dict(sorted(table.failures.items())),
        "last_failure": table.last_failure,
    }


def _estimate(table: EpisodeTable, name: str) -> dict[str, Any]:
    """Mean over tasks with its standard error."""
    means = np.array(list(table.task_means(name).values()))
    error = float(means.std(ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else None
    return {"mean": float(means.mean()) if len(means) else None, "standard_error": error, "tasks": len(means)}


def _steps(table: EpisodeTable) -> dict[str, Any]:
    steps, actions, invalid, errors = (
        float(np.nansum(table.values[name])) for name in ("steps", "actions", "invalid_actions", "protocol_errors")
    )
    return {
        "per_episode": _estimate(table, "steps"),
        "total": int(steps),
        "actions": int(actions),
        "invalid_actions": int(invalid),
        "invalid_action_rate": invalid / actions if actions else None,
        "protocol_errors": int(errors),
        "protocol_errors_per_step": errors / steps if steps else None,
        "protocol_errors_per_task": _estimate(table, "protocol_errors")["mean"],
        "protocol_errors_by_code": dict(sorted(table.protocol_codes.items())),
    }


def _time(table: EpisodeTable) -> dict[str, Any]:
    """Episode seconds, and the wall time during which episodes were running (pauses between starts left out)."""
    seconds = table.values["seconds"][table.completed]
    started = table.started[table.completed]
    return {
        "episode_seconds_mean": float(seconds.mean()) if len(seconds) else None,
        "episode_seconds_total": float(seconds.sum()),
        "wall_seconds": _union(started, started + seconds),
    }


def _union(starts: np.ndarray, ends: np.ndarray) -> float:
    """Total length of the union of intervals."""
    if not len(starts):
        return 0.0
    order = np.argsort(starts)
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    gaps = np.maximum(0.0, starts[1:] - ends[:-1])
    return float(ends[-1] - starts[0] - gaps.sum())


def _shares(counts: Counter[str]) -> dict[str, Any]:
    total = sum(counts.values())
    return {name: {"count": count, "share": count / total} for name, count in sorted(counts.items())}
