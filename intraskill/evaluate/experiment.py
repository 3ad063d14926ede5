"""Experiments: several evaluations of one training run under one protocol, and the contrasts between them.

An experiment is a list of **arms** (weights, and the bank shown) and a list of **contrasts** (arm b minus arm a). Its
folder holds one settings file an arm (the plan), one evaluation folder an arm, and the report. The protocol (world,
prompt, sampling, limits) is the training run's own; the seed is shared, so all contrasts are paired by task.

Where the weights are served by an endpoint, only one checkpoint is up at a time: arms can be run in several goes, and
the report is written once all are complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from intraskill.core.errors import UserError
from intraskill.core.progress import Reporter
from intraskill.evaluate.compare import Evaluated, compare, read_evaluation
from intraskill.evaluate.plan import plan_record
from intraskill.evaluate.report_page import Interval, interval_text, write_page
from intraskill.evaluate.run import plan_evaluation, run_evaluation
from intraskill.evaluate.settings import EvalPolicySettings, EvalSettings, SkillSettings, SplitName
from intraskill.evaluate.summarize import summarize
from intraskill.settings.models import RunSettings
from intraskill.skills.bank import Bank, write_bank
from intraskill.storage.documents import write_bytes_atomic

EXPERIMENT_SCHEMA = "intraskill-experiment-v1"


@dataclass(frozen=True)
class Arm:
    """One evaluation of the experiment: these weights, shown this bank (None: skill-free)."""

    name: str
    model: str
    checkpoint_id: str
    bank: Bank | None


@dataclass(frozen=True)
class Contrast:
    """Arm `b` minus arm `a`, and what the difference stands for."""

    name: str
    a: str
    b: str
    meaning: str


@dataclass(frozen=True)
class Experiment:
    """Arms and contrasts over one training run. `facts` go into the report as they are."""

    name: str
    run: Path
    settings: RunSettings
    arms: tuple[Arm, ...]
    contrasts: tuple[Contrast, ...]
    facts: Mapping[str, Any]

    def without_empty_banks(self) -> Experiment:
        """The same without arms whose bank holds no chunk: they would repeat the skill-free arm."""
        arms = tuple(arm for arm in self.arms if arm.bank is None or arm.bank.chunks)
        empty = sorted({arm.name for arm in self.arms} - {arm.name for arm in arms})
        contrasts = tuple(c for c in self.contrasts if c.a not in empty and c.b not in empty)
        return replace(self, arms=arms, contrasts=contrasts, facts={**self.facts, "empty_banks": empty})


@dataclass(frozen=True)
class Protocol:
    """How the arms are run. `base_url` and `served_model` name an endpoint; without, weights are embedded."""

    split: SplitName = "val"
    final_test: bool = False
    tasks: int | None = None
    repeats: int = 1
    seed: int = 0
    concurrency: int = 128
    base_url: str | None = None
    served_model: str = "default"


def write_plan(experiment: Experiment, protocol: Protocol, out: Path) -> dict[str, EvalSettings]:
    """Write one settings file and, for equipped arms, one bank an arm; returns the settings by arm."""
    planned = {}
    for arm in experiment.arms:
        bank = out / "banks" / f"{arm.name}.json" if arm.bank else None
        if bank and arm.bank:
            write_bank(bank, arm.bank)
        planned[arm.name] = settings = _settings(experiment.settings, arm, bank, protocol)
        text = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        write_bytes_atomic(out / f"{arm.name}.yaml", text.encode())
    return planned


def plan_experiment(experiment: Experiment, protocol: Protocol, out: Path) -> dict[str, Any]:
    """Write the plan and say what would run."""
    planned = write_plan(experiment, protocol, out)
    return {name: plan_record(plan_evaluation(settings, _runs(experiment))) for name, settings in planned.items()}


def run_experiment(
    experiment: Experiment,
    protocol: Protocol,
    out: Path,
    reporter: Reporter,
    *,
    only: str | None = None,
    samples: int,
) -> dict[str, Any]:
    """Write the plan, run the arms whose name starts with `only` (all by default), report once all are complete."""
    planned = write_plan(experiment, protocol, out)
    chosen = [name for name in planned if name.startswith(only or "")]
    if not chosen:
        raise UserError(f"--only {only}: no arm's name starts so; the arms are {', '.join(planned)}")
    for name in chosen:
        run_evaluation(
            planned[name], out / name, reporter, final_test=protocol.final_test, worlds=_runs(experiment) / ".worlds"
        )
    waiting = [name for name in planned if not (out / name / "summary.json").exists()]
    if waiting:
        return {"schema": EXPERIMENT_SCHEMA, "name": experiment.name, "finished": chosen, "waiting_for": waiting}
    record = experiment_record(experiment, protocol, {name: read_evaluation(out / name) for name in planned}, samples)
    write_page(out, "report", record, experiment_markdown(record), contrast_intervals(record))
    return record


def experiment_record(
    experiment: Experiment, protocol: Protocol, arms: Mapping[str, Evaluated], samples: int
) -> dict[str, Any]:
    """The report: every arm's outcomes, every contrast's paired statistics."""
    contrasts = []
    for contrast in experiment.contrasts:
        found = compare(arms[contrast.a], arms[contrast.b], seed=protocol.seed, samples=samples)
        contrasts.append(
            {
                "name": contrast.name,
                "a": contrast.a,
                "b": contrast.b,
                "meaning": contrast.meaning,
                "changed": found["changed"],
                "metrics": found["metrics"],
            }
        )
    return {
        "schema": EXPERIMENT_SCHEMA,
        "name": experiment.name,
        "run": experiment.settings.name,
        "split": protocol.split,
        "final_test": protocol.final_test,
        "seed": protocol.seed,
        "bootstrap_samples": samples,
        **experiment.facts,
        "arms": {name: _arm_record(one) for name, one in arms.items()},
        "contrasts": contrasts,
    }


def experiment_markdown(record: Mapping[str, Any]) -> str:
    """The report as a page."""
    lines = [
        f"# {record['name']} of {record['run']} on {record['split']}",
        "",
        "| arm | checkpoint | chunks | reward | success | steps | coverage |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, arm in record["arms"].items():
        lines.append(
            f"| {name} | {arm['checkpoint_id']} | {len(arm['skill_ids'])} | {arm['reward']:.4f} | "
            f"{arm['success']:.4f} | {arm['steps']:.2f} | {arm['coverage']:.3f} |"
        )
    for metric in ("reward", "success"):
        lines += [
            "",
            f"| {metric} | b - a | difference | 95 % interval | what it stands for |",
            "|---|---|---:|---|---|",
        ]
        for contrast in record["contrasts"]:
            row = contrast["metrics"][metric]
            lines.append(
                f"| {contrast['name']} | {contrast['b']} - {contrast['a']} | {row['mean_difference']:+.4f} | "
                f"{interval_text(row['ci'])} | {contrast['meaning']} |"
            )
    for name, ids in record.get("subsets", {}).items():
        lines += ["", f"{name}: {', '.join(ids)}."]
    for empty in record.get("empty_banks", ()):
        lines += ["", f"The bank of {empty} holds no chunk; the arm would repeat the skill-free one and was left out."]
    if record["split"] == record["selection_split"]:
        lines += ["", f"The banks were selected on {record['split']} tasks too: equipped arms are in-sample here."]
    lines += ["", f"Intervals: percentile bootstrap over tasks, {record['bootstrap_samples']} samples."]
    return "\n".join(lines) + "\n"


def contrast_intervals(record: Mapping[str, Any]) -> list[Interval]:
    """The picture's rows: every contrast's difference in reward."""
    rows = []
    for contrast in record["contrasts"]:
        reward = contrast["metrics"]["reward"]
        rows.append(Interval(f"{contrast['b']} - {contrast['a']}", reward["mean_difference"], *reward["ci"]))
    return rows


def _settings(run: RunSettings, arm: Arm, bank: Path | None, protocol: Protocol) -> EvalSettings:
    policy = {**run.policy.model_dump(), "model": arm.model, "checkpoint_id": arm.checkpoint_id}
    if protocol.base_url:
        policy |= {"model": protocol.served_model, "base_url": protocol.base_url}
    return EvalSettings(
        name=arm.name,
        split=protocol.split,
        sample_size=protocol.tasks,
        repeats=protocol.repeats,
        seed=protocol.seed,
        concurrency=protocol.concurrency,
        skills=SkillSettings(path=str(bank.absolute()) if bank else None),
        environment=run.environment,
        policy=EvalPolicySettings.model_validate(policy),
    )


def _arm_record(one: Evaluated) -> dict[str, Any]:
    summary, semantic = summarize(one.table), one.manifest["semantic"]
    return {
        "checkpoint_id": semantic["checkpoint_id"],
        "skill_ids": semantic["skills"]["ids"] if semantic["skills"] else [],
        "reward": summary["outcomes"]["reward"]["mean"],
        "reward_se": summary["outcomes"]["reward"]["standard_error"],
        "success": summary["outcomes"]["success"]["mean"],
        "success_se": summary["outcomes"]["success"]["standard_error"],
        "steps": summary["steps"]["per_episode"]["mean"],
        "coverage": summary["coverage"]["coverage"],
        "fingerprint": one.manifest["fingerprint"],
    }


def _runs(experiment: Experiment) -> Path:
    return experiment.run.parent
