"""`intraskill gate` and `intraskill curriculum`: what each chunk is worth, which stay, and who sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from intraskill.commands.output import print_json
from intraskill.core.errors import IntraSkillError, UserError
from intraskill.core.extras import needing
from intraskill.core.progress import Reporter
from intraskill.gate.estimators import ESTIMATORS, fit_file
from intraskill.gate.power import Question, power
from intraskill.gate.selection import parse_contributions, select, selection_record
from intraskill.settings.stored import open_settings
from intraskill.skills.bank import read_bank
from intraskill.skills.curriculum import build_curriculum, curriculum_record
from intraskill.storage.documents import read_json
from intraskill.storage.run_folder import RUN_SCHEMA
from intraskill.storage.user_files import read_user_json

gate_app = typer.Typer(help="What each chunk is worth, and which stay.", no_args_is_help=True)
curriculum_app = typer.Typer(help="Who sees which chunk.", no_args_is_help=True)

_ESTIMATORS = ", ".join(ESTIMATORS)


@gate_app.command("fit")
def gate_fit(
    observations: Path = typer.Option(..., help="JSON file with rewards and what was shown for them."),
    estimator: str = typer.Option("paired_delta", help=f"What is compared with what: {_ESTIMATORS}."),
) -> None:
    """Estimate every chunk's effect from the rewards of whole runs.

    paired_delta, mean_delta, adjusted: least squares without intercept of masked minus bare rewards on the masks.
    foldover: masked minus mirror rewards on masked minus mirror masks. mixed: all runs, tasks as random effects.

    \b
    In:  {"interventions": [id, ..],
          "runs": [{"task": id, "run": "bare" | "masked" | "mirror" | "equipped" | ..,
                    "mask": [0 or 1, ..], "reward": number}, ..]}
         A row may name a "checkpoint"; the one that is measured then stands beside
         "runs", rows of others are earlier evidence on the same tasks (mixed).
         Or, for the first three estimators, one row a task and one column an intervention:
         {"interventions": [id, ..], "design": [[0 or 1, ..], ..],
          "bare": [reward, ..], "masked": [reward, ..]}
    Out: {"coefficients": {id: number}, "standard_errors": {id: number},
          "standard_errors_hc3": {id: number}, "observations": n, "rank": r}
         and for a table of runs "estimator" and "tasks". The standard errors of foldover
         and mixed are clustered by task. One the data do not determine is null.

    A design whose columns depend on each other is refused (exit code 2), naming them.
    """
    print_json(_naming(observations, fit_file, read_user_json(observations), estimator))


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
    print_json(selection_record(_naming(contributions, select, rows, budget)))


@gate_app.command("power")
def gate_power(
    tasks: int = typer.Option(400, min=1, help="Validation tasks."),
    chunks: int = typer.Option(6, min=0, help="Chunks of the bank."),
    additions: int = typer.Option(0, min=0, help="New chunks beside them."),
    rewrites: int = typer.Option(0, min=0, help="New wordings of chunks of the bank."),
    success: float = typer.Option(0.5, help="Success rate."),
    correlation: float = typer.Option(0.3, help="Correlation of two rewards of one task."),
    confidence: float = typer.Option(0.9, help="What gate.rule evidence asks for."),
    effect: float = typer.Option(0.05, help="A useful chunk's effect on the reward."),
) -> None:
    """What a gate of this size could see, before it is run.

    For both designs and every estimator: the standard error of an effect, the smallest effect that is found with
    80 % power, and how often a worthless chunk is kept and a useful one dropped under either rule.

    \b
    Out: {"tasks": n, .. the other options ..,
          "gates": [{"design": "published" | "foldover", "estimator": name, "episodes": n,
                     "standard_error": mean over the texts, "largest_standard_error": number,
                     "published": {"detects": effect, "keeps_worthless": p, "drops_useful": p},
                     "evidence": {.., "leaves_useful_undecided": p}}, ..]}
    """
    print_json(power(Question(tasks, chunks, additions, rewrites, success, correlation, confidence, effect)))


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
    refuse_other_backend(run)
    with needing("the gate"):
        from intraskill.backends.embedded import backend
        from intraskill.report.html import write_report
        from intraskill.report.live import LiveReport
    settings, reporter = open_settings(run), Reporter(quiet)
    complete = backend.complete_gate(settings, run, round_index, reporter, LiveReport(run, settings, reporter))
    reporter.say(f"report: {write_report(run)}")
    if not complete:
        raise IntraSkillError(f"{run}: some episodes could still not be scored; mend that and start again")


def refuse_other_backend(run: Path) -> None:
    """Refuse a run whose weights this process cannot load. Raises `UserError` saying what to do instead."""
    path = run / "run.json"
    if path.exists() and read_json(path, RUN_SCHEMA).get("semantic", {}).get("backend") == "slime":
        raise UserError(
            f"{run}: slime trained this run, and only its engines can load the checkpoints; start "
            "launch/four_rounds.sh again: a job that continues from the checkpoint of a round's end completes its gate"
        )


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
    print_json({key: record[key] for key in ("q", "chunks", "contribution_scale")})


def _naming(path: Path, function: Any, *arguments: Any) -> Any:
    """Call a pure function whose errors know positions but not the file, and name the file."""
    try:
        return function(*arguments)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
