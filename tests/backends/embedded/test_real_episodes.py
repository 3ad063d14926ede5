"""The warm-up checkpoint in the real environment: what the sampler recorded is what the trainer recomputes."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
import torch

from intraskill.agent.episode import EpisodeSettings
from intraskill.agent.segments import segments
from intraskill.backends.embedded.engine import BatchEngine
from intraskill.backends.embedded.models import load_model, model_directory
from intraskill.backends.embedded.packing import pack, prompt_groups
from intraskill.backends.embedded.trainer import Trainer
from intraskill.core.records import Episode, EpisodeJob, Sampling, Segment
from intraskill.families.shop.family import open_shop
from intraskill.families.shop.settings import ShopSettings, WorldSettings
from intraskill.objectives.weights import token_weights
from intraskill.policies.chat import load_chat
from intraskill.policies.token import TokenPolicy
from intraskill.rollout.runner import EpisodeRunner
from intraskill.settings.models import TrainSettings


async def play(tmp_path: Path, dtype: str, directory: Path | None = None) -> list[Episode]:
    """Two tasks, four siblings each, at temperature 1."""
    world = open_shop(ShopSettings(world=WorldSettings(generate="small")), tmp_path)
    directory = directory or model_directory("builtin:tiny")
    model, chat = load_model(str(directory)), load_chat(directory)
    policy = TokenPolicy(chat, BatchEngine(model, chat.stop_ids, dtype=getattr(torch, dtype)))
    settings = EpisodeSettings(10, Sampling(temperature=1.0, max_tokens=32), "static")
    runner = EpisodeRunner(world, policy, world.prompt("compact"), settings)
    tasks = world.splits().train[:2]
    jobs = [EpisodeJob(task, sample, 1000 * int(task) + sample, "train") for task in tasks for sample in range(4)]
    return list(await asyncio.gather(*(runner.run(job, (), f"task-{job.task_id}") for job in jobs)))


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 1e-4), ("bfloat16", 5e-3)])
async def test_sampled_log_probs_are_the_trainers(tmp_path: Path, dtype: str, limit: float) -> None:
    episodes = await play(tmp_path, dtype)
    assert all(episode.status == "completed" for episode in episodes)
    numbers = [int(episode.job.task_id) for episode in episodes]
    trained: list[Segment] = [s for episode, index in zip(episodes, numbers) for s in segments(episode, index)]
    assert len(trained) == len(episodes)  # static tool schema: an episode is one segment
    trainer = Trainer(load_model("builtin:tiny"), TrainSettings(dtype=dtype))  # type: ignore[arg-type]
    groups = prompt_groups(trained)
    assert len(groups) == 2  # siblings saw byte-identical prompts
    packed = pack(groups, token_weights(trained))
    with torch.no_grad():
        log_probs, _ = trainer.log_probs(packed)
    difference = (log_probs - packed.sampled_log_probs).abs()
    assert difference.mean().item() <= limit
    if dtype == "float32":
        assert difference.max().item() <= limit


async def test_two_runs_play_the_same_episodes(tmp_path: Path) -> None:
    first, second = await play(tmp_path, "bfloat16"), await play(tmp_path, "bfloat16")
    for one, other in zip(first, second, strict=True):
        assert [step.turn for step in one.steps] == [step.turn for step in other.steps]
        assert (one.reward, one.termination) == (other.reward, other.termination)


@pytest.mark.parametrize("named", [0, [0, 1]])
async def test_a_model_whose_settings_name_another_end_still_stops_at_its_templates(
    tmp_path: Path, named: int | list[int]
) -> None:
    original = model_directory("builtin:tiny")
    model = tmp_path / "model"
    shutil.copytree(original, model)
    settings = json.loads((model / "generation_config.json").read_text())
    (model / "generation_config.json").write_text(json.dumps(settings | {"eos_token_id": named}))
    first, second = await play(tmp_path, "float32"), await play(tmp_path, "float32", model)
    assert all(step.turn.finish_reason == "stop" for episode in second for step in episode.steps)
    for one, other in zip(first, second, strict=True):
        assert [step.turn for step in one.steps] == [step.turn for step in other.steps]
