"""What an evaluation will run, known before anything runs: its jobs and its fingerprint.

The job list is a pure function of split manifest, seed, sample size and repeats: tasks are drawn by a stable hash (a
smaller sample is part of a larger one), and every episode's seed depends on (seed, task, sample) alone. So two
checkpoints evaluated with the same settings attempt the same tasks with the same seeds, and differences can be paired.

`semantic` is everything that decides what the numbers mean; its hash is the fingerprint. Two evaluations are
comparable when they agree in all of it but the three **conditions**: model, checkpoint_id and skills.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from intraskill.assets import bank_path, model_directory
from intraskill.core.errors import UserError
from intraskill.core.records import EpisodeJob, task_order
from intraskill.core.seeds import stable_seed
from intraskill.evaluate.settings import EvalPolicySettings, EvalSettings
from intraskill.families.base import TaskFamily
from intraskill.policies.model_files import model_sha256
from intraskill.policies.openai import check_endpoint
from intraskill.skills.bank import Bank, read_bank
from intraskill.storage.fingerprint import describe_difference, fingerprint

CONDITIONS = ("model", "checkpoint_id", "skills")


@dataclass(frozen=True)
class EvalPlan:
    """Everything decided: settings, the bank that will be shown (None: skill-free), jobs, meaning."""

    settings: EvalSettings
    bank: Bank | None
    jobs: tuple[EpisodeJob, ...]
    semantic: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.semantic)

    @property
    def condition(self) -> str:
        return "skill-free" if self.bank is None else "equipped"


def make_plan(settings: EvalSettings, family: TaskFamily) -> EvalPlan:
    """The plan of `settings` in this world. Raises `UserError` for what cannot be run."""
    tasks = getattr(family.splits(), settings.split)
    jobs = plan_jobs(tasks, settings)
    bank = _read_bank(settings.skills.path)
    policy, sampling = settings.policy, settings.policy.sampling.model_dump()
    semantic = {
        "split": {"name": settings.split, "tasks": len(tasks), "sha256": fingerprint(tasks)},
        "jobs": {
            "episodes": len(jobs),
            "seed": settings.seed,
            "sample_size": settings.sample_size,
            "repeats": settings.repeats,
            "sha256": fingerprint([(job.task_id, job.sample_id, job.seed) for job in jobs]),
        },
        "environment": family.identity(),
        "max_steps": settings.environment.max_steps,
        "prompt_sha256": family.prompt(policy.prompt).sha256,
        "tool_schema": policy.tool_schema,
        "sampling": {**sampling, "extra_body": policy.extra_body},
        "model": _model(policy),
        "checkpoint_id": policy.checkpoint_id,
        "skills": None if bank is None else {"sha256": bank.sha256, "ids": bank.ids},
    }
    return EvalPlan(settings, bank, jobs, semantic)


def plan_jobs(task_ids: Sequence[str], settings: EvalSettings) -> tuple[EpisodeJob, ...]:
    """The jobs in ascending (task, sample) order."""
    if settings.sample_size is None:
        drawn = sorted(task_ids, key=task_order)
    elif settings.sample_size > len(task_ids):
        raise UserError(
            f"sample_size is {settings.sample_size} but the {settings.split} split has {len(task_ids)} tasks; lower it"
        )
    else:
        ranked = sorted(task_ids, key=lambda task: (stable_seed("sample", settings.seed, task), task_order(task)))
        drawn = sorted(ranked[: settings.sample_size], key=task_order)
    if not drawn:
        raise UserError(f"the {settings.split} split is empty; there is nothing to evaluate")
    return tuple(
        EpisodeJob(task, sample, stable_seed("evaluate", settings.seed, task, sample), settings.split)
        for task in drawn
        for sample in range(settings.repeats)
    )


def plan_record(plan: EvalPlan) -> dict[str, Any]:
    """The plan as `eval plan` prints it."""
    semantic = plan.semantic
    return {
        "name": plan.settings.name,
        "split": plan.settings.split,
        "needs_final_test": plan.settings.split == "test",
        "condition": plan.condition,
        "checkpoint_id": plan.settings.policy.checkpoint_id,
        "episodes": len(plan.jobs),
        "tasks": len({job.task_id for job in plan.jobs}),
        "first_task_ids": sorted({job.task_id for job in plan.jobs}, key=task_order)[:5],
        "jobs_sha256": semantic["jobs"]["sha256"],
        "prompt_sha256": semantic["prompt_sha256"],
        "skills": semantic["skills"],
        "model": semantic["model"],
        "fingerprint": plan.fingerprint,
    }


def check_guards(plan: EvalPlan, final_test: bool) -> None:
    """The test split is opened on purpose or not at all."""
    if plan.settings.split == "test" and not final_test:
        raise UserError(
            "split test is for the final evaluation, after everything has been chosen; add --final-test to run it, "
            "or use split val"
        )
    if final_test and plan.settings.split != "test":
        raise UserError(f"--final-test was given for split {plan.settings.split}; remove it, or use split test")


def protocol_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Where two evaluations' `semantic` differ apart from their conditions; empty when they can be compared."""
    first, second = ({key: side[key] for key in side if key not in CONDITIONS} for side in (a, b))
    return describe_difference(first, second)


def _read_bank(path: str | None) -> Bank | None:
    if path is None:
        return None
    bank = read_bank(bank_path(path))
    if not bank.chunks:
        raise UserError(f"skills.path: {path} holds no chunk; for a skill-free evaluation write path: null")
    if bank.uses_test_outcomes:
        raise UserError(
            f"skills.path: {path} was made with knowledge of test results (uses_test_outcomes); no score may be "
            "reported for it, use another bank"
        )
    return bank


def _model(policy: EvalPolicySettings) -> dict[str, Any]:
    if policy.base_url is not None:
        check_endpoint(policy.base_url, policy.extra_body)
        return {"backend": "openai", "name": policy.model}
    return {"backend": "torch", "sha256": model_sha256(model_directory(policy.model)), "dtype": policy.sampler_dtype}
