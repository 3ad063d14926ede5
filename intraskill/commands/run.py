"""`intraskill train`, `resume`, `status` and `report`: a training run from the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from intraskill.backends.embedded.cpu import prepare_process
from intraskill.commands.options import OVERRIDES, check_seed
from intraskill.commands.output import print_json
from intraskill.core.extras import needing
from intraskill.core.progress import Reporter
from intraskill.settings.files import load_settings
from intraskill.settings.models import RunSettings
from intraskill.settings.stored import open_settings

RUN = typer.Argument(..., help="A run folder, e.g. runs/quick.")
QUIET = typer.Option(False, "--quiet", help="No progress on standard error.")


def train(
    config: Path = typer.Argument(..., help="Settings of the run, e.g. configs/quick.yaml."),
    overrides: list[str] = OVERRIDES,
    runs_dir: Path = typer.Option(Path("runs"), help="Folder that holds the run folders."),
    name: str = typer.Option("", help="Another run name than the one in the file."),
    seed: int | None = typer.Option(
        None, callback=check_seed, help="Another seed than the one in the file; the run is then called NAME-seedN."
    ),
    quiet: bool = QUIET,
) -> None:
    """Train, or continue a run that was stopped.

    Rounds of GRPO, each closed by a gate on the skill bank. The run lives in RUNS_DIR/NAME: metrics.jsonl, one folder a
    round, checkpoints, report/index.html. Starting the same command again after a kill continues with the step that
    was not finished.
    """
    settings = load_settings(config, overrides)
    changed = [f"seed={seed}"] if seed is not None else []
    if name or changed:
        changed.append(f"name={json.dumps(name or f'{settings.name}-seed{seed}', ensure_ascii=False)}")
    if changed:
        overrides = [*overrides, *changed]
        settings = load_settings(config, overrides)
    _train(settings, runs_dir / settings.name, quiet, overrides)


def resume(run: Path = RUN, quiet: bool = QUIET) -> None:
    """Continue a run from its folder alone.

    It keeps the settings it was started with.
    """
    _train(open_settings(run), run, quiet)


def status(
    run: Path = RUN,
    as_json: bool = typer.Option(False, "--json", help="One JSON object instead of lines for people."),
) -> None:
    """How far a run got, its numbers, its bank.

    \b
    JSON: {"schema", "name", "path", "state": "not started" | "running" | "stopped" | "finished",
           "process": pid | null, "finished", "step", "total_steps", "rounds_closed", "rounds",
           "train_success_last_step", "validation_first" and "validation_last": null or
           {"step", "skill_free", "skill_free_greedy", "equipped", "gap"}, "bank": [id, ..], "report": path | null}
    """
    from intraskill.report.status import render_status
    from intraskill.report.status import status as run_status

    found = run_status(run)
    if as_json:
        print_json(found)
    else:
        print(render_status(found))


def report(run: Path = RUN) -> None:
    """Write the report again: pictures and a page.

    RUN/report gets the curves as SVG and PNG, and index.html that holds everything; prints its path. Also while the
    run goes on.
    """
    with needing("the report"):
        from intraskill.report.html import write_report
    print(write_report(run))


def _train(settings: RunSettings, path: Path, quiet: bool, overrides: Sequence[str] = ()) -> None:
    prepare_process()
    with needing("training"):
        from intraskill.backends.embedded import backend
        from intraskill.report.html import write_report
        from intraskill.report.live import LiveReport
    reporter = Reporter(quiet)
    try:
        backend.train(settings, path, reporter, LiveReport(path, settings, reporter), overrides)
    except KeyboardInterrupt:
        print(f"stopped; continue with: intraskill resume {path}", file=sys.stderr)
        raise
    reporter.say(f"report: {write_report(path)}")
