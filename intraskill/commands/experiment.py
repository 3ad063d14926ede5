"""`intraskill experiment`: what an experiment shows, by a rule stated before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from intraskill.commands.output import print_json
from intraskill.core.errors import UserError
from intraskill.storage.user_files import read_user_json

experiment_app = typer.Typer(help="What an experiment shows, by a rule stated before.", no_args_is_help=True)


@experiment_app.command("decide")
def experiment_decide(
    observations: Path = typer.Option(..., help="JSON file with the rule and the observed values."),
) -> None:
    """Supported, refuted, or not enough evidence?

    A criterion is met when its interval lies above its margin and failed when it lies below. All met: supported; one
    failed: refuted. Alpha is shared over the criteria.

    \b
    In:  {"method": "paired_hoeffding" | "bootstrap" | "anytime", "alpha": number,
          "criteria": [{"id": text, "bounds": [lo, hi], "margin": number,
                        "baseline": [value, ..], "treatment": [value, ..]}, ..]}
         One value a task, the same tasks in the same order in both arms, each
         within bounds. Several seeds: [[value, ..], ..], one inner list a seed.
         Optional in a criterion: "weights": {"baseline": -1, "treatment": 1};
         for bootstrap: "seed" (0) and "samples" (10000).
    Out: {"criteria": [{"id", "n", "effect", "halfwidth", "lower", "upper",
                        "met"}, ..],
          "verdict": "supported" | "refuted" | "insufficient_evidence"}
         n counts tasks; "seeds" follows where they are listed. Where the data
         give no interval, its numbers are null and "reason" says why.

    \b
    paired_hoeffding  these fixed checkpoints, over tasks; any distribution; wide
    bootstrap         over seeds and tasks together; needs two seeds or more
    anytime           valid however often one looks: after every task of a flat
                      list, or every listed seed (on these tasks), in their order
    """
    from intraskill.stats.decision_record import decision_record

    _print_made(observations, decision_record)


@experiment_app.command("power")
def experiment_power(
    pilot: Path = typer.Option(..., help="JSON file as `decide` reads it; its variances count."),
    effect: float = typer.Option(..., help="True difference worth finding."),
    power: float = typer.Option(0.8, help="Wanted probability of finding it."),
) -> None:
    """How many seeds and tasks would it take?

    From the variances of a pilot, for the methods bootstrap and paired_hoeffding.

    \b
    Out: {"criteria": [{"id", "variances": {"training", "task", "rest"},
                        "power": of the pilot's own size,
                        "needed": [{"tasks", "seeds", "power"}, ..]}, ..]}
         for 1, 2, 4 and 8 times the pilot's tasks; seeds is null where 1000 are
         too few. For paired_hoeffding, the "deviation" of a task's difference
         takes the place of "variances", and needed is [{"tasks": number}], null
         where no number does.

    Power is the probability that the criterion is met when `effect` is true.
    """
    from intraskill.stats.power_record import power_record

    _print_made(pilot, lambda record: power_record(record, effect, power))


def _print_made(path: Path, function: Callable[[Any], dict[str, Any]]) -> None:
    """Print what a pure function makes of a file; its errors know places but not the file, which is named here."""
    record = read_user_json(path)
    try:
        made = function(record)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    print_json(made)
