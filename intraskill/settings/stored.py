"""The settings a run was made with, read back from its folder."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from intraskill.core.errors import StateCorrupted, UserError
from intraskill.settings.models import RunSettings
from intraskill.storage.run_folder import RUN_SCHEMA
from intraskill.storage.store import problem_of, read_json


def open_settings(path: Path) -> RunSettings:
    """The settings a run folder was made with. Raises `UserError` when it is no run folder."""
    if not (path / "run.json").exists():
        raise UserError(f"{path} is no run folder (it has no run.json); give the folder that `intraskill train` made")
    found = read_json(path / "run.json", RUN_SCHEMA).get("settings")
    try:
        return RunSettings.model_validate(found)
    except ValidationError as error:
        raise StateCorrupted(f"{path / 'run.json'}: settings: {problem_of(error)}; restore the file") from None
