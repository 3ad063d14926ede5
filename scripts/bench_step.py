#!/usr/bin/env python
"""One training step, sampled and trained: the embedded backend against TRL's GRPOTrainer, on one shape.

16 groups of 8 episodes (prompt 70 tokens, 6 turns of 6 sampled and 21 observation tokens) are sampled, then trained
on with two optimizer updates. TRL samples the same turns with its own generation call, one turn after the other as
its tool loop does, and masks the observations. Both run in this process and take turns: each of TRL's steps is
followed by one of ours.

TRL is looked for and not required: without it only our side is measured. It needs an environment of its own:

    python -m venv .bench && .bench/bin/pip install -e .[local] "trl==1.16.*"
    .bench/bin/python scripts/bench_step.py --trl fp32 --trl bf16_autocast --trl bf16_weights

Prints one JSON line per contestant and one with the ratios (TRL's seconds over ours).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bench_generate import RETAIN, VOCABULARY, Shape, tiny_shape

from intraskill.backends.embedded.engine import BatchEngine
from intraskill.backends.embedded.models import build_model
from intraskill.backends.embedded.trainer import Trainer
from intraskill.core.records import Sampling, Segment
from intraskill.objectives.advantages import grpo
from intraskill.settings.models import TrainSettings

TRL_VARIANTS = ("fp32", "bf16_autocast", "bf16_weights")


class OurStep:
    """Sample 128 episodes, compute advantages, make two updates, hand the weights back to the sampler."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._model = build_model(tiny_shape(), 0)
        self._engine = BatchEngine(self._model, (), dtype=torch.bfloat16)
        self._trainer = Trainer(self._model, TrainSettings(updates_per_step=2))
        self._rewards = np.random.default_rng(1)
        self.rollout_s: list[float] = []
        self.train_s: list[float] = []

    async def _episode(self, index: int, seed: int) -> Segment:
        shape, name = self._shape, str(index)
        sampling = Sampling(temperature=1.0, max_tokens=shape.sampled)
        ids = shape.prompts[index].tolist()
        mask, log_probs = [0] * len(ids), [0.0] * len(ids)
        group = index // shape.siblings
        for turn in range(shape.turns):
            answer = await self._engine.generate(
                tuple(ids), sampling=sampling, seed=seed + index, session=name, group=str(group)
            )
            observed = shape.observations[turn][index].tolist() if turn + 1 < shape.turns else []
            ids += [*answer.token_ids, *observed]
            mask += [1] * len(answer.token_ids) + [0] * len(observed)
            log_probs += [*answer.log_probs, *[0.0] * len(observed)]
        self._engine.close_session(name)
        return Segment(name, group, tuple(ids), tuple(mask), tuple(log_probs), shape.prompt, (0.0,) * len(ids))

    async def _episodes(self, seed: int) -> list[Segment]:
        for index in range(self._shape.episodes):
            self._engine.open_session(str(index))
        return await asyncio.gather(*(self._episode(index, seed) for index in range(self._shape.episodes)))

    def __call__(self) -> float:
        """One step; returns its seconds."""
        started = time.perf_counter()
        episodes = asyncio.run(self._episodes(len(self.train_s) * 10_000))
        sampled = time.perf_counter()
        groups = []
        for first in range(0, len(episodes), self._shape.siblings):
            members = episodes[first : first + self._shape.siblings]
            values = grpo(self._rewards.integers(0, 2, len(members)).astype(float).tolist())
            groups.append([told(segment, value) for segment, value in zip(members, values, strict=True)])
        self._trainer.step(groups)
        self._engine.load_weights(self._model, str(len(self.train_s)))
        ended = time.perf_counter()
        self.rollout_s.append(sampled - started)
        self.train_s.append(ended - sampled)
        return ended - started


def told(segment: Segment, value: float) -> Segment:
    return replace(segment, advantages=tuple(value * mask for mask in segment.loss_mask))


def run_trl(variant: str, updates: int, shape: Shape, ours: OurStep, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds of each of TRL's steps and of each of ours, taken in turns (the first of each is warm-up)."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from datasets import Dataset
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    words = {f"t{number}": number for number in range(VOCABULARY)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="t0")), pad_token="t0", eos_token="t1", unk_token="t0"
    )
    rewards = np.random.default_rng(1)

    def reward(completions: list[Any], **_: Any) -> list[float]:
        return rewards.integers(0, 2, len(completions)).astype(float).tolist()

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        """Multi-turn sampling through the trainer's own single-turn generation."""
        starts = [shape.prompts[int(prompt) * shape.siblings].tolist() for prompt in prompts]
        completions: list[list[int]] = [[] for _ in prompts]
        masks: list[list[int]] = [[] for _ in prompts]
        for turn in range(shape.turns):
            so_far = [start + completion for start, completion in zip(starts, completions, strict=True)]
            sampled, _ = trainer._generate_single_turn(so_far, None, {}, shape.siblings)
            for index, ids in enumerate(sampled):
                observed = shape.observations[turn][index].tolist() if turn + 1 < shape.turns else []
                completions[index] += [*ids, *observed]
                masks[index] += [1] * len(ids) + [0] * len(observed)
        return {"prompt_ids": starts, "completion_ids": completions, "logprobs": None, "env_mask": masks}

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.theirs: list[float] = []
            self.ours: list[float] = []
            self._started = 0.0

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % updates == 0:
                self._started = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % updates == 0:
                self.theirs.append(time.perf_counter() - self._started)
                self.ours.append(ours())

    dtype = torch.bfloat16 if variant == "bf16_weights" else torch.float32
    model = AutoModelForCausalLM.from_config(tiny_shape(), dtype=dtype)
    clock = Clock()
    with tempfile.TemporaryDirectory() as directory:
        config = GRPOConfig(
            directory,
            use_cpu=True,
            bf16=variant == "bf16_autocast",
            fp16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=shape.episodes // updates,
            steps_per_generation=updates,
            num_generations=shape.siblings,
            max_completion_length=shape.sampled,
            generation_kwargs={"min_new_tokens": shape.sampled},
            temperature=1.0,
            beta=0.0,
            epsilon=0.2,
            epsilon_high=0.28,
            loss_type="grpo",
            learning_rate=1.5e-4,
            max_steps=updates * (repeats + 1),
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        dataset = Dataset.from_list([{"prompt": str(group)} for group in range(shape.groups)])
        trainer = GRPOTrainer(
            model=model, reward_funcs=reward, args=config, train_dataset=dataset, processing_class=tokenizer,
            rollout_func=rollout, callbacks=[clock],
        )  # fmt: skip
        trainer.train()
    return clock.theirs[1:], clock.ours[1:]


def report(contestant: str, seconds: list[float], **extra: Any) -> None:
    line = {
        "contestant": contestant,
        "best_s": round(min(seconds), 3),
        "median_s": round(statistics.median(seconds), 3),
    }
    print(json.dumps({**line, **extra}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("groups", 16), ("siblings", 8), ("turns", 6), ("sampled", 6), ("observed", 21), ("prompt", 70),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--allocator", choices=("default", "retain"), default="default")
    parser.add_argument("--trl", action="append", choices=TRL_VARIANTS, help="TRL weight types to measure (all)")
    parser.add_argument("--trl-updates", type=int, default=2, help="optimizer updates of one TRL step")
    arguments = parser.parse_args()
    if arguments.allocator == "retain" and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **RETAIN})
    torch.set_num_threads(arguments.threads)
    shape = Shape(arguments)
    setting = {"threads": arguments.threads, "allocator": arguments.allocator}
    if importlib.util.find_spec("trl") is None:
        ours = OurStep(shape)
        seconds = [ours() for _ in range(arguments.repeats + 1)][1:]
        report("intraskill", seconds, rollout_s=min(ours.rollout_s), train_s=min(ours.train_s), **setting)
        print(json.dumps({"contestant": "trl", "skipped": "trl is not installed in this environment; see --help"}))
        return
    ratios = {}
    for variant in arguments.trl or TRL_VARIANTS:
        ours = OurStep(shape)
        theirs_s, ours_s = run_trl(variant, arguments.trl_updates, shape, ours, arguments.repeats)
        report(f"trl_{variant}", theirs_s, updates=arguments.trl_updates, **setting)
        report("intraskill", ours_s, rollout_s=min(ours.rollout_s), train_s=min(ours.train_s), **setting)
        pairs = [theirs / mine for theirs, mine in zip(theirs_s, ours_s, strict=True)]
        best = round(min(theirs_s) / min(ours_s), 2)
        ratios[f"trl_{variant}"] = {"best": best, "median": round(statistics.median(pairs), 2)}
    print(json.dumps({"ratios": ratios}))


if __name__ == "__main__":
    main()
