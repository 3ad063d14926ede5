"""The whole embedded loop in one process: real sampling, real gradients, a small world."""

import asyncio
import json
import shutil
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from intraskill.assets import model_directory  # noqa: E402
from intraskill.backends.embedded import backend  # noqa: E402
from intraskill.backends.embedded.lanes import Lanes  # noqa: E402
from intraskill.cli import main  # noqa: E402
from intraskill.core.errors import NotFinite, UserError  # noqa: E402
from intraskill.core.progress import Reporter  # noqa: E402
from intraskill.settings.models import GateSettings, RunSettings  # noqa: E402
from intraskill.storage.documents import read_json, write_json_atomic  # noqa: E402
from intraskill.storage.jsonl import JsonlLog  # noqa: E402
from intraskill.storage.run_folder import RunFolder, RunState  # noqa: E402
from intraskill.training.round import validate  # noqa: E402

SETTINGS = {
    "name": "small",
    "rounds": 1,
    "steps_per_round": 2,
    "environment": {"world": {"generate": "small"}},
    "rollout": {"group_size": 4, "generated_groups": 4, "kept_groups": 4},
    "gate": {"tasks": 40},
    "evaluation": {"equipped": False, "greedy": False},
    "report": {"wandb": "disabled"},
}


@pytest.fixture(scope="module")
def settings():
    return RunSettings.model_validate(SETTINGS)


@pytest.fixture(scope="module")
def finished(settings, tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    (runs / "small.yaml").write_text(json.dumps(SETTINGS))
    with pytest.raises(SystemExit) as ended:
        main(["train", str(runs / "small.yaml"), "--runs-dir", str(runs), "--quiet"])
    assert ended.value.code == 0
    return runs / "small"


def numbers(path):
    """All metrics without the clock."""
    return [
        {key: value for key, value in row.items() if not key.startswith("timing/")}
        for row in JsonlLog(path / "metrics.jsonl").read()
    ]


def test_a_run_trains_and_reports(finished):
    assert read_json(finished / "state.json")["finished"]
    updates = [row for row in numbers(finished) if row["kind"] == "update"]
    assert len(updates) == 4
    assert all(row["train/grad_norm"] >= 0 for row in updates)
    assert (finished / "checkpoints" / "step-0002" / "model.safetensors").exists()
    assert "<svg" in (finished / "report" / "index.html").read_text()


def test_sampler_and_trainer_agree_on_the_first_update(finished):
    first = next(row for row in numbers(finished) if row["kind"] == "update")
    assert first["train/train_rollout_logprob_abs_diff"] <= 5e-3  # bfloat16 sampler


def test_an_episode_is_one_training_segment(finished):
    rows = JsonlLog(finished / "rounds" / "round-000" / "tokens.jsonl").read()
    assert rows
    assert all(len(row["segments"]) == 1 for row in rows)


def test_the_weights_move_and_every_group_names_the_ones_it_came_from(finished):
    groups = JsonlLog(finished / "rounds" / "round-000" / "groups.jsonl").read()
    versions = {row["step"]: row["weight_versions"] for row in groups}
    assert all(len(version) == 1 for version in versions.values())
    assert versions[1] != versions[2]


def open_at_step_one(settings, path, **policy):
    """A run whose round 0 is set up without a gate."""
    sampling = settings.policy.sampling.model_copy(update=policy)
    changed = settings.policy.model_copy(update={"sampling": sampling})
    driver, weights = backend.open_training(settings.model_copy(update={"policy": changed}), path, Reporter(quiet=True))
    chunks = tuple(replace(chunk, contribution=0.1) for chunk in driver.run.bank.chunks)
    driver.set_up_round(0, replace(driver.run.bank, chunks=chunks))
    return driver, weights


@pytest.mark.parametrize("temperature", [0.5, 1.5])
def test_the_trainer_scores_at_the_temperature_that_was_sampled_at(settings, tmp_path, temperature):
    driver, weights = open_at_step_one(settings, tmp_path / "run", temperature=temperature)
    batch = asyncio.run(driver.generate())
    driver.run.proposer.close()
    assert driver.run.runner.settings.sampling.temperature == temperature
    first = weights.learn(batch).updates[0]
    assert first["train/train_rollout_logprob_abs_diff"] <= 5e-3


def test_a_gate_of_the_published_size_is_one_wave(settings, tmp_path, monkeypatch):
    driver, weights = open_at_step_one(settings, tmp_path / "run")
    sizes, sample = [], Lanes.run

    def measured(lanes, requests, version):
        sizes.append(len(requests))
        return sample(lanes, requests, version)

    monkeypatch.setattr(Lanes, "run", measured)
    asyncio.run(validate(driver.run, weights.version, -1, "skill_free", driver.run.runner, ()))
    driver.run.proposer.close()
    assert driver.run.wave_size == GateSettings().tasks == 400
    assert sizes[0] == max(sizes) == settings.gate.tasks


def test_a_finished_run_has_nothing_to_do(settings, finished):
    before = numbers(finished)
    backend.train(settings, finished, Reporter(quiet=True))
    assert numbers(finished) == before


def test_a_run_cut_before_a_step_was_counted_ends_the_same(settings, finished, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    commit = backend.RoundDriver.commit

    def cut(driver, batch, updates, timing):
        if batch.step == 2:
            raise Killed
        commit(driver, batch, updates, timing)

    with monkeypatch.context() as patched:
        patched.setattr(backend.RoundDriver, "commit", cut)
        with pytest.raises(Killed):
            backend.train(settings, tmp_path / "cut", Reporter(quiet=True))
    backend.train(settings, tmp_path / "cut", Reporter(quiet=True))
    assert json.dumps(numbers(tmp_path / "cut")) == json.dumps(numbers(finished))


def test_changed_settings_are_refused_by_name(settings, finished):
    other = settings.model_copy(update={"seed": 9})
    with pytest.raises(UserError, match=r"seed: 0 -> 9"):
        backend.train(other, finished, Reporter(quiet=True))


def test_only_an_incomplete_gate_is_completed_and_at_its_own_weights(settings, finished, tmp_path):
    path = tmp_path / "small"
    shutil.copytree(finished, path)
    with pytest.raises(UserError, match="is complete"):
        backend.complete_gate(settings, path, 0, Reporter(quiet=True))
    with pytest.raises(UserError, match="name a closed round"):
        backend.complete_gate(settings, path, 3, Reporter(quiet=True))
    gate = path / "rounds/round-000/gate"
    record = read_json(gate / "contributions.json")
    log = JsonlLog(gate / "masked.jsonl")
    missing = log.read()[7]["episode_id"]
    log.keep_where(lambda row: row["episode_id"] != missing)
    write_json_atomic(gate / "contributions.json", {**record, "complete": False})
    assert backend.complete_gate(settings, path, 0, Reporter(quiet=True))
    again = read_json(gate / "contributions.json")
    assert again["contributions"] == record["contributions"]
    assert len(log.read()) == 40


def test_ctrl_c_says_how_to_go_on(monkeypatch, tmp_path, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(backend, "train", interrupted)
    settings = tmp_path / "x.yaml"
    settings.write_text("name: x\n")
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(settings), "--runs-dir", str(tmp_path)])
    assert stopped.value.code == 130
    assert capsys.readouterr().err == f"stopped; continue with: intraskill resume {tmp_path / 'x'}\n"


def test_weights_that_break_stop_the_run_at_their_step(tmp_path, capsys):
    settings = tmp_path / "hot.yaml"
    settings.write_text(json.dumps(SETTINGS | {"name": "hot", "train": {"lr": 1e39}}))
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(settings), "--runs-dir", str(tmp_path), "--quiet"])
    assert stopped.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "hot: step 1: update 1: model." in line
    assert "not finite; no step was finished" in line
    assert not list((tmp_path / "hot").glob("checkpoints/*"))
    assert not (tmp_path / "hot" / "rounds" / "round-000" / "episodes.jsonl").exists()


def test_a_later_break_keeps_the_last_good_checkpoint(settings, finished, tmp_path, monkeypatch):
    learn = backend.EmbeddedBackend.learn

    def poisoned(self, batch):
        if batch.step == 2:
            with torch.no_grad():
                next(self.model.parameters())[0, 0] = float("nan")
        return learn(self, batch)

    path = tmp_path / "broken"
    with monkeypatch.context() as patched:
        patched.setattr(backend.EmbeddedBackend, "learn", poisoned)
        with pytest.raises(NotFinite, match=r"broken: step 2: update 3: the loss is nan; .*checkpoints/step-0001"):
            backend.train(settings, path, Reporter(quiet=True))
    assert read_json(path / "state.json")["step"] == 1
    assert [one.name for one in path.glob("checkpoints/*")] == ["step-0001"]
    backend.train(settings, path, Reporter(quiet=True))
    assert json.dumps(numbers(path)) == json.dumps(numbers(finished))


@pytest.mark.parametrize(
    "name", ["chat_template.jinja", "tokenizer.json", "generation_config.json", "config.json", "model.safetensors"]
)
def test_a_model_exchanged_between_a_kill_and_the_resume_is_refused_by_name(settings, tmp_path, name):
    shutil.copytree(model_directory("builtin:tiny"), tmp_path / "model")
    policy = settings.policy.model_copy(update={"model": str(tmp_path / "model")})
    own, path = settings.model_copy(update={"policy": policy}), tmp_path / "run"
    driver, _ = backend.open_training(own, path, Reporter(quiet=True))
    driver.run.proposer.close()
    RunFolder(path).write_state(RunState(opened=True))
    file = tmp_path / "model" / name
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match=rf"model\.{name}: "):
        backend.open_training(own, path, Reporter(quiet=True))
