"""Rebuild the tiny warm-up checkpoint `intraskill/assets/tiny/` from nothing but this repository.

    python scripts/build_tiny.py [--out DIR] [--episodes N] [--updates N]

Generates the full English world, plays scripted demonstrations on its TRAIN tasks, trains the vocabulary on what they
read and write, imitates them, measures the result on VALIDATION tasks, and writes model, tokenizer and `manifest.json`
(settings, seeds, hashes, measured figures). Two cores, about half an hour. While it trains, `--out` always holds
the newest usable checkpoint.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from shopsimulator.generate import GENERATOR_VERSION

from intraskill.agent.episode import EpisodeSettings
from intraskill.agent.prompts import prompt_template
from intraskill.assets import bank_path
from intraskill.config import EnvironmentSettings
from intraskill.envs.shop import open_world
from intraskill.learn import demonstrations as demo
from intraskill.learn.engine import BatchEngine
from intraskill.learn.models import build_model, eos_ids
from intraskill.learn.tiny import build_tokenizer, tiny_config
from intraskill.learn.warmup import Excess, WarmupSettings, measure, train
from intraskill.policies.chat import ChatTemplate, load_tokenizer
from intraskill.policies.token import TokenPolicy
from intraskill.records import Episode, EpisodeJob, Sampling
from intraskill.rollout.runner import EpisodeRunner
from intraskill.skills.bank import Chunk, read_bank
from intraskill.store import write_json_atomic

ASSETS = Path(__file__).resolve().parent.parent / "intraskill" / "assets"
VOCABULARY, VOCABULARY_EPISODES = 1100, 3000
HELD_OUT_EPISODES = 1000
LIMITS = EpisodeSettings(max_steps=10, sampling=Sampling(temperature=1.0, max_tokens=32))


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    started = time.monotonic()
    train_stage, held_out_stage = stage("train", options.work), stage("val", options.work)
    tokenizer = build_tokenizer(demo.shown_texts(train_stage, range(VOCABULARY_EPISODES)), VOCABULARY)
    tokenizer.save_pretrained(options.out)
    say(started, f"vocabulary of {len(tokenizer)} tokens")
    data = play("train", options, options.episodes)
    held_out = list(
        demo.demonstrations(held_out_stage, ChatTemplate(load_tokenizer(options.out)), range(HELD_OUT_EPISODES))
    )
    say(started, f"{len(data)} demonstrations")
    settings = WarmupSettings(updates=options.updates)
    model = build_model(tiny_config(tokenizer), settings.seed)
    losses: list[float] = []

    def report(update: int, loss: float) -> None:
        losses.append(loss)
        if update % 250 == 0 or update == settings.updates:
            found = measure(model, held_out[:300])
            recent = sum(losses[-50:]) / len(losses[-50:])
            say(
                started, f"update {update}: loss {recent:.4f}, held out {found.cross_entropy:.4f} (+{found.excess:.4f})"
            )
            model.save_pretrained(options.out)

    train(model, data, settings, report)
    model.eval()
    figures = {
        "held_out": held_out_figures(measure(model, held_out)),
        **sampled_figures(model, held_out_stage, options),
    }
    write_manifest(options, settings, train_stage, model, figures, time.monotonic() - started)
    say(started, json.dumps(figures, indent=1))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ASSETS / "tiny", help="where the checkpoint goes")
    parser.add_argument("--work", type=Path, default=Path("runs/.worlds"), help="where the generated world is kept")
    parser.add_argument("--episodes", type=int, default=60_000, help="demonstrated episodes")
    parser.add_argument("--updates", type=int, default=WarmupSettings().updates, help="optimizer updates")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="CPU threads and worker processes")
    return parser.parse_args()


def stage(split: str, work: Path) -> demo.Stage:
    """The demonstrations' stage on one split; the two splits have no product in common as a task's target."""
    source = open_world(EnvironmentSettings(), work)
    task_ids = getattr(source.splits(), split)
    bank = read_bank(bank_path("builtin:s0"))
    return demo.Stage(source, task_ids, bank, prompt_template("compact"), LIMITS, seed=0)


def play(split: str, options: argparse.Namespace, count: int) -> list[demo.Demonstration]:
    """The first `count` demonstrations, played by several processes."""
    size = -(-count // (8 * options.threads))
    parts = [range(first, min(first + size, count)) for first in range(0, count, size)]
    with ProcessPoolExecutor(options.threads) as pool:
        jobs = [pool.submit(_play_part, split, options.work, options.out, part) for part in parts]
        return [episode for job in jobs for episode in job.result()]


def _play_part(split: str, work: Path, tokenizer: Path, numbers: range) -> list[demo.Demonstration]:
    return list(demo.demonstrations(stage(split, work), ChatTemplate(load_tokenizer(tokenizer)), numbers))


def held_out_figures(found: Excess) -> dict[str, float]:
    return {"cross_entropy": found.cross_entropy, "floor": found.floor, "excess": found.excess}


def sampled_figures(model: Any, held_out: demo.Stage, options: argparse.Namespace) -> dict[str, Any]:
    """Success and invalid actions a validation episode, by visible chunks, at temperature 1 and greedy."""
    engine = BatchEngine(model, eos_ids(model), dtype=torch.bfloat16)
    policy = TokenPolicy(ChatTemplate(load_tokenizer(options.out)), engine)
    runner = EpisodeRunner(held_out.source, policy, held_out.template, LIMITS)
    chunks = held_out.bank.chunks
    harmless = [chunk for chunk in chunks if demo.mechanism(chunk) != "haste"]
    shown = {"bare": [], "full": chunks, "full_without_harmful": harmless}
    shown |= {f"only_{chunk.skill_id}": [chunk] for chunk in chunks}
    return {
        "sampled": {name: figures(run_all(runner, held_out.task_ids, visible)) for name, visible in shown.items()},
        "greedy": {
            name: figures(run_all(runner.greedy(), held_out.task_ids, shown[name]))
            for name in ("bare", "full", "full_without_harmful")
        },
    }


def run_all(runner: EpisodeRunner, task_ids: Sequence[int], chunks: Sequence[Chunk]) -> list[Episode]:
    async def every() -> list[Episode]:
        jobs = [EpisodeJob(task_id, 0, number, "val") for number, task_id in enumerate(task_ids)]
        return await asyncio.gather(*(runner.run(job, chunks, f"task-{job.task_id}") for job in jobs))

    return asyncio.run(every())


def figures(episodes: Sequence[Episode]) -> dict[str, float]:
    steps = [step for episode in episodes for step in episode.steps]
    invalid = [step for step in steps if step.protocol_error or not (step.result and step.result.feedback["valid"])]
    return {
        "episodes": len(episodes),
        "success": sum(episode.success for episode in episodes) / len(episodes),
        "invalid_actions": len(invalid) / len(episodes),
        "steps": len(steps) / len(episodes),
    }


def write_manifest(
    options: argparse.Namespace,
    settings: WarmupSettings,
    train_stage: demo.Stage,
    model: Any,
    measured: dict[str, Any],
    seconds: float,
) -> None:
    names = sorted(path.name for path in options.out.iterdir() if path.name != "manifest.json")
    write_json_atomic(
        options.out / "manifest.json",
        {
            "schema": "intraskill-tiny-v1",
            "made_by": "scripts/build_tiny.py",
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "world": {
                "generator_version": GENERATOR_VERSION,
                "split": "train",
                "tasks": len(train_stage.task_ids),
                "identity": train_stage.source.identity(),
            },
            "prompt_sha256": train_stage.template.sha256,
            "bank_sha256": train_stage.bank.sha256,
            "demonstrations": {
                "episodes": options.episodes,
                "seed": train_stage.seed,
                "followed": demo.FOLLOWED,
                "unprompted": demo.UNPROMPTED,
                "haste_obeyed": demo.HASTE_OBEYED,
                "slip_share": demo.SLIP_SHARE,
            },
            "warmup": asdict(settings),
            "sha256": {name: hashlib.sha256((options.out / name).read_bytes()).hexdigest() for name in names},
            "versions": {"torch": torch.__version__},
            "seconds": round(seconds, 1),
            "measured": measured,
        },
    )


def say(started: float, text: str) -> None:
    print(f"{time.monotonic() - started:7.0f} s  {text}", flush=True)


if __name__ == "__main__":
    main()
