"""A run folder that was edited, or claimed by settings that were refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from intraskill.core.errors import StateCorrupted, UserError
from intraskill.settings.models import RunSettings
from intraskill.settings.stored import open_settings
from intraskill.storage.run_folder import RunFolder, RunState

SETTINGS = RunSettings(name="demo")
OTHERS = RunSettings(name="demo", seed=1)


def test_mended_settings_take_over_a_folder_without_work(tmp_path: Path) -> None:
    RunFolder(tmp_path).claim(SETTINGS, {})
    RunFolder(tmp_path).claim(OTHERS, {})
    assert open_settings(tmp_path) == OTHERS


@pytest.mark.parametrize("work", ["gate_a", "rounds", "checkpoints", "state.json"])
def test_a_folder_with_work_stays_with_its_settings(tmp_path: Path, work: str) -> None:
    RunFolder(tmp_path).claim(SETTINGS, {})
    (tmp_path / work).mkdir()
    with pytest.raises(UserError, match=r"settings.seed: 0 -> 1"):
        RunFolder(tmp_path).claim(OTHERS, {})
    assert open_settings(tmp_path) == SETTINGS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": "x"}, "step: expected a whole number, got a text"),
        ({"step": None}, "step: expected a whole number, got null"),
        ({"step": True}, "step: expected a whole number, got true or false"),
        ({"rounds_closed": -1}, "rounds_closed: expected a whole number >= 0"),
        ({"finished": 1}, "finished: expected true or false, got a whole number"),
        ({"stream": []}, "stream: expected an object, got a list"),
        ({"stage": 2}, "stage is no part"),
    ],
)
def test_an_edited_state_is_named(tmp_path: Path, change: dict, message: str) -> None:
    folder = RunFolder(tmp_path)
    folder.write_state(RunState(step=3))
    assert folder.read_state() == RunState(step=3)
    path = tmp_path / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(StateCorrupted, match=rf"state\.json: {message}"):
        folder.read_state()


@pytest.mark.parametrize("settings", [None, [1], {"name": "demo", "sede": 1}])
def test_edited_settings_are_named(tmp_path: Path, settings: object) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"schema": "intraskill-run-v1", "settings": settings}))
    with pytest.raises(StateCorrupted, match=r"run\.json: settings"):
        open_settings(tmp_path)
