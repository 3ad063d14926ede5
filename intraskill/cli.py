"""The `intraskill` command: a thin shell around importable functions.

Commands that a program may read print one JSON value to standard output and nothing else. The error boundary is
`main`: what only the user can mend is one line on standard error with exit code 2, a run that cannot go on is one
line with exit code 1, and anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from intraskill.commands import run
from intraskill.commands.bank import bank_app
from intraskill.commands.coldstart import coldstart_app
from intraskill.commands.conformance import conformance
from intraskill.commands.evaluate import eval_app, stats_app, traces_app
from intraskill.commands.experiment import experiment_app
from intraskill.commands.gate import curriculum_app, gate_app
from intraskill.commands.output import accept_any_text
from intraskill.commands.slime import slime_app
from intraskill.core.errors import IntraSkillError, UserError

app = typer.Typer(
    help="Train a tool-calling agent with GRPO while the skill text in its prompt evolves with it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for command in (run.train, run.resume, run.status, run.report, conformance):
    app.command()(command)
app.add_typer(gate_app, name="gate")
app.add_typer(curriculum_app, name="curriculum")
app.add_typer(bank_app, name="bank")
app.add_typer(coldstart_app, name="coldstart")
app.add_typer(eval_app, name="eval")
app.add_typer(experiment_app, name="experiment")
app.add_typer(stats_app, name="stats")
app.add_typer(traces_app, name="traces")
app.add_typer(slime_app, name="slime")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the one place where errors become exit codes."""
    accept_any_text()
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="intraskill")
    except UserError as error:
        sys.exit(_report(error, 2))
    except IntraSkillError as error:
        sys.exit(_report(error, 1))


def _report(error: IntraSkillError, code: int) -> int:
    print(f"error: {' '.join(str(error).splitlines())}", file=sys.stderr)
    return code
