"""Rebuild the tiny warm-up checkpoint `intraskill/assets/tiny/` from nothing but this repository.

    python scripts/build_tiny.py [--out DIR] [--episodes N] [--updates N]

Plays scripted demonstrations on the TRAIN tasks of worlds generated for this purpose, trains the vocabulary on what is
read and written in them, imitates them, measures the result on the VALIDATION tasks of the standard world (seed 0),
and writes model, tokenizer and `manifest.json` (settings, seeds, hashes, measured figures). The standard world is
never trained on, and demonstration tasks whose product is called like one of its validation or test products are
left out. Two cores, 25 to 40 minutes. While it trains, `--out` always holds the newest checkpoint.
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
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from shopsimulator.generate import GENERATOR_VERSION
from transformers import PreTrainedTokenizerFast

from intraskill.agent.demonstration import Demonstration
from intraskill.agent.episode import EpisodeSettings
from intraskill.assets import bank_path
from intraskill.backends.embedded.engine import BatchEngine
from intraskill.backends.embedded.models import build_model, load_model
from intraskill.backends.embedded.tiny import build_tokenizer, tiny_config
from intraskill.backends.embedded.warmup import Excess, WarmupSettings, measure, train
from intraskill.core.records import Episode, EpisodeJob, Sampling
from intraskill.families.shop import demonstrations as demo
from intraskill.families.shop.family import open_shop
from intraskill.families.shop.settings import ShopSettings, WorldSettings
from intraskill.policies.chat import ChatTemplate, load_chat, load_tokenizer
from intraskill.policies.token import TokenPolicy
from intraskill.rollout.runner import EpisodeRunner
from intraskill.skills.bank import Chunk, read_bank
from intraskill.storage.store import write_json_atomic

ASSETS = Path(__file__).resolve().parent.parent / "intraskill" / "assets"
VOCABULARY, VOCABULARY_EPISODES = 1100, 3000
HELD_OUT_EPISODES = 1000
STANDARD_WORLD = 0
DEMONSTRATION_WORLDS = range(1001, 1017)  # many, so that tasks are read rather than remembered
LIMITS = EpisodeSettings(max_steps=10, sampling=Sampling(temperature=1.0, max_tokens=32))


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    started = time.monotonic()
    held_out_stage = stage(STANDARD_WORLD, "val", options.work)
    reserved = held_out_titles(held_out_stage)
    first_stage = demonstration_stage(DEMONSTRATION_WORLDS[0], options.work, reserved)
    if not options.done:
        texts = demo.shown_texts(first_stage, range(VOCABULARY_EPISODES))
        save_tokenizer(build_tokenizer(texts, VOCABULARY, demo.WHOLE), options.out)
    tokenizer = load_tokenizer(options.out)
    say(started, f"vocabulary of {len(tokenizer)} tokens")
    data = play(options, reserved)
    held_out = list(
        demo.demonstrations(held_out_stage, ChatTemplate(load_tokenizer(options.out)), range(HELD_OUT_EPISODES))
    )
    say(started, f"{len(data)} demonstrations")
    settings = WarmupSettings(updates=options.updates)
    model = load_model(str(options.out)) if options.done else build_model(tiny_config(tokenizer), settings.seed)
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
            (options.out / "model.safetensors").chmod(0o644)  # written readable by its owner only

    train(model, data, settings, report, options.done)
    model.eval()
    figures = {
        "held_out": held_out_figures(measure(model, held_out)),
        **sampled_figures(model, held_out_stage, options),
    }
    write_manifest(options, settings, held_out_stage, len(data), model, figures, time.monotonic() - started)
    say(started, json.dumps(figures, indent=1))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ASSETS / "tiny", help="where the checkpoint goes")
    parser.add_argument("--work", type=Path, default=Path("runs/.worlds"), help="where the generated world is kept")
    parser.add_argument("--episodes", type=int, default=64_000, help="demonstrated episodes")
    parser.add_argument("--updates", type=int, default=WarmupSettings().updates, help="optimizer updates")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="CPU threads and worker processes")
    parser.add_argument("--done", type=int, default=0, help="go on from the checkpoint in --out, made after N updates")
    return parser.parse_args()


def stage(world: int, split: str, work: Path) -> demo.Stage:
    """The demonstrations' stage on one split of one generated world."""
    shop = open_shop(ShopSettings(world=WorldSettings(seed=world)), work)
    bank = read_bank(bank_path("builtin:s0"))
    return demo.Stage(shop, getattr(shop.splits(), split), bank, shop.prompt("compact"), LIMITS, seed=world)


def demonstration_stage(world: int, work: Path, reserved: frozenset[str]) -> demo.Stage:
    """Train tasks whose product is not called like a reserved one; those with a price limit, hard to learn, twice."""
    everything = stage(world, "train", work)
    catalog = everything.family.catalog
    titles = {task: catalog.products[catalog.tasks[int(task)].asin].title for task in everything.task_ids}
    free = [task for task in everything.task_ids if titles[task] not in reserved]
    limited = {task for task in free if catalog.tasks[int(task)].price_upper is not None}
    return replace(everything, task_ids=[task for task in free for _ in range(1 + (task in limited))])


def held_out_titles(held_out: demo.Stage) -> frozenset[str]:
    """What the validation and test tasks of the standard world want."""
    catalog, splits = held_out.family.catalog, held_out.family.splits()
    return frozenset(catalog.products[catalog.tasks[int(task)].asin].title for task in (*splits.val, *splits.test))


def play(options: argparse.Namespace, reserved: frozenset[str]) -> list[Demonstration]:
    """`options.episodes` demonstrations, the worlds sharing them equally, played by several processes."""
    each = range(-(-options.episodes // len(DEMONSTRATION_WORLDS)))
    with ProcessPoolExecutor(options.threads) as pool:
        jobs = [
            pool.submit(_play_world, world, options.work, options.out, reserved, each) for world in DEMONSTRATION_WORLDS
        ]
        return [episode for job in jobs for episode in job.result()]


def _play_world(
    world: int, work: Path, tokenizer: Path, reserved: frozenset[str], numbers: range
) -> list[Demonstration]:
    played = demonstration_stage(world, work, reserved)
    return list(demo.demonstrations(played, ChatTemplate(load_tokenizer(tokenizer)), numbers))


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Under the class name that every supported version of transformers knows."""
    tokenizer.save_pretrained(out)
    path = out / "tokenizer_config.json"
    write_json_atomic(path, json.loads(path.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"})


def held_out_figures(found: Excess) -> dict[str, float]:
    return {"cross_entropy": found.cross_entropy, "floor": found.floor, "excess": found.excess}


def sampled_figures(model: Any, held_out: demo.Stage, options: argparse.Namespace) -> dict[str, Any]:
    """Success and invalid actions a validation episode, by visible chunks, at temperature 1 and greedy."""
    chat = load_chat(options.out)
    policy = TokenPolicy(chat, BatchEngine(model, chat.stop_ids, dtype=torch.bfloat16))
    runner = EpisodeRunner(held_out.family, policy, held_out.template, LIMITS)
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
    held_out: demo.Stage,
    episodes: int,
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
            "standard_world": held_out.family.identity(),
            "generator_version": GENERATOR_VERSION,
            "prompt_sha256": held_out.template.sha256,
            "bank_sha256": held_out.bank.sha256,
            "demonstrations": {
                "worlds": list(DEMONSTRATION_WORLDS),
                "split": "train",
                "episodes": episodes,
                "followed": demo.FOLLOWED,
                "unprompted": demo.UNPROMPTED,
                "haste_obeyed": demo.HASTE_OBEYED,
                "slip_share": demo.SLIP_SHARE,
                "tasks_with_a_limit": "twice",
            },
            "warmup": asdict(settings) | {"went_on_after": options.done},
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
