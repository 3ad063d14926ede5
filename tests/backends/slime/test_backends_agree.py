"""One small run through both backends: the slime job is fed the very episodes that the embedded run played.

What depends on rewards is then comparable to the last digit: which groups are kept, what the gates find, which
assignments follow from it, and what the trainer is told. An episode that only one of the two asks for is a KeyError.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from intraskill.backends.slime.rewards import post_process
from intraskill.backends.slime.samples import group_samples
from intraskill.backends.slime.smoke import smoke_settings
from intraskill.core.records import EpisodeJob
from intraskill.rollout.runner import EpisodeRunner
from intraskill.storage.documents import read_json
from intraskill.storage.jsonl import JsonlLog

pytestmark = pytest.mark.timeout(600)
SIBLINGS, STEPS = 3, 2


@dataclass(frozen=True)
class Recorder(EpisodeRunner):
    """Plays episodes and keeps them by job and chunks shown."""

    played: dict[tuple, object] = field(default_factory=dict)

    async def run(self, job, chunks, group):
        episode = await super().run(job, chunks, group)
        self.played[key(job, chunks)] = episode
        return episode


@dataclass(frozen=True)
class Player(EpisodeRunner):
    """Answers with recorded episodes."""

    played: dict[tuple, object] = field(default_factory=dict)

    async def run(self, job, chunks, group):
        return self.played[key(job, chunks)]


def key(job: EpisodeJob, chunks) -> tuple:
    return job, tuple(chunk.skill_id for chunk in chunks)


def settings_of(model: str) -> dict:
    settings = smoke_settings(model, seed=3)
    settings |= {"steps_per_round": 1, "gate": {"tasks": 10, "candidates": 0}, "report": {"wandb": "disabled"}}
    settings["rollout"] = {"group_size": SIBLINGS, "generated_groups": 4, "kept_groups": 2}
    settings["policy"]["threads"] = 1
    return settings


@pytest.fixture(scope="module")
def embedded(tmp_path_factory, worlds):
    """The embedded run: its folder, the episodes it played, and the kept groups of each step as trained on."""
    backend = pytest.importorskip("intraskill.backends.embedded.backend")
    from intraskill.assets import model_directory
    from intraskill.core.progress import Reporter
    from intraskill.settings.models import RunSettings
    from intraskill.storage.run_folder import RunFolder
    from intraskill.training.loop import Unobserved, run_to_end

    if not (model_directory("builtin:tiny") / "model.safetensors").exists():
        pytest.skip("the package holds no tiny checkpoint")
    folder = tmp_path_factory.mktemp("embedded")
    (folder / ".worlds").symlink_to(worlds, target_is_directory=True)
    settings = settings_of("builtin:tiny")
    del settings["slime"]
    run = RunFolder(folder / "run")
    driver, weights = backend.open_training(RunSettings.model_validate(settings), run.path, Reporter(quiet=True))
    plain = driver.run.runner
    recorder = Recorder(plain.family, plain.policy, plain.prompt, plain.settings)
    driver.run, trained = replace(driver.run, runner=recorder), []
    step = weights.trainer.step

    def keep(groups):
        trained.append(groups)
        return step(groups)

    weights.trainer.step = keep
    asyncio.run(run_to_end(driver, weights, Unobserved()))
    assert len(trained) == STEPS
    return SimpleNamespace(folder=run, played=recorder.played, trained=trained)


@pytest.fixture
def replayed(kit, embedded):
    """The same run as a slime job; yields the kept groups of each step."""
    kit.settings = settings_of(str(kit.model))
    job = kit.job()
    plain = job.driver.run.runner
    player = Player(plain.family, plain.policy, plain.prompt, plain.settings, embedded.played)
    job.driver.run = replace(job.driver.run, runner=player)
    job.evaluate(0)
    kept = []
    for step in range(STEPS):
        kept.append(job.generate(step).batch.kept)
        job.evaluate(step)
    assert job.driver.finished
    return SimpleNamespace(folder=job.folder, kept=kept, args=job.args)


def groups_in(folder) -> list[dict]:
    logs = sorted(folder.path.glob("rounds/*/groups.jsonl"))
    rows = [row for log in logs for row in JsonlLog(log).read()]
    return [{name: value for name, value in row.items() if name != "weight_versions"} for row in rows]


def test_assignments_verdicts_and_triage_are_equal(embedded, replayed):
    ours, theirs = groups_in(replayed.folder), groups_in(embedded.folder)
    assert len(ours) >= STEPS * 4
    assert {row["verdict"] for row in ours} > {"kept"}
    assert ours == theirs


def test_gates_curricula_and_banks_are_equal(embedded, replayed):
    for index in range(-1, STEPS):
        ours, theirs = (read_json(run.folder.gate_dir(index) / "contributions.json") for run in (replayed, embedded))
        names = ours.pop("checkpoint_id"), theirs.pop("checkpoint_id")
        assert all(name.startswith(f"step-{index + 1:04d}-") for name in names)
        assert ours == theirs
    for index in range(STEPS):
        ours, theirs = (read_json(run.folder.round_dir(index) / "curriculum.json") for run in (replayed, embedded))
        assert ours["chunks"] == theirs["chunks"]
        assert ours["curriculum_id"] == theirs["curriculum_id"]


def test_the_trainer_is_told_the_same(embedded, replayed):
    for kept, trained in zip(replayed.kept, embedded.trained):
        samples = [fields for group in kept for one in group_samples(group, SIBLINGS) for fields in one]
        objects = [
            SimpleNamespace(**fields, **({} if "remove_sample" in fields else {"remove_sample": False}))
            for fields in samples
        ]
        _, values = post_process(replayed.args, objects)
        wanted = [segment for group in trained for segment in group]
        assert [sample["tokens"] for sample in samples] == [list(segment.token_ids) for segment in wanted]
        assert [{value} for value in values] == [
            {told for told, sampled in zip(segment.advantages, segment.loss_mask) if sampled} for segment in wanted
        ]
        assert any(values)


@pytest.mark.slime
def test_slimes_own_conversion_hands_the_trainer_the_same_segments(embedded, replayed):
    torch = pytest.importorskip("torch")
    rollout = pytest.importorskip("slime.ray.rollout")
    from intraskill.backends.slime.rollout import slime_group
    from intraskill.backends.slime.smoke_actor import groups_of

    manager = SimpleNamespace(
        args=replayed.args,
        custom_convert_samples_to_train_data_func=None,
        custom_reward_post_process_func=post_process,
    )
    plain = rollout.RolloutManager.__ray_metadata__.modified_class
    manager._post_process_rewards = lambda samples: plain._post_process_rewards(manager, samples)
    for kept, trained in zip(replayed.kept, embedded.trained):
        flat = [sample for group in kept for one in slime_group(group, SIBLINGS) for sample in one]
        data = plain._convert_samples_to_train_data(manager, flat)
        data["partition"] = list(range(len(flat)))
        for name in ("tokens", "loss_masks", "rollout_log_probs"):
            data[name] = [torch.tensor(values) for values in data[name]]
        segments = [segment for group in groups_of(data, SIBLINGS) for segment in group]
        wanted = [segment for group in trained for segment in group]
        assert [s.token_ids for s in segments] == [s.token_ids for s in wanted]
        assert [s.loss_mask for s in segments] == [s.loss_mask for s in wanted]
        assert [s.prompt_length for s in segments] == [s.prompt_length for s in wanted]
        for ours, theirs in zip(segments, wanted):
            assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-6)
            assert ours.advantages == pytest.approx(theirs.advantages, abs=1e-6)
