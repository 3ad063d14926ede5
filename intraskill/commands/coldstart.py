"""`intraskill coldstart`: a first skill bank from the policy's own successes and failures.

Each command prints one JSON value and writes into the cold start's folder.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import typer

from intraskill.agent.episode import EpisodeSettings
from intraskill.core.errors import UserError
from intraskill.core.progress import Reporter
from intraskill.core.protocol import Policy
from intraskill.core.records import Sampling
from intraskill.evolution.coldstart import ColdStart
from intraskill.evolution.proposer import open_analyst, rules_analyst
from intraskill.families.shop.environment import open_world
from intraskill.families.shop.prompts import prompt_template
from intraskill.rollout.runner import EpisodeRunner
from intraskill.settings.files import load_settings
from intraskill.settings.models import RunSettings
from intraskill.storage.store import RunLock

coldstart_app = typer.Typer(help="A first skill bank from nothing.", no_args_is_help=True)

CONFIG = typer.Argument(..., help="Settings of the run the bank is for, e.g. configs/quick.yaml.")
OUT = typer.Option(Path("runs/coldstart"), help="Folder of the cold start.")
QUIET = typer.Option(False, "--quiet", help="No progress on standard error.")


@coldstart_app.command()
def analyze(
    config: Path = CONFIG,
    out: Path = OUT,
    tasks: int = typer.Option(400, min=1, help="Training tasks to play without any skill."),
    quiet: bool = QUIET,
) -> None:
    """Play training tasks and make a card of each.

    Without skills; every success and every failure gets a card.
    """
    with RunLock(out):
        start = _open(config, out, quiet)
        parts = start.settings, start.source.catalog
        _print_json(asyncio.run(start.analyze(open_analyst(*parts), tasks, rules_analyst(*parts))))


@coldstart_app.command("compile")
def compile_command(config: Path = CONFIG, out: Path = OUT, quiet: bool = QUIET) -> None:
    """Compile the cards into at most 16 draft chunks.

    Training refuses a draft.
    """
    with RunLock(out):
        _print_json(_open(config, out, quiet).compile())


@coldstart_app.command()
def gate(
    config: Path = CONFIG,
    out: Path = OUT,
    final_test: bool = typer.Option(
        False, "--final-test", help="Then compare the selected bank with no bank on the test split (Gate B)."
    ),
    quiet: bool = QUIET,
) -> None:
    """Measure the draft and write the bank to start from.

    On validation tasks, before any training (Gate A).
    """
    with RunLock(out):
        _print_json(asyncio.run(_open(config, out, quiet).gate(final_test)))


def _open(config: Path, out: Path, quiet: bool) -> ColdStart:
    settings = load_settings(config)
    source = open_world(settings.environment, out.parent / ".worlds")
    policy = _embedded(settings)
    sampling = Sampling(**settings.policy.sampling.model_dump())
    limits = EpisodeSettings(settings.environment.max_steps, sampling, settings.policy.tool_schema)
    runner = EpisodeRunner(source, policy, prompt_template(settings.policy.prompt), limits)
    checkpoint = f"step-0000-{policy.identity()['weight_version']}"  # what training calls these weights
    return ColdStart(settings, out, runner, source, checkpoint, Reporter(quiet))


def _embedded(settings: RunSettings) -> Policy:
    try:
        from intraskill.backends.embedded.frozen_policy import load_policy
    except ImportError as error:
        raise UserError(
            f"a cold start needs the package {error.name!r}; install the embedded backend: "
            "pip install 'intraskill[local]'"
        ) from None
    return load_policy(settings.policy.model, settings.policy.sampler_dtype, settings.policy.threads)


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))
