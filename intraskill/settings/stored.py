"""The settings a run was made with, read back from its folder."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from intraskill.core.errors import StateCorrupted, UserError
from intraskill.settings.models import RunSettings
from intraskill.storage.documents import read_json
from intraskill.storage.run_folder import RUN_SCHEMA


def open_settings(path: Path) -> RunSettings:
    """The settings a run folder was made with. Raises `UserError` when it is no run folder."""
    if not (path / "run.json").exists():
        raise UserError(f"{path} is no run folder (it has no run.json); give the folder that `intraskill train` made")
    found = read_json(path / "run.json", RUN_SCHEMA).get("settings")
    try:
        return RunSettings.model_validate(found)
    except ValidationError as error:
        raise StateCorrupted(f"{path / 'run.json'}: settings: {_problem(error)}; restore the file") from None


def _problem(error: ValidationError) -> str:
    """The first thing a validation found, with its key."""
    first = error.errors(include_url=False)[0]
    key = ".".join(map(str, first["loc"])) or "the content"
    return f"{key} is missing" if first["type"] == "missing" else f"{key}: {first['msg']}"
