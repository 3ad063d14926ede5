"""The `intraskill` command: a thin shell around importable functions.

Commands that a program may read print one JSON value to standard output and nothing else. The error boundary is
`main`: what only the user can mend is one line on standard error with exit code 2, a run that cannot go on is one
line with exit code 1, and anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError
from shopsimulator.cli import check_seed

from intraskill.backends.embedded.cpu import prepare_process
from intraskill.commands.bank import bank_app
from intraskill.commands.coldstart import coldstart_app
from intraskill.commands.evaluate import eval_app, stats_app, traces_app
from intraskill.commands.slime import slime_app
from intraskill.core.errors import IntraSkillError, UserError
from intraskill.core.progress import Reporter
from intraskill.gate.estimators import ESTIMATORS, estimate_record, fit_observations
from intraskill.gate.selection import parse_contributions, select, selection_record
from intraskill.settings.files import load_settings
from intraskill.settings.models import RunSettings
from intraskill.skills.bank import read_bank
from intraskill.skills.curriculum import build_curriculum, curriculum_record
from intraskill.storage.run_folder import open_settings
from intraskill.storage.user_files import read_user_json

app = typer.Typer(
    help="Train a tool-calling agent with GRPO while the skill text in its prompt evolves with it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
gate_app = typer.Typer(help="What each chunk is worth, and which stay.", no_args_is_help=True)
curriculum_app = typer.Typer(help="Who sees which chunk.", no_args_is_help=True)
app.add_typer(gate_app, name="gate")
app.add_typer(curriculum_app, name="curriculum")
app.add_typer(bank_app, name="bank")
app.add_typer(coldstart_app, name="coldstart")
app.add_typer(eval_app, name="eval")
app.add_typer(stats_app, name="stats")
app.add_typer(traces_app, name="traces")
app.add_typer(slime_app, name="slime")

_ESTIMATORS = ", ".join(ESTIMATORS)


@app.command()
def train(
    config: Path = typer.Argument(..., help="Settings of the run, e.g. configs/quick.yaml."),
    runs_dir: Path = typer.Option(Path("runs"), help="Folder that holds the run folders."),
    name: str = typer.Option("", help="Another run name than the one in the file."),
    seed: int | None = typer.Option(
        None, callback=check_seed, help="Another seed than the one in the file; the run is then called NAME-seedN."
    ),
    quiet: bool = typer.Option(False, "--quiet", help="No progress on standard error."),
) -> None:
    """Train, or continue a run that was stopped.

    Rounds of GRPO, each closed by a gate on the skill bank. The run lives in RUNS_DIR/NAME: metrics.jsonl, one folder a
    round, checkpoints, report/index.html. Starting the same command again after a kill continues with the step that
    was not finished.
    """
    settings = load_settings(config)
    if seed is not None:
        settings = settings.model_copy(update={"seed": seed, "name": f"{settings.name}-seed{seed}"})
    if name:
        settings = _renamed(settings, name)
    _train(settings, runs_dir / settings.name, quiet)


@app.command()
def resume(
    run: Path = typer.Argument(..., help="A run folder, e.g. runs/quick."),
    quiet: bool = typer.Option(False, "--quiet", help="No progress on standard error."),
) -> None:
    """Continue a run from its folder alone.

    It keeps the settings it was started with.
    """
    _train(open_settings(run), run, quiet)


@app.command()
def status(
    run: Path = typer.Argument(..., help="A run folder, e.g. runs/quick."),
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
        _print_json(found)
    else:
        print(render_status(found))


@app.command()
def report(run: Path = typer.Argument(..., help="A run folder, e.g. runs/quick.")) -> None:
    """Write the report again: pictures and a page.

    RUN/report gets the curves as SVG and PNG, and index.html that holds everything; prints its path. Also while the
    run goes on.
    """
    try:
        from intraskill.report.html import write_report
    except ImportError as error:
        raise UserError(f"the report needs the package {error.name!r}: pip install 'intraskill[local]'") from None
    print(write_report(run))


def _renamed(settings: RunSettings, name: str) -> RunSettings:
    """The settings under another name, which has to be one that a settings file may give."""
    try:
        return RunSettings.model_validate({**settings.model_dump(), "name": name})
    except ValidationError:
        raise UserError(
            f"--name {name!r}: use letters, digits, dot, dash and underscore, a letter or digit first"
        ) from None


def _train(settings: RunSettings, path: Path, quiet: bool) -> None:
    prepare_process()
    try:
        from intraskill.backends.embedded.backend import train as run_training
    except ImportError as error:
        raise UserError(
            f"training needs the package {error.name!r}; install the embedded backend: pip install 'intraskill[local]'"
        ) from None
    try:
        run_training(settings, path, Reporter(quiet))
    except KeyboardInterrupt:
        print(f"stopped; continue with: intraskill resume {path}", file=sys.stderr)
        raise


@gate_app.command("fit")
def gate_fit(
    observations: Path = typer.Option(..., help="JSON file with the masked and bare rewards."),
    estimator: str = typer.Option("paired_delta", help=f"What a masked reward is compared with: {_ESTIMATORS}."),
) -> None:
    """Estimate every chunk's effect from paired rewards.

    Least squares without intercept of masked minus bare rewards.

    \b
    In:  {"interventions": [id, ..], "design": [[0 or 1, ..], ..],
          "bare": [reward, ..], "masked": [reward, ..]}
         design has one row a task and one column an intervention.
    Out: {"coefficients": {id: number}, "standard_errors": {id: number},
          "standard_errors_hc3": {id: number}, "observations": n, "rank": r}
         A standard error the data do not determine is null.

    A design whose columns depend on each other is refused (exit code 2), naming them.
    """
    record = read_user_json(observations)
    _print_json(estimate_record(_naming(observations, fit_observations, record, estimator)))


@gate_app.command("select")
def gate_select(
    contributions: Path = typer.Option(..., help="JSON file with one row an intervention."),
    budget: int = typer.Option(10, help="Active chunks at most."),
) -> None:
    """Choose the chunks of the next bank.

    The best version of each chunk, then positive effects up to the budget.

    \b
    In:  [{"intervention_id": id, "kind": "current" | "candidate",
           "logical_chunk_id": id, "operation": null | "ADD" | "REWRITE",
           "order": place in the bank, "coefficient": number}, ..]
         or an object that holds this list under "contributions"; other keys are ignored.
    Out: {"rows": [{"intervention_id": id, "rank": number | null, "status": ..}, ..],
          "replacement_winners": {logical_chunk_id: intervention_id},
          "selected_intervention_ids": [id, .. in bank order]}
         status: selected | rewrite_loser | non_positive | budget_excluded | retired
         rewrite_loser: another version of the chunk is better; non_positive: a candidate
         without benefit, retired: a chunk of the bank without; budget_excluded: no room
    """
    rows = _naming(contributions, parse_contributions, read_user_json(contributions))
    _print_json(selection_record(_naming(contributions, select, rows, budget)))


@gate_app.command("complete")
def gate_complete(
    run: Path = typer.Argument(..., help="A run folder."),
    round_index: int = typer.Option(..., "--round", min=0, help="The round whose gate is incomplete."),
    quiet: bool = typer.Option(False, "--quiet", help="No progress on standard error."),
) -> None:
    """Run what an incomplete gate lacks.

    At the checkpoint of its round; finished episodes are not run again. The next round starts from what the gate then
    selects, unless training went on meanwhile: then only the record is completed.
    """
    try:
        from intraskill.backends.embedded.backend import complete_gate
    except ImportError as error:
        raise UserError(f"the gate needs the package {error.name!r}; pip install 'intraskill[local]'") from None
    if not complete_gate(open_settings(run), run, round_index, Reporter(quiet)):
        raise IntraSkillError(f"{run}: some episodes could still not be scored; mend that and start again")


@curriculum_app.command("build")
def curriculum_build(
    bank: Path = typer.Option(..., help="Skill bank whose chunks carry contributions."),
    q: float = typer.Option(0.2, help="Probability that a whole group sees no skill."),
    rho_min: float = typer.Option(0.2, help="Lowest inclusion probability."),
    rho_max: float = typer.Option(0.9, help="Highest inclusion probability."),
) -> None:
    """Map a bank's contributions to inclusion probabilities.

    \b
    In:  {"schema": "intraskill-bank-v1", "chunks": [{"skill_id": id, "contribution": number, ..}, ..]}
         The chunks' texts and the schema name may be left out here.
    Out: {"q": number, "chunks": [{"skill_id": id, "contribution": number,
          "inclusion_probability": number}, .. in bank order], "contribution_scale": number}

    The scale is the largest contribution; when none is positive it is 0 and every chunk gets rho_min.
    """
    chunks = read_bank(bank, texts_required=False)
    record = curriculum_record(_naming(bank, build_curriculum, chunks, q, rho_min, rho_max, bank.stem))
    _print_json({key: record[key] for key in ("q", "chunks", "contribution_scale")})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the one place where errors become exit codes."""
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="intraskill")
    except UserError as error:
        sys.exit(_report(error, 2))
    except IntraSkillError as error:
        sys.exit(_report(error, 1))


def _report(error: IntraSkillError, code: int) -> int:
    print(f"error: {' '.join(str(error).splitlines())}", file=sys.stderr)
    return code


def _naming(path: Path, function: Any, *arguments: Any) -> Any:
    """Call a pure function whose errors know positions but not the file, and name the file."""
    try:
        return function(*arguments)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))
