"""Arguments that several commands take."""

from __future__ import annotations

import typer

OVERRIDES = typer.Argument(
    [],
    metavar="KEY=VALUE",
    help="Settings instead of the file's, by their whole path: train.lr=1e-4 gate.tasks=200. Checked like the file.",
)
