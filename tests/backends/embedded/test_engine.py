"""The asynchronous edge: when a batch runs, who is in it, and that sampled log-probs are the trainer's."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from intraskill.backends.embedded.engine import BatchEngine
from intraskill.backends.embedded.packing import pack, prompt_groups
from intraskill.backends.embedded.trainer import Trainer
from intraskill.core.records import Sampling, Segment
from intraskill.objectives.weights import token_weights
from intraskill.settings.models import TrainSettings

SAMPLING = Sampling(temperature=1.0, max_tokens=8)


def engine_of(model: PreTrainedModel, dtype: torch.dtype = torch.float32, patience_s: float = 60.0) -> BatchEngine:
    return BatchEngine(model, (1,), dtype=dtype, patience_s=patience_s)


async def episode(engine: BatchEngine, name: str, prompt: tuple[int, ...], turns: int, group: int = 0) -> Segment:
    """Ask `turns` times, appending a few observation tokens each time."""
    rng = np.random.default_rng(len(name) + turns)
    ids, mask, log_probs = list(prompt), [0] * len(prompt), [0.0] * len(prompt)
    for turn in range(turns):
        answer = await engine.generate(
            tuple(ids), sampling=SAMPLING, seed=crc32(name.encode()), session=name, group="g"
        )
        observed = [int(i) for i in rng.integers(2, 97, 4)] if turn + 1 < turns else []
        ids += [*answer.token_ids, *observed]
        mask += [1] * len(answer.token_ids) + [0] * len(observed)
        log_probs += [*answer.log_probs, *[0.0] * len(observed)]
    engine.close_session(name)
    told = tuple(map(float, mask))
    return Segment(name, group, tuple(ids), tuple(mask), tuple(log_probs), len(prompt), told)


async def episodes(engine: BatchEngine) -> list[Segment]:
    prompts = [(4, 5, 6, 7, 8, 9, 10), (11, 12, 13, 14)]
    names = [str(number) * 3 for number in range(8)]
    for name in names:
        engine.open_session(name)
    return await asyncio.gather(
        *(episode(engine, name, prompts[i % 2], 1 + i % 4, i % 2) for i, name in enumerate(names))
    )


async def test_batches_wait_for_every_open_session(qwen: PreTrainedModel) -> None:
    engine = engine_of(qwen)
    started = time.monotonic()
    await episodes(engine)
    assert time.monotonic() - started < 30  # never the patience of 60 s: the count was enough


async def test_two_runs_give_the_same_episodes(qwen: PreTrainedModel) -> None:
    assert await episodes(engine_of(qwen)) == await episodes(engine_of(qwen))


async def test_a_forgotten_session_delays_but_does_not_block(qwen: PreTrainedModel) -> None:
    engine = engine_of(qwen, patience_s=0.05)
    engine.open_session("never-asks")
    segment = await asyncio.wait_for(episode(engine, "asks", (4, 5, 6), 2), timeout=20)
    assert sum(segment.loss_mask) >= 2


async def test_closing_a_session_completes_the_batch(qwen: PreTrainedModel) -> None:
    engine = engine_of(qwen)
    engine.open_session("leaves")
    waiting = asyncio.create_task(episode(engine, "stays", (4, 5, 6), 1))
    await asyncio.sleep(0)
    engine.close_session("leaves")
    await asyncio.wait_for(waiting, timeout=20)


async def test_closing_aborts_the_pending_request(qwen: PreTrainedModel) -> None:
    engine = engine_of(qwen)
    engine.open_session("other")
    asked = asyncio.create_task(engine.generate((4, 5), sampling=SAMPLING, seed=0, session="one", group="g"))
    await asyncio.sleep(0.01)
    engine.close_session("one")
    assert (await asked).finish_reason == "abort"


async def test_a_cancelled_request_is_left_out(qwen: PreTrainedModel) -> None:
    engine = engine_of(qwen)
    engine.open_session("b")
    asked = asyncio.create_task(engine.generate((4, 5), sampling=SAMPLING, seed=0, session="a", group="g"))
    await asyncio.sleep(0.01)
    asked.cancel()
    answer = await engine.generate((4, 5), sampling=SAMPLING, seed=0, session="b", group="g")
    assert answer.cached_tokens == 0
    assert answer.token_ids


@pytest.mark.parametrize("fails", [False, True])
async def test_an_episode_cancelled_while_its_batch_is_sampled_is_left_alone(
    qwen: PreTrainedModel, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    engine = engine_of(qwen)
    errors: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    sample = engine._lanes.run

    def interrupted(*arguments: Any) -> Any:
        asked.cancel()
        if fails:
            raise ValueError("broken")
        return sample(*arguments)

    monkeypatch.setattr(engine._lanes, "run", interrupted)
    asked = asyncio.create_task(engine.generate((4, 5), sampling=SAMPLING, seed=0, session="a", group="g"))
    with pytest.raises(asyncio.CancelledError):
        await asked
    await asyncio.sleep(0.01)
    assert errors == []


async def test_every_waiting_episode_hears_of_an_error(qwen: PreTrainedModel) -> None:
    engine = engine_of(qwen)
    engine.open_session("a")
    engine.open_session("b")
    asks = [
        engine.generate(prompt, sampling=SAMPLING, seed=0, session=name, group="g")
        for name, prompt in (("a", ()), ("b", (4, 5)))
    ]
    results = await asyncio.gather(*asks, return_exceptions=True)
    assert all(isinstance(result, ValueError) for result in results)


async def test_weights_have_versions(qwen: PreTrainedModel) -> None:
    engine = engine_of(qwen)
    assert engine.identity()["weight_version"] == "0"
    engine.load_weights(qwen, "step-7")
    answer = await engine.generate((4, 5), sampling=SAMPLING, seed=0, session="a", group="g")
    assert answer.weight_version == engine.identity()["weight_version"] == "step-7"
    assert len(await engine.score((4, 5, 6))) == 2


@pytest.mark.parametrize(("dtype", "mean_limit"), [("float32", 1e-4), ("bfloat16", 5e-3)])
async def test_sampled_log_probs_are_the_trainers(model: PreTrainedModel, dtype: str, mean_limit: float) -> None:
    with torch.no_grad():  # a trained model's scale: logits of a few units
        for parameter in model.parameters():
            parameter.mul_(0.35)
    segments = await episodes(engine_of(model, getattr(torch, dtype)))
    trainer = Trainer(model, TrainSettings(dtype="float32" if dtype == "float32" else "bfloat16"))
    packed = pack(prompt_groups(segments), token_weights(segments))
    with torch.no_grad():
        log_probs, _ = trainer.log_probs(packed)
    difference = (log_probs - packed.sampled_log_probs).abs()
    assert len(difference) == sum(sum(s.loss_mask) for s in segments)
    assert difference.mean().item() <= mean_limit
    if dtype == "float32":
        assert difference.max().item() <= mean_limit
