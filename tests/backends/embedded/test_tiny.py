"""The committed warm-up checkpoint: intact, made for today's prompts, and a policy that reads its chunks."""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from shopsimulator.generate import GENERATOR_VERSION, generate_world

from intraskill.agent.episode import EpisodeSettings
from intraskill.assets import bank_path
from intraskill.backends.embedded.engine import BatchEngine
from intraskill.backends.embedded.models import load_model, model_directory
from intraskill.backends.embedded.warmup import WarmupSettings, context_weight, schedule
from intraskill.core.records import Episode, EpisodeJob, Sampling
from intraskill.families.shop.family import open_shop
from intraskill.families.shop.prompts import prompt_template
from intraskill.families.shop.settings import ShopSettings, WorldSettings
from intraskill.policies.chat import load_chat
from intraskill.policies.token import TokenPolicy
from intraskill.rollout.runner import EpisodeRunner
from intraskill.skills.bank import Chunk, read_bank

TINY = model_directory("builtin:tiny")
MANIFEST = json.loads((TINY / "manifest.json").read_text())
REBUILD = "run scripts/build_tiny.py: the checkpoint was trained on other text than it would now be shown"


def test_files_are_the_ones_in_the_manifest_and_small() -> None:
    files = {path.name: path for path in TINY.iterdir() if path.name != "manifest.json"}
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()} == MANIFEST["sha256"]
    assert sum(path.stat().st_size for path in files.values()) <= 12e6


def test_checkpoint_was_made_for_these_prompts_and_this_bank() -> None:
    assert MANIFEST["prompt_sha256"] == prompt_template("compact").sha256, REBUILD
    assert MANIFEST["bank_sha256"] == read_bank(bank_path("builtin:s0")).sha256, REBUILD
    assert MANIFEST["generator_version"] == GENERATOR_VERSION, REBUILD


def test_figures_leave_something_to_learn_and_chunks_to_learn_it_from() -> None:
    sampled = {name: figures["success"] for name, figures in MANIFEST["measured"]["sampled"].items()}
    assert sampled["bare"] <= 0.35
    assert sampled["full_without_harmful"] >= 0.70
    assert sampled["full"] < sampled["full_without_harmful"]
    assert all(figures["invalid_actions"] < 1 for figures in MANIFEST["measured"]["sampled"].values())
    assert MANIFEST["measured"]["held_out"]["excess"] < 0.1


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> tuple[EpisodeRunner, Sequence[int]]:
    folder = tmp_path_factory.mktemp("world")
    generate_world(folder, "small", 5)
    world = WorldSettings(generate=None, catalog=folder / "catalog.json.gz", splits=folder / "splits.json")
    source = open_shop(ShopSettings(world=world), Path(folder))
    model = load_model("builtin:tiny")
    chat = load_chat(TINY)
    engine = BatchEngine(model, chat.stop_ids, dtype=torch.float32)
    limits = EpisodeSettings(max_steps=10, sampling=Sampling(temperature=0.0, max_tokens=32))
    policy = TokenPolicy(chat, engine)
    return EpisodeRunner(source, policy, source.prompt("compact"), limits), source.splits().train[:80]


def play(runner: EpisodeRunner, task_ids: Sequence[int], chunks: Sequence[Chunk]) -> list[Episode]:
    async def every() -> list[Episode]:
        jobs = [EpisodeJob(task_id, 0, number, "train") for number, task_id in enumerate(task_ids)]
        return await asyncio.gather(*(runner.run(job, chunks, f"task-{job.task_id}") for job in jobs))

    return asyncio.run(every())


def success(episodes: Sequence[Episode]) -> float:
    return sum(episode.success for episode in episodes) / len(episodes)


def test_it_shops_by_what_its_chunks_say_in_a_world_it_never_saw(
    runner: tuple[EpisodeRunner, Sequence[int]],
) -> None:
    chunks = read_bank(bank_path("builtin:s0")).chunks
    helpful = [chunk for chunk in chunks if chunk.metadata["role"] == "useful"]
    bare, equipped = (success(play(*runner, shown)) for shown in ((), helpful))
    assert bare < 0.3
    assert equipped > bare + 0.3


def test_a_chunk_without_its_words_does_nothing(runner: tuple[EpisodeRunner, Sequence[int]]) -> None:
    """It is the text that works, not the presence of a line."""
    chunks = [
        replace(chunk, applies_when="every page", procedure=("read it to the end",))
        for chunk in read_bank(bank_path("builtin:s0")).chunks
    ]
    assert abs(success(play(*runner, chunks)) - success(play(*runner, ()))) < 0.15


def test_schedule_rises_and_falls_and_context_fades_out() -> None:
    settings = WarmupSettings(updates=1000, warmup_updates=100, final_share=0.01, context_weight=0.3, context_share=0.4)
    rates = [schedule(update, settings) for update in range(1, 1001)]
    assert max(rates) == rates[99] == 1.0
    assert rates[0] == 0.01
    assert rates[-1] == pytest.approx(0.01)
    assert context_weight(1, settings) == pytest.approx(0.3, rel=0.01)
    assert context_weight(400, settings) == context_weight(1000, settings) == 0.0
