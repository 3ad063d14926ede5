"""Putting a run together: what is refused before any weights are loaded, and what is written down."""

import json
from pathlib import Path

import pytest

from intraskill.core.errors import UserError
from intraskill.core.progress import Reporter
from intraskill.settings.files import load_settings
from intraskill.settings.stored import open_settings
from intraskill.skills.bank import write_bank
from intraskill.storage.documents import read_json
from intraskill.storage.run_folder import RunFolder
from intraskill.training.open_run import check_run, open_run


class Backend:
    """Says who it is; its weights are never to be loaded, unless there is a policy."""

    wave_size = 10
    episode_timeout_s = None

    def __init__(self, policy=None, **identity):
        self._policy, self._identity = policy, identity or {"model_sha256": "ab"}

    def identity(self):
        return self._identity

    def policy(self):
        assert self._policy is not None, "the weights were loaded"
        return self._policy


@pytest.fixture
def start(tmp_path, settings, bank, world, page_policy):
    """start(backend, overrides, **changes) -> a run in one folder of a small world."""
    write_bank(tmp_path / "bank.json", bank)
    small = settings.environment.model_copy(update={"world": world.settings.world})

    def start(backend=None, overrides=(), **changes):
        chosen = settings.model_copy(update={"bank": str(tmp_path / "bank.json"), "environment": small, **changes})
        folder = RunFolder(tmp_path / "runs" / "test")
        return open_run(chosen, folder, backend or Backend(page_policy()), Reporter(quiet=True), overrides)

    return start


@pytest.mark.parametrize(
    ("section", "change", "message"),
    [
        ("gate", {"tasks": 41}, "gate.tasks is 41 but the validation split has 40 tasks"),
        ("gate", {"first": "never"}, "gate.first is never, but the initial bank carries no contributions"),
        ("analyst", {"kind": "llm", "url": "http://127.0.0.1:9", "model": "m", "api_key_env": "NO_SUCH"}, "NO_SUCH"),
    ],
)
def test_what_cannot_be_run_is_refused_before_the_weights_are_loaded(start, settings, section, change, message):
    changed = getattr(settings, section).model_copy(update=change)
    with pytest.raises(UserError, match=message):
        start(Backend(), **{section: changed})


def test_a_draft_bank_and_an_absent_bank_are_refused_before_the_weights_are_loaded(start, tmp_path, bank):
    write_bank(tmp_path / "draft.json", type(bank)(bank.chunks, draft_only=True))
    with pytest.raises(UserError, match="is a draft"):
        start(Backend(), bank=str(tmp_path / "draft.json"))
    with pytest.raises(UserError, match="no such file"):
        start(Backend(), bank=str(tmp_path / "none.json"))


def test_overrides_are_written_down_beside_the_settings(start, tmp_path):
    start(overrides=["seed=3", "gate.tasks=40"], seed=3)
    record = read_json(tmp_path / "runs/test/run.json")
    assert record["overrides"] == ["seed=3", "gate.tasks=40"]
    assert record["settings"]["seed"] == 3


def test_a_folder_stays_with_its_model_bank_and_tasks_wherever_their_files_are(start, page_policy, tmp_path, bank):
    run = start()
    run.folder.write_state(run.folder.read_state())
    (tmp_path / "moved.json").write_bytes((tmp_path / "bank.json").read_bytes())
    start(bank=str(tmp_path / "moved.json"))
    with pytest.raises(UserError, match="model_sha256"):
        start(Backend(page_policy(), model_sha256="cd"))
    write_bank(tmp_path / "bank.json", type(bank)(bank.chunks[:1]))
    with pytest.raises(UserError, match="bank_sha256"):
        start()


def test_a_run_is_continued_from_its_folder_alone_wherever_one_stands(tmp_path, bank, page_policy, monkeypatch):
    write_bank(tmp_path / "bank.json", bank)
    (tmp_path / "run.yaml").write_text(
        "name: test\nbank: bank.json\ngate: {tasks: 40}\nenvironment: {world: {generate: small}}\n"
    )
    monkeypatch.chdir(tmp_path)
    run = open_run(load_settings("run.yaml"), RunFolder(Path("test")), Backend(page_policy()), Reporter(quiet=True))
    run.folder.write_state(run.folder.read_state())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    folder = RunFolder(Path("../test"))
    again = open_run(open_settings(folder.path), folder, Backend(page_policy()), Reporter(quiet=True))
    assert again.settings == run.settings
    assert again.bank == bank


def test_other_splits_of_the_same_catalog_are_other_tasks(start, page_policy, world, tmp_path, settings):
    run = start()
    run.folder.write_state(run.folder.read_state())
    (folder,) = (tmp_path / "runs" / ".worlds").iterdir()
    splits = folder / "splits.json"
    tasks = document = json.loads(splits.read_text())
    tasks["train"], tasks["test"] = tasks["test"], tasks["train"]
    splits.write_text(json.dumps(document))
    with pytest.raises(UserError, match="tasks_sha256"):
        start()


def test_a_gate_that_could_never_be_fitted_is_refused(settings, world, bank):
    few = settings.model_copy(update={"gate": settings.gate.model_copy(update={"tasks": 14})})
    with pytest.raises(UserError, match=r"gate.tasks is 14, too few to tell 8 chunks and 6 candidates apart"):
        check_run(few, world.splits(), bank)
    none = few.analyst.model_copy(update={"kind": "none"})
    check_run(few.model_copy(update={"analyst": none}), world.splits(), bank)
