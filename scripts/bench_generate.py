#!/usr/bin/env python
"""Sampling speed: the embedded engine against the model library's `generate`, on one shape, in one process.

256 episodes (32 groups of 8 with one prompt each): prompt 70 tokens, then 6 turns of 6 sampled and 21 observation
tokens. The contestants take turns, bfloat16 all of them:

- `engine`: BatchEngine behind 256 coroutines (prompt once per group, cache kept across turns);
- `generate_reprefill`: `generate` over the whole conversation, every turn anew;
- `generate_cached`: `generate` handed its own cache from turn to turn;
- `floor`: nothing but the matrix products nobody can do without, in the same batches.

Prints one JSON line per contestant (seconds: best and median) and one with the ratios. `--allocator retain` starts
the process again with glibc told to keep large blocks, for all three alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel, Qwen3Config

from intraskill.backends.embedded.engine import BatchEngine
from intraskill.backends.embedded.models import build_model
from intraskill.core.records import Sampling

RETAIN = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "MALLOC_TOP_PAD_": "67108864",
}
VOCABULARY = 1204


def tiny_shape() -> Qwen3Config:
    """The shape of the warm-up checkpoint, about 1.8 M parameters."""
    return Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=1,
        bos_token_id=None,
        pad_token_id=0,
    )


class Shape:
    """The token counts of one benchmark run, and its fixed random prompts and observations."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.groups, self.siblings, self.turns = arguments.groups, arguments.siblings, arguments.turns
        self.sampled, self.observed, self.prompt = arguments.sampled, arguments.observed, arguments.prompt
        rng = np.random.default_rng(0)
        self.episodes = self.groups * self.siblings
        prompts = rng.integers(2, VOCABULARY, (self.groups, self.prompt))
        self.prompts = torch.from_numpy(np.repeat(prompts, self.siblings, axis=0))
        self.observations = torch.from_numpy(rng.integers(2, VOCABULARY, (self.turns, self.episodes, self.observed)))


def run_engine(model: PreTrainedModel, shape: Shape) -> Callable[[], int]:
    """No end token is ever sampled, so every reply has exactly `sampled` tokens."""
    engine = BatchEngine(model, (), dtype=torch.bfloat16)
    sampling = Sampling(temperature=1.0, max_tokens=shape.sampled)
    prompts, observations = shape.prompts.tolist(), shape.observations.tolist()

    async def episode(index: int) -> int:
        ids, name = tuple(prompts[index]), str(index)
        for turn in range(shape.turns):
            answer = await engine.generate(
                ids, sampling=sampling, seed=index, session=name, group=str(index // shape.siblings)
            )
            ids = (*ids, *answer.token_ids, *observations[turn][index])
        engine.close_session(name)
        return len(ids)

    async def everyone() -> int:
        for index in range(shape.episodes):
            engine.open_session(str(index))
        return sum(await asyncio.gather(*(episode(index) for index in range(shape.episodes))))

    return lambda: asyncio.run(everyone())


def run_generate(model: PreTrainedModel, shape: Shape, cached: bool) -> Callable[[], int]:
    peer = AutoModelForCausalLM.from_config(tiny_shape(), dtype=torch.bfloat16).eval()  # its own default attention
    peer.load_state_dict(model.state_dict())

    @torch.inference_mode()
    def everyone() -> int:
        ids = shape.prompts
        cache = DynamicCache(config=peer.config) if cached else None
        for turn in range(shape.turns):
            ids = peer.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                max_new_tokens=shape.sampled,
                min_new_tokens=shape.sampled,
                past_key_values=cache,
            )
            assert ids.shape[1] == shape.prompt + turn * (shape.sampled + shape.observed) + shape.sampled
            ids = torch.cat([ids, shape.observations[turn]], dim=1)
        return ids.numel()

    return everyone


def run_floor(model: PreTrainedModel, shape: Shape) -> Callable[[], int]:
    """Each prompt and each later token once through the linear layers, each sampled token through the head."""
    layers = [m.weight.detach().bfloat16() for m in model.model.modules() if isinstance(m, torch.nn.Linear)]
    head = model.get_output_embeddings().weight.detach().bfloat16()
    decoded = [shape.episodes] * (shape.sampled - 1)
    later = [shape.episodes * (shape.observed + 1), *decoded]  # the last sampled token is read with the observation
    batches = [shape.groups * shape.prompt, *decoded, *later * (shape.turns - 1)]
    inputs = {weight.shape[1]: torch.randn(max(batches), weight.shape[1]).bfloat16() for weight in (*layers, head)}

    @torch.inference_mode()
    def everyone() -> int:
        for rows in batches:
            for weight in layers:
                torch.nn.functional.linear(inputs[weight.shape[1]][:rows], weight)
            torch.nn.functional.linear(inputs[head.shape[1]][: min(rows, shape.episodes)], head)
        return sum(batches)

    return everyone


def measure(contestants: dict[str, Callable[[], int]], repeats: int) -> dict[str, list[float]]:
    """One warm-up round, then `repeats` rounds in which everyone runs once."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(repeats + 1):
        for name, run in contestants.items():
            started = time.perf_counter()
            run()
            if number:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("groups", 32), ("siblings", 8), ("turns", 6), ("sampled", 6), ("observed", 21), ("prompt", 70),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--allocator", choices=("default", "retain"), default="default")
    parser.add_argument("--only", choices=("engine", "generate_reprefill", "generate_cached", "floor"))
    arguments = parser.parse_args()
    if arguments.allocator == "retain" and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **RETAIN})
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    shape, model = Shape(arguments), build_model(tiny_shape(), 0)
    contestants = {
        "engine": run_engine(model, shape),
        "generate_reprefill": run_generate(model, shape, cached=False),
        "generate_cached": run_generate(model, shape, cached=True),
        "floor": run_floor(model, shape),
    }
    if arguments.only:
        contestants = {arguments.only: contestants[arguments.only]}
    seconds = measure(contestants, arguments.repeats)
    for name, values in seconds.items():
        best, median = round(min(values), 3), round(statistics.median(values), 3)
        print(json.dumps({"contestant": name, "best_s": best, "median_s": median, **vars(arguments)}))
    if not arguments.only:
        pairs = [("generate_reprefill", "engine"), ("generate_cached", "engine"), ("engine", "floor")]
        print(json.dumps({f"{slow}_over_{fast}": ratio(seconds[slow], seconds[fast]) for slow, fast in pairs}))


def ratio(slow: list[float], fast: list[float]) -> dict[str, float]:
    """Of the best times, and the median over the rounds, in which both ran."""
    each = map(float.__truediv__, slow, fast)
    return {"best": round(min(slow) / min(fast), 2), "median": round(statistics.median(each), 2)}


if __name__ == "__main__":
    main()
