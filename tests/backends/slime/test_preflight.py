"""What would stop or spoil a job is found before it starts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from intraskill.assets import bank_path
from intraskill.backends.slime import preflight
from intraskill.backends.slime.arguments import SlimeRunSettings
from intraskill.backends.slime.launch import run_arguments, wandb_run_id
from intraskill.backends.slime.preflight import Launch, checkpoint_step, problems, remaining
from intraskill.core.errors import UserError
from intraskill.policies.model_files import model_files
from intraskill.skills.bank import read_bank, write_bank
from intraskill.skills.curriculum import build_curriculum, curriculum_record
from intraskill.storage.documents import write_json_atomic
from intraskill.storage.run_folder import RunFolder, RunState


@pytest.fixture
def launch(tmp_path, tokenizer_dir, worlds, monkeypatch) -> Launch:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / ".worlds").symlink_to(worlds, target_is_directory=True)
    (tokenizer_dir / "config.json").write_text("{}")
    (tokenizer_dir / "model.safetensors").write_bytes(b"weights")
    slime = tmp_path / "slime"
    for name in preflight.SLIME_FILES:
        (slime / name).parent.mkdir(parents=True, exist_ok=True)
        (slime / name).write_text(name)
    (slime / "slime" / "__init__.py").touch()
    digests = {name: preflight._sha256(slime / name) for name in preflight.SLIME_FILES}
    monkeypatch.setattr(preflight, "SLIME_FILES", digests)
    settings = SlimeRunSettings.model_validate(
        {
            "name": "r",
            "environment": {"world": {"generate": "small"}},
            "policy": {"model": str(tokenizer_dir)},
            "gate": {"tasks": 40},
        }
    )
    return Launch(
        settings=settings,
        run=tmp_path / "runs" / "r",
        checkpoints=tmp_path / "runs" / "r" / "checkpoints",
        slime=slime,
        megatron=None,
        model_copy=None,
        environment_url=None,
        gpus=4,
        train_tp=2,
        rollout_tp=1,
        save_interval=20,
    )


def test_a_sound_launch_has_no_problems(launch):
    assert problems(launch) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train_tp": 3}, "TRAIN_TP is 3, which does not divide NUM_GPUS"),
        ({"save_interval": 15}, "SAVE_INTERVAL is 15"),
        ({"slime": Path("/nowhere")}, "set SLIME_DIR"),
        ({"megatron": Path("/nowhere")}, "MEGATRON_DIR: /nowhere is not a directory"),
        ({"model_copy": Path("/nowhere")}, "MODEL_TORCH_DIST: /nowhere is not a directory"),
        ({"environment_url": "http://127.0.0.1:9"}, "environment service: no answer"),
    ],
)
def test_each_problem_is_one_line_that_says_what_to_do(launch, changes, said):
    found = problems(replace(launch, **changes))
    assert any(said in problem for problem in found), found
    assert all("\n" not in problem for problem in found)


def test_another_slime_is_named(launch):
    (launch.slime / "train.py").write_text("something else")
    (problem,) = problems(launch)
    assert "differs in train.py" in problem


def test_too_few_environment_slots_are_noticed(launch, serve, worlds_small):
    server = serve(worlds_small, slots=3)
    (problem,) = problems(replace(launch, environment_url=server.url))
    assert "has 3 slots, not 256; give it --slots 256" in problem


@pytest.fixture
def worlds_small(tmp_path):
    from shopsimulator.catalog import read_catalog
    from shopsimulator.engine import ShopSettings, ShopWorld
    from shopsimulator.generate import generate_world

    generate_world(tmp_path / "world", "small", 0, "en")
    return ShopWorld(read_catalog(tmp_path / "world" / "catalog.json.gz"), ShopSettings())


def test_a_context_longer_than_the_model_reads_is_noticed(launch):
    config = Path(launch.settings.policy.model) / "config.json"
    config.write_text(json.dumps({"text_config": {"max_position_embeddings": 4096}}))
    (problem,) = problems(launch)
    assert "slime.context_length is 24576, but the model reads 4096 tokens" in problem
    config.write_text(json.dumps({"max_position_embeddings": 32768}))
    assert problems(launch) == []


def test_more_gate_tasks_than_validation_tasks_are_noticed(launch):
    gate = launch.settings.gate.model_copy(update={"tasks": 41})
    (problem,) = problems(replace(launch, settings=launch.settings.model_copy(update={"gate": gate})))
    assert "gate.tasks is 41 but the validation split has 40 tasks" in problem


def test_wandb_mode_of_the_environment_comes_before_the_settings(launch, monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    report = launch.settings.report.model_copy(update={"wandb": "online"})
    quiet = replace(launch, settings=launch.settings.model_copy(update={"report": report}))
    assert problems(quiet) == []
    assert "--use-wandb" not in run_arguments(quiet, tmp_path / "c.yaml")
    monkeypatch.setenv("WANDB_MODE", "offline")
    words = run_arguments(quiet, tmp_path / "c.yaml")
    assert words[words.index("--wandb-mode") + 1] == "offline"


def test_a_full_disk_is_noticed(launch, monkeypatch):
    monkeypatch.setattr(preflight, "_BYTES_PER_WEIGHT_BYTE", 1 << 60)
    (problem,) = problems(launch)
    assert "GB free" in problem


def test_online_logging_without_a_key_is_noticed(launch, monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    report = launch.settings.report.model_copy(update={"wandb": "online"})
    found = problems(replace(launch, settings=launch.settings.model_copy(update={"report": report})))
    assert len(found) == 2
    assert "WANDB_API_KEY" in found[0]
    assert "cannot be reached" in found[1]


def test_a_checkpoint_without_its_run_folder_is_noticed(launch):
    tracker(launch, 19)
    (problem,) = problems(launch)
    assert "no run folder" in problem


def test_other_settings_in_the_same_folder_are_named(launch):
    RunFolder(launch.run).claim(launch.settings.method(), {})
    changed = launch.settings.model_copy(update={"seed": 9})
    (problem,) = problems(replace(launch, settings=changed))
    assert "seed: 0 -> 9" in problem


def test_another_bank_or_model_than_the_run_began_with_is_named(launch):
    bank = read_bank(bank_path(launch.settings.bank))
    model = Path(launch.settings.policy.model)
    meaning = {"bank_sha256": bank.sha256, "model": model_files(model)}
    RunFolder(launch.run).claim(launch.settings.method(), meaning)
    assert problems(launch) == []
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(b"other weights")
    (problem,) = problems(launch)
    assert "policy.model is not the one" in problem
    assert "(model.safetensors: " in problem
    (model / "model.safetensors").write_bytes(weights)
    path = launch.run / "run.json"
    path.write_text(path.read_text().replace(bank.sha256, "0" * 64))
    assert [problem.split(":")[0] for problem in problems(launch)] == ["bank"]


def test_a_bank_or_curriculum_edited_by_hand_is_noticed_before_the_job_starts(launch):
    folder, settings = RunFolder(launch.run), launch.settings
    folder.claim(settings.method(), {})
    folder.write_state(RunState(opened=True))
    chunks = tuple(replace(chunk, contribution=0.1) for chunk in read_bank(bank_path(settings.bank)).chunks)
    bank = replace(read_bank(bank_path(settings.bank)), chunks=chunks)
    write_bank(folder.round_dir(0) / "skill_bank.json", bank)
    curriculum = curriculum_record(build_curriculum(bank, 0.2, 0.2, 0.9, "seed-0/round-000"))
    path = folder.round_dir(0) / "curriculum.json"
    write_json_atomic(path, {**curriculum, "bank_sha256": bank.sha256})
    assert problems(launch) == []
    write_json_atomic(path, {**curriculum, "bank_sha256": bank.sha256, "curriculum_id": "seed-0/round-003"})
    (problem,) = problems(launch)
    assert "belongs to seed-0/round-003" in problem
    write_bank(folder.round_dir(0) / "skill_bank.json", replace(bank, chunks=chunks[:-1]))
    (problem,) = problems(launch)
    assert "skill_bank.json was changed" in problem


def test_every_start_of_a_run_folder_continues_one_wandb_run(launch, tmp_path):
    assert wandb_run_id(launch) == wandb_run_id(replace(launch, gpus=8, save_interval=5))
    assert wandb_run_id(launch) != wandb_run_id(replace(launch, run=tmp_path / "elsewhere" / "r"))


def tracker(launch, iteration) -> None:
    launch.checkpoints.mkdir(parents=True, exist_ok=True)
    (launch.checkpoints / "latest_checkpointed_iteration.txt").write_text(str(iteration))


@pytest.mark.parametrize(
    ("iteration", "state", "action", "num_rollout"),
    [
        (None, RunState(), "train", 80),
        (19, RunState(step=25, rounds_closed=1), "train", 80),
        (79, RunState(step=80, rounds_closed=3), "close", 0),
        (79, RunState(step=80, rounds_closed=4, finished=True), "done", 80),
        (59, RunState(step=80, rounds_closed=4, finished=True), "train", 80),
    ],
)
def test_what_is_left_to_do_follows_from_checkpoint_and_folder(launch, iteration, state, action, num_rollout):
    if iteration is not None:
        tracker(launch, iteration)
    RunFolder(launch.run).write_state(state)
    found = remaining(launch)
    assert (found.action, found.num_rollout) == (action, num_rollout)


def test_a_broken_tracker_file_is_one_line(launch):
    tracker(launch, "release")
    with pytest.raises(UserError, match="not a number"):
        checkpoint_step(launch.checkpoints)


def test_the_command_writes_the_job_file(launch, tmp_path, capsys):
    import yaml

    from intraskill.backends.slime.launch import write_run_file

    config = tmp_path / "c.yaml"
    path = write_run_file(config, (), launch.run, "http://127.0.0.1:1", Path(launch.settings.policy.model))
    found = yaml.safe_load(path.read_text())["intraskill"]
    assert found["environment_url"] == "http://127.0.0.1:1"
    assert json.dumps(found).count(str(launch.run)) == 1
