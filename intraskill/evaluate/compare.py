"""Two evaluations against each other, task by task.

A difference means something only if nothing but the condition changed. So two folders are compared only when their
protocols are equal in everything but model, checkpoint and skills (the first difference found is named), and when both
cover every task: a task that only one side could score would bias the difference. Where both the model and the
skills changed, the record says so (`changed`): such a difference describes, it does not attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intraskill.core.errors import UserError
from intraskill.core.records import task_order
from intraskill.evaluate.episode_table import EpisodeTable
from intraskill.evaluate.folder import EvalFolder
from intraskill.evaluate.plan import CONDITIONS, protocol_differences
from intraskill.evaluate.summarize import read_table, summarize
from intraskill.stats.paired_record import SAMPLES, UNIT, paired_record

COMPARISON_SCHEMA = "intraskill-comparison-v1"


@dataclass(frozen=True)
class Evaluated:
    """One side of a comparison."""

    path: Path
    manifest: Mapping[str, Any]
    table: EpisodeTable


def read_evaluation(path: Path) -> Evaluated:
    """A finished or unfinished evaluation's folder."""
    folder = EvalFolder(path)
    manifest = folder.manifest()
    return Evaluated(path, manifest, read_table(folder, manifest))


def compare(
    a: Evaluated, b: Evaluated, *, seed: int = 0, samples: int = SAMPLES, partial: bool = False
) -> dict[str, Any]:
    """The comparison of `b - a` as a JSON object. Raises `UserError` when the two cannot be compared."""
    differences = protocol_differences(a.manifest["semantic"], b.manifest["semantic"])
    if differences:
        raise UserError(
            f"{a.path} and {b.path} ran under different protocols ({'; '.join(differences)}); evaluate both with "
            "the same settings"
        )
    tasks = sorted(a.table.complete_tasks() & b.table.complete_tasks(), key=task_order)
    wanted = len({job.task_id for job in a.table.jobs})
    if not partial:
        _require_coverage(a, b)
    return {
        "schema": COMPARISON_SCHEMA,
        "a": _side(a),
        "b": _side(b),
        "changed": [key for key in CONDITIONS if a.manifest["semantic"][key] != b.manifest["semantic"][key]],
        "coverage": {"a": _coverage(a), "b": _coverage(b), "paired_tasks": len(tasks), "tasks": wanted},
        **compare_tables(a.table, b.table, tasks, seed=seed, samples=samples),
    }


def compare_tables(
    a: EpisodeTable, b: EpisodeTable, tasks: list[str], *, seed: int = 0, samples: int = SAMPLES
) -> dict[str, Any]:
    """Paired statistics of every metric over `tasks`."""
    if not tasks:
        raise UserError("no task is complete on both sides; there is nothing to compare")
    metrics = {}
    repeated = len({job.task_id for job in a.jobs}) < len(a.jobs)
    for name in (*a.outcomes, "steps", "invalid_actions", "protocol_errors"):
        first, second = a.task_means(name), b.task_means(name)
        metrics[name] = paired_record(
            [first[task] for task in tasks],
            [second[task] for task in tasks],
            seed=seed,
            samples=samples,
            bounds=UNIT if name in a.outcomes else None,
        )
        if repeated or name not in a.outcomes:  # neither a mean over repeats nor a count is right or wrong
            metrics[name] |= {"mcnemar_p": None, "transitions": None}
    return {
        "bootstrap": {"method": "percentile over tasks", "samples": samples, "seed": seed, "confidence": 0.95},
        "metrics": metrics,
    }


def _require_coverage(*sides: Evaluated) -> None:
    for side in sides:
        missing = int((~side.table.completed).sum())
        if missing:
            raise UserError(
                f"{side.path}: {missing} of {len(side.table.jobs)} episodes are not completed; run that evaluation "
                "to its end, or compare the tasks both completed with --partial"
            )


def _side(one: Evaluated) -> dict[str, Any]:
    manifest = one.manifest
    keys = ("name", "condition", "final_test", "fingerprint")
    return {key: manifest[key] for key in keys} | {key: manifest["semantic"][key] for key in CONDITIONS}


def _coverage(one: Evaluated) -> dict[str, Any]:
    return dict(summarize(one.table)["coverage"])
