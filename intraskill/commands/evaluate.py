"""`intraskill eval`, `intraskill stats` and `intraskill traces`: frozen evaluations and what is made of them.

Results are one JSON value on standard output; progress and where files went are on standard error.
"""

from __future__ import annotations

from pathlib import Path

import typer

from intraskill.commands.options import OVERRIDES, check_seed
from intraskill.commands.output import print_json
from intraskill.core.errors import UserError
from intraskill.core.progress import Reporter
from intraskill.evaluate.columns import read_columns
from intraskill.evaluate.compare import compare, read_evaluation
from intraskill.evaluate.experiment import Experiment, Protocol, plan_experiment, run_experiment
from intraskill.evaluate.export import export_public, export_sft
from intraskill.evaluate.folder import EvalFolder
from intraskill.evaluate.four_conditions import four_conditions
from intraskill.evaluate.plan import plan_record
from intraskill.evaluate.ranking import check_weights, ranking
from intraskill.evaluate.report_page import comparison_intervals, comparison_markdown, write_page
from intraskill.evaluate.run import plan_evaluation, run_evaluation
from intraskill.evaluate.settings import EvalSettings, SplitName
from intraskill.evaluate.summarize import write_summary
from intraskill.settings.files import load_settings_as
from intraskill.stats.paired_record import SAMPLES, paired_record, unit_bounds

eval_app = typer.Typer(help="Frozen evaluations and their paired comparisons.", no_args_is_help=True)
stats_app = typer.Typer(help="Statistics of plain tables.", no_args_is_help=True)
traces_app = typer.Typer(help="What may leave a run.", no_args_is_help=True)

CONFIG = typer.Argument(..., help="Settings of one evaluation, e.g. configs/eval_tiny.yaml.")
RUNS_DIR = typer.Option(Path("runs"), help="Folder that holds the evaluation's folder.")
FINAL_TEST = typer.Option(False, "--final-test", help="Open the test split; recorded in the results.")
QUIET = typer.Option(False, "--quiet", help="No progress on standard error.")
SEED = typer.Option(0, callback=check_seed, help="Seed of the bootstrap.")
RUN = typer.Argument(..., help="Folder of a training run.")
SPLIT = typer.Option("val", help="train, val or test; test also needs --final-test.")
TASKS = typer.Option(None, min=1, max=1_000_000, help="Tasks drawn from the split; default: all.")
REPEATS = typer.Option(1, min=1, max=10_000, help="Episodes of each task.")
EVAL_SEED = typer.Option(0, callback=check_seed, help="Seed of the episodes and of the bootstrap.")
CONCURRENCY = typer.Option(128, min=1, max=100_000, help="Episodes at a time.")
BASE_URL = typer.Option(None, help="An endpoint that serves the weights; default: embedded.")
SERVED_MODEL = typer.Option("default", help="The endpoint's name for its model.")
ONLY = typer.Option(None, help="Run only arms whose name starts so, e.g. base or final: one checkpoint a server.")
OUT = typer.Option(None, help="Folder of the experiment; default: RUN/evaluations/NAME-SPLIT.")
PLAN_ONLY = typer.Option(False, "--plan-only", help="Write the settings files and say what would run.")
SAMPLES_OPTION = typer.Option(SAMPLES, min=1, max=1_000_000, help="Bootstrap samples.")


@eval_app.command()
def plan(config: Path = CONFIG, overrides: list[str] = OVERRIDES, runs_dir: Path = RUNS_DIR) -> None:
    """Check the settings and print what would run.

    No model is loaded and no service is asked.
    """
    settings = load_settings_as(EvalSettings, config, overrides)
    print_json(plan_record(plan_evaluation(settings, runs_dir)))


@eval_app.command()
def run(
    config: Path = CONFIG,
    overrides: list[str] = OVERRIDES,
    runs_dir: Path = RUNS_DIR,
    final_test: bool = FINAL_TEST,
    quiet: bool = QUIET,
) -> None:
    """Run the evaluation, or continue it; prints its summary.

    Completed episodes are skipped, failed ones are tried again. Exit code 1: some could not be scored.
    """
    settings = load_settings_as(EvalSettings, config, overrides)
    folder = runs_dir / settings.name
    print_json(run_evaluation(settings, folder, Reporter(quiet), final_test=final_test))
    if not quiet:
        _say_where(folder)


@eval_app.command()
def summarize(
    source: Path = typer.Argument(..., metavar="CONFIG", help="Settings of an evaluation, or its folder."),
    runs_dir: Path = RUNS_DIR,
) -> None:
    """Count again from the traces.

    Prints the summary and writes summary.json.
    """
    path = source if source.is_dir() else runs_dir / load_settings_as(EvalSettings, source).name
    print_json(write_summary(EvalFolder(path)))


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
    print_json(record)
    _say_where(folder)


@eval_app.command("four-conditions")
def four_conditions_command(
    run: Path = RUN,
    split: SplitName = SPLIT,
    final_test: bool = FINAL_TEST,
    tasks: int | None = TASKS,
    repeats: int = REPEATS,
    seed: int = EVAL_SEED,
    samples: int = SAMPLES_OPTION,
    concurrency: int = CONCURRENCY,
    base_url: str | None = BASE_URL,
    served_model: str = SERVED_MODEL,
    only: str | None = ONLY,
    out: Path | None = OUT,
    plan_only: bool = PLAN_ONLY,
    quiet: bool = QUIET,
) -> None:
    """First and last model, each with and without skills.

    Evaluates the first and the last gated model of a run, each alone and with the bank of its time; prints the report.
    Started again, it continues. Writes report.json, report.md, report.png, and a settings file an arm.
    """
    experiment = four_conditions(run)
    protocol = Protocol(split, final_test, tasks, repeats, seed, concurrency, base_url, served_model)
    _experiment(experiment, protocol, out, plan_only, only, samples, quiet)


@eval_app.command("ranking")
def ranking_command(
    run: Path = RUN,
    gate: int = typer.Option(-1, help="The gate whose coefficients rank: that of round N, or -1 for the first one."),
    k: int | None = typer.Option(None, "--k", help="Chunks a subset; default: half of the ranked ones."),
    random_seed: list[int] = typer.Option([20260907], help="Seed of a random subset; can be given several times."),
    split: SplitName = SPLIT,
    final_test: bool = FINAL_TEST,
    tasks: int | None = TASKS,
    repeats: int = REPEATS,
    seed: int = EVAL_SEED,
    samples: int = SAMPLES_OPTION,
    concurrency: int = CONCURRENCY,
    base_url: str | None = BASE_URL,
    served_model: str = SERVED_MODEL,
    out: Path | None = OUT,
    plan_only: bool = PLAN_ONLY,
    quiet: bool = QUIET,
) -> None:
    """Do the chunks a gate ranks high really help more?

    Equips the top K chunks, the bottom K and K random ones, at the checkpoint that the gate measured. Started again, it
    continues. Writes report.json, report.md, report.png, and a settings file an arm.
    """
    experiment = ranking(run, gate, k, random_seed)
    if base_url is None and not plan_only:
        check_weights(experiment)
    protocol = Protocol(split, final_test, tasks, repeats, seed, concurrency, base_url, served_model)
    _experiment(experiment, protocol, out, plan_only, None, samples, quiet)


def _experiment(
    experiment: Experiment,
    protocol: Protocol,
    out: Path | None,
    plan_only: bool,
    only: str | None,
    samples: int,
    quiet: bool,
) -> None:
    gate = f"-gate-{experiment.facts['gate']}" if "gate" in experiment.facts else ""
    folder = out or experiment.run / "evaluations" / f"{experiment.name}{gate}-{protocol.split}"
    if plan_only:
        print_json(plan_experiment(experiment, protocol, folder))
    else:
        print_json(run_experiment(experiment, protocol, folder, Reporter(quiet), only=only, samples=samples))
        if not quiet:
            _say_where(folder)


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
    print_json(paired_record(first, second, seed=seed, samples=samples, bounds=limits))


@traces_app.command("export")
def traces_export(
    run: Path = typer.Argument(..., help="Folder of an evaluation or of a training run."),
    public: bool = typer.Option(False, "--public", help="Numbers only: episode and turn tables."),
    sft: bool = typer.Option(False, "--sft", help="Conversations of fully successful episodes, for fine-tuning."),
    out: Path | None = typer.Option(None, help="Folder to write to; default: RUN/export/public or RUN/export/sft."),
) -> None:
    """Export what may leave a run, as JSONL.

    And as Parquet where pyarrow is installed; prints a report.

    --public holds no conversation, reasoning or goal. --sft holds conversations, reasoning included.
    """
    if public == sft:
        raise UserError("traces export: give exactly one of --public and --sft")
    export, kind = (export_public, "public") if public else (export_sft, "sft")
    folder = out or run / "export" / kind
    print_json(export(run, folder))
    _say_where(folder)


def _say_where(folder: Path) -> None:
    typer.echo(f"files are in {folder}", err=True)
