"""Arguments that several commands take."""

from __future__ import annotations

import typer

OVERRIDES = typer.Argument(
    [],
    metavar="KEY=VALUE",
    help="Settings instead of the file's, by their whole path: train.lr=1e-4 gate.tasks=200. Checked like the file.",
)


def check_seed(value: int | None) -> int | None:
    """A seed option as it came, or an error. A range in the option's type would fill its help with 19 digits."""
    if value is not None and not 0 <= value < 2**63:
        raise typer.BadParameter(f"{value}: give a whole number from 0 to 2^63 - 1")
    return value
