"""Data that ships with the package: the bank `banks/s0.json` and the warm-up checkpoint `tiny/`, as `builtin:NAME`."""

from __future__ import annotations

from pathlib import Path

from intraskill.core.errors import UserError

PREFIX = "builtin:"


def bank_path(spec: str) -> Path:
    """The file of a bank given as a path or as `builtin:NAME`. Raises `UserError` when there is none."""
    banks = Path(__file__).parent / "banks"
    path = banks / f"{spec.removeprefix(PREFIX)}.json" if spec.startswith(PREFIX) else Path(spec)
    if not path.is_file():
        known = ", ".join(PREFIX + file.stem for file in sorted(banks.glob("*.json")))
        raise UserError(f"bank {spec!r}: no such file; give the path of a bank or one of {known}")
    return path


def model_directory(spec: str) -> Path:
    """The directory of a model given as a path or as `builtin:NAME`. Raises `UserError` when there is none."""
    directory = Path(__file__).parent / spec.removeprefix(PREFIX) if spec.startswith(PREFIX) else Path(spec)
    if not (directory / "config.json").is_file():
        raise UserError(f"model {spec!r}: no config.json in {directory}; give a Hugging Face model directory")
    return directory
