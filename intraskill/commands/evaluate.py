"""`intraskill eval`, `intraskill stats` and `intraskill traces`: frozen evaluations and what is made of them.

Results are one JSON value on standard output; progress and where files went are on standard error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from intraskill.errors import UserError
from intraskill.evaluate.compare import compare, read_evaluation
from intraskill.evaluate.export import export_public, export_sft
from intraskill.evaluate.folder import EvalFolder
from intraskill.evaluate.pages import comparison_intervals, comparison_markdown, write_page
from intraskill.evaluate.pairs import SAMPLES, paired_record, read_columns, unit_bounds
from intraskill.evaluate.plan import plan_record
from intraskill.evaluate.run import plan_evaluation, run_evaluation
from intraskill.evaluate.settings import EvalSettings
from intraskill.evaluate.summarize import write_summary
from intraskill.progress import Reporter
from intraskill.settings_file import load_settings_as

eval_app = typer.Typer(help="Frozen evaluations and their paired comparisons.", no_args_is_help=True)
stats_app = typer.Typer(help="Statistics of plain tables.", no_args_is_help=True)
traces_app = typer.Typer(help="What may leave a run.", no_args_is_help=True)

CONFIG = typer.Argument(..., help="Settings of one evaluation, e.g. configs/eval_tiny.yaml.")
RUNS_DIR = typer.Option(Path("runs"), help="Folder that holds the evaluation's folder.")
FINAL_TEST = typer.Option(False, "--final-test", help="Open the test split; recorded in the results.")
QUIET = typer.Option(False, "--quiet", help="No progress on standard error.")
SEED = typer.Option(0, help="Seed of the bootstrap.")
SAMPLES_OPTION = typer.Option(SAMPLES, help="Bootstrap samples.")


@eval_app.command()
def plan(config: Path = CONFIG, runs_dir: Path = RUNS_DIR) -> None:
    """Check the settings and print what would run; no model is loaded and no service is asked."""
    settings = load_settings_as(EvalSettings, config)
    _print_json(plan_record(plan_evaluation(settings, runs_dir)))


@eval_app.command()
def run(
    config: Path = CONFIG,
    runs_dir: Path = RUNS_DIR,
    final_test: bool = FINAL_TEST,
    quiet: bool = QUIET,
) -> None:
    """Run the evaluation, or continue it; prints its summary.

    Completed episodes are skipped, failed ones are tried again. Exit code 1: some could not be scored.
    """
    settings = load_settings_as(EvalSettings, config)
    _print_json(run_evaluation(settings, runs_dir / settings.name, Reporter(quiet), final_test=final_test))


@eval_app.command()
def summarize(
    source: Path = typer.Argument(..., metavar="CONFIG", help="Settings of an evaluation, or its folder."),
    runs_dir: Path = RUNS_DIR,
) -> None:
    """Count again from the traces; prints the summary and writes summary.json."""
    path = source if source.is_dir() else runs_dir / load_settings_as(EvalSettings, source).name
    _print_json(write_summary(EvalFolder(path)))


@eval_app.command("compare")
def compare_command(
    a: Path = typer.Argument(..., help="Folder of the reference evaluation."),
    b: Path = typer.Argument(..., help="Folder of the other evaluation."),
    out: Path | None = typer.Option(
        None, help="Folder for comparison.json, .md and .png; default: B/versus-NAME_OF_A."
    ),
    samples: int = SAMPLES_OPTION,
    seed: int = SEED,
    partial: bool = typer.Option(False, "--partial", help="Compare the tasks both completed, even if not all are."),
) -> None:
    """Compare B with A on the same tasks: B minus A.

    Refused when the two protocols differ in anything but model, checkpoint and skills.
    """
    first, second = read_evaluation(a), read_evaluation(b)
    record = compare(first, second, seed=seed, samples=samples, partial=partial)
    folder = out or b / f"versus-{first.manifest['name']}"
    write_page(folder, "comparison", record, comparison_markdown(record), comparison_intervals(record))
    _print_json(record)


@stats_app.command("paired")
def stats_paired(
    csv: Path = typer.Option(..., help="CSV file with a header line and one row a pair."),
    a: str = typer.Option(..., help="Column of the first condition."),
    b: str = typer.Option(..., help="Column of the second condition."),
    samples: int = SAMPLES_OPTION,
    seed: int = SEED,
    bounds: tuple[float, float] | None = typer.Option(
        None, help="LO HI: what a single value can be, for the Hoeffding bound; default 0 1 if all values fit."
    ),
) -> None:
    """Paired statistics of two columns, b minus a.

    \b
    Out: {"n", "mean_a", "mean_b", "mean_difference", "paired_se", "ci": [low, high],
          "mcnemar_p", "transitions": {"fixed", "lost", "both", "neither"},
          "hoeffding": {"radius", "decision": "b_higher" | "a_higher" | "undecided"}}
         mcnemar_p and transitions are null unless all values are 0 or 1;
         hoeffding is null when a value lies outside 0 to 1 and no bounds are given.
    """
    first, second = read_columns(csv, [a, b])
    limits = bounds or unit_bounds(first, second)
    _print_json(paired_record(first, second, seed=seed, samples=samples, bounds=limits))


@traces_app.command("export")
def traces_export(
    run: Path = typer.Argument(..., help="Folder of an evaluation or of a training run."),
    public: bool = typer.Option(False, "--public", help="Numbers only: episode and turn tables."),
    sft: bool = typer.Option(False, "--sft", help="Conversations of fully successful episodes, for fine-tuning."),
    out: Path | None = typer.Option(None, help="Folder to write to; default: RUN/export/public or RUN/export/sft."),
) -> None:
    """Export what may leave a run, as JSONL (and Parquet where pyarrow is installed); prints a report.

    --public holds no persona, conversation, reasoning or goal. --sft holds conversations, reasoning included.
    """
    if public == sft:
        raise UserError("traces export: give exactly one of --public and --sft")
    export, kind = (export_public, "public") if public else (export_sft, "sft")
    _print_json(export(run, out or run / "export" / kind))


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))
