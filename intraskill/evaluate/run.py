"""Running an evaluation: claim the folder, run what its traces do not hold yet, summarize.

The agent loop is the one that training uses. A kill costs the episodes that were running; the same command again runs
those and the failed ones, and nothing else.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from intraskill.core.errors import IntraSkillError
from intraskill.core.progress import Reporter
from intraskill.core.protocol import Policy
from intraskill.evaluate.folder import EvalFolder
from intraskill.evaluate.plan import EvalPlan, check_guards, make_plan
from intraskill.evaluate.policies import open_policy
from intraskill.evaluate.settings import EvalSettings
from intraskill.evaluate.summarize import write_summary
from intraskill.families.base import TaskFamily
from intraskill.families.registry import open_family
from intraskill.policies.openai import OpenAIPolicy
from intraskill.rollout.jobs import PlannedEpisode, run_jobs, run_rolling
from intraskill.storage.lock import RunLock
from intraskill.training.open_run import open_runner


def plan_evaluation(settings: EvalSettings, runs_dir: Path) -> EvalPlan:
    """The plan alone: no model is loaded and no service is asked."""
    return make_plan(settings, open_family(settings.environment.offline(), runs_dir / ".worlds"))


def run_evaluation(
    settings: EvalSettings,
    path: Path,
    reporter: Reporter,
    *,
    final_test: bool = False,
    policy: Policy | None = None,
    worlds: Path | None = None,
) -> dict[str, Any]:
    """Run or continue the evaluation in `path`; returns its summary. `policy` stands in for the settings' own, `worlds`
    is where generated worlds are kept (default: beside `path`).

    Raises `IntraSkillError` when episodes could not be scored even after retries; what was scored is kept.
    """
    family = open_family(settings.environment, worlds or path.parent / ".worlds")
    plan = make_plan(settings, family)
    check_guards(plan, final_test)
    folder = EvalFolder(path)
    with RunLock(path):
        folder.claim(plan, final_test)
        asyncio.run(run_plan(plan, folder, family, policy or open_policy(settings.policy), reporter))
        summary = write_summary(folder)
    coverage = summary["coverage"]
    if coverage["completed"] < coverage["requested"]:
        raise IntraSkillError(
            f"{path}: {coverage['requested'] - coverage['completed']} of {coverage['requested']} episodes could not "
            f"be scored (last failure: {coverage['last_failure']}); mend that and start the same command again: only "
            "these are run"
        )
    return summary


async def run_plan(plan: EvalPlan, folder: EvalFolder, family: TaskFamily, policy: Policy, reporter: Reporter) -> None:
    """Run every job of the plan that the folder's traces do not complete."""
    settings = plan.settings
    runner = open_runner(settings.environment, settings.policy, family, policy)
    chunks = plan.bank.chunks if plan.bank else ()
    plans = [PlannedEpisode(job, chunks) for job in plan.jobs]
    provenance = {
        **runner.protocol(),
        "checkpoint_id": settings.policy.checkpoint_id,
        "bank_sha256": plan.bank.sha256 if plan.bank else None,
        "fingerprint": plan.fingerprint,
    }
    try:
        with reporter.bar(f"{settings.name} ({plan.condition})", len(plans)) as bar:
            if settings.policy.base_url is None:
                await run_jobs(runner, plans, folder.traces, provenance, settings.concurrency, bar)
            else:
                await run_rolling(runner, plans, folder.traces, provenance, settings.concurrency, bar)
    finally:
        if isinstance(policy, OpenAIPolicy):
            await policy.close()
