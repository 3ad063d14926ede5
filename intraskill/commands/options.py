"""What several commands check on their command lines."""

from __future__ import annotations

import typer

LARGEST_SEED = 2**63 - 1


def check_seed(value: int | None) -> int | None:
    """A seed as it came, or an error. A range in the option's type would fill its help with 19 digits."""
    if value is not None and not 0 <= value <= LARGEST_SEED:
        raise typer.BadParameter(f"{value}: give a whole number from 0 to 2^63 - 1")
    return value
