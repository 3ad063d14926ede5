"""An evaluation's folder: what it means (`manifest.json`), what happened (`traces.jsonl`) and its `summary.json`.

The manifest freezes everything semantic, the concrete job list included. A folder belongs to one meaning: settings
that mean something else are refused with the names of what changed, so that results of two protocols can never end
up in one file.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import intraskill
from intraskill.core.errors import UserError
from intraskill.core.records import EpisodeJob, stored_task_id
from intraskill.evaluate.plan import EvalPlan
from intraskill.storage.documents import read_json, write_json_atomic
from intraskill.storage.fingerprint import describe_difference, fingerprint
from intraskill.storage.jsonl import JsonlLog

MANIFEST_SCHEMA = "intraskill-evaluation-v1"


class EvalFolder:
    """Paths and files of `runs/<name>/`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.traces = JsonlLog(path / "traces.jsonl")

    def claim(self, plan: EvalPlan, final_test: bool) -> None:
        """Write the manifest, or check that the folder is this very evaluation's. Raises `UserError`.

        A folder without any attempt (the model's name was refused, say) belongs to nobody yet.
        """
        path = self.path / "manifest.json"
        if path.exists() and self.traces.path.exists():
            found = read_json(path, MANIFEST_SCHEMA)
            if found["fingerprint"] != plan.fingerprint:
                changes = "; ".join(describe_difference(found["semantic"], plan.semantic))
                raise UserError(f"{self.path} holds another evaluation ({changes}); choose another name or folder")
            return
        if (self.path / "run.json").exists():
            raise UserError(f"{self.path} is the folder of a training run; choose another name for the evaluation")
        write_json_atomic(
            path,
            {
                "schema": MANIFEST_SCHEMA,
                "name": plan.settings.name,
                "condition": plan.condition,
                "final_test": final_test,
                "fingerprint": plan.fingerprint,
                "semantic": plan.semantic,
                "settings": plan.settings.model_dump(mode="json"),
                "jobs": [(stored_task_id(job.task_id), job.sample_id, job.seed) for job in plan.jobs],
                "versions": {"intraskill": intraskill.__version__, "python": platform.python_version()},
            },
        )

    def manifest(self) -> dict[str, Any]:
        """The manifest. Raises `UserError` when this is no evaluation's folder, or its meaning was edited."""
        path = self.path / "manifest.json"
        if not path.exists():
            raise UserError(f"{self.path} is no evaluation (it has no manifest.json); give a folder of `eval run`")
        manifest: dict[str, Any] = read_json(path, MANIFEST_SCHEMA)
        if fingerprint(manifest["semantic"]) != manifest["fingerprint"]:
            raise UserError(f"{path} was edited after it was written (its fingerprint is off); restore or delete it")
        return manifest


def manifest_jobs(manifest: Mapping[str, Any]) -> tuple[EpisodeJob, ...]:
    """The frozen job list."""
    split = manifest["semantic"]["split"]["name"]
    return tuple(EpisodeJob(str(task), sample, seed, split) for task, sample, seed in manifest["jobs"])
