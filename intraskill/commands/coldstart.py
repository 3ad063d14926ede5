"""`intraskill coldstart`: a first skill bank from the policy's own successes and failures.

Each command prints one JSON value and writes into the cold start's folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import typer

from intraskill.commands.options import OVERRIDES
from intraskill.commands.output import print_json
from intraskill.core.progress import Reporter
from intraskill.evaluate.policies import open_embedded
from intraskill.evolution.coldstart import ColdStart
from intraskill.evolution.proposer import evolution_of, open_analyst, rules_analyst
from intraskill.families.registry import open_family
from intraskill.settings.files import load_settings
from intraskill.storage.lock import RunLock
from intraskill.training.open_run import open_runner

coldstart_app = typer.Typer(help="A first skill bank from nothing.", no_args_is_help=True)

CONFIG = typer.Argument(..., help="Settings of the run the bank is for, e.g. configs/quick.yaml.")
OUT = typer.Option(Path("runs/coldstart"), help="Folder of the cold start.")
QUIET = typer.Option(False, "--quiet", help="No progress on standard error.")


@coldstart_app.command()
def analyze(
    config: Path = CONFIG,
    overrides: list[str] = OVERRIDES,
    out: Path = OUT,
    tasks: int = typer.Option(400, min=1, help="Training tasks to play without any skill."),
    quiet: bool = QUIET,
) -> None:
    """Play training tasks and make a card of each.

    Without skills; every success and every failure gets a card.
    """
    with RunLock(out):
        start = _open(config, overrides, out, quiet)
        parts = start.settings, start.evolution
        print_json(asyncio.run(start.analyze(open_analyst(*parts), tasks, rules_analyst(*parts))))


@coldstart_app.command("compile")
def compile_command(
    config: Path = CONFIG, overrides: list[str] = OVERRIDES, out: Path = OUT, quiet: bool = QUIET
) -> None:
    """Compile the cards into at most 16 draft chunks.

    Training refuses a draft.
    """
    with RunLock(out):
        print_json(_open(config, overrides, out, quiet).compile())


@coldstart_app.command()
def gate(
    config: Path = CONFIG,
    overrides: list[str] = OVERRIDES,
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
        print_json(asyncio.run(_open(config, overrides, out, quiet).gate(final_test)))


def _open(config: Path, overrides: Sequence[str], out: Path, quiet: bool) -> ColdStart:
    settings = load_settings(config, overrides)
    family = open_family(settings.environment, out.parent / ".worlds")
    policy = open_embedded(settings.policy)
    runner = open_runner(settings.environment, settings.policy, family, policy)
    checkpoint = f"step-0000-{policy.identity()['weight_version']}"  # what training calls these weights
    return ColdStart(settings, out, runner, family, evolution_of(family), checkpoint, Reporter(quiet))
