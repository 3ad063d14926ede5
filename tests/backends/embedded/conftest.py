"""Random tiny models of several architectures, and random episodes with known tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, MistralConfig, Phi3Config, PretrainedConfig, PreTrainedModel, Qwen3Config

from intraskill.backends.embedded.models import build_model
from intraskill.core.records import Segment

SHAPE = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": 1,
    "bos_token_id": None,
    "pad_token_id": None,
    "initializer_range": 0.2,
}


WINDOW = 6  # shorter than any prompt and its replies


def tiny_config(architecture: str) -> PretrainedConfig:
    if architecture == "qwen3":
        return Qwen3Config(**SHAPE, head_dim=8, tie_word_embeddings=True)
    if architecture == "qwen3-mixed":  # the first layer sees everything, the second a window
        window = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}
        return Qwen3Config(**SHAPE, **window, head_dim=8, tie_word_embeddings=True)
    if architecture == "mistral":
        return MistralConfig(**SHAPE, sliding_window=WINDOW, tie_word_embeddings=False)
    if architecture == "phi3":
        return Phi3Config(**{**SHAPE, "pad_token_id": 0}, sliding_window=WINDOW, tie_word_embeddings=False)
    return LlamaConfig(**SHAPE, tie_word_embeddings=False)


@pytest.fixture(params=["qwen3", "llama", "mistral", "qwen3-mixed"])
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return build_model(tiny_config(request.param), seed=3)


@pytest.fixture
def tiny() -> Callable[[str], PreTrainedModel]:
    """tiny(architecture) -> a random model of it."""
    return lambda architecture: build_model(tiny_config(architecture), seed=3)


@pytest.fixture
def qwen() -> PreTrainedModel:
    return build_model(tiny_config("qwen3"), seed=3)


@pytest.fixture
def make_group() -> Callable[..., list[Segment]]:
    """make_group(index, seed, siblings, prompt) -> one segment per sibling, random tokens, turns and advantages.

    All groups are of one task, as at the wrap of an epoch: their episode ids are the same.
    """

    def make(index: int, seed: int, siblings: int = 4, prompt: int = 9) -> list[Segment]:
        rng = np.random.default_rng(seed)
        shared = [int(i) for i in rng.integers(2, 97, prompt)]
        members = []
        for sibling in range(siblings):
            ids, mask = list(shared), [0] * prompt
            for turn in range(int(rng.integers(1, 4))):
                if turn:
                    observed = int(rng.integers(1, 6))
                    ids += [int(i) for i in rng.integers(2, 97, observed)]
                    mask += [0] * observed
                sampled = int(rng.integers(1, 5))
                ids += [int(i) for i in rng.integers(2, 97, sampled)]
                mask += [1] * sampled
            log_probs = tuple(float(-2 - rng.random()) if m else 0.0 for m in mask)
            name, advantage = f"task-7__sample-{sibling}", float(rng.normal())
            told = tuple(advantage if m else 0.0 for m in mask)
            members.append(Segment(name, index, tuple(ids), tuple(mask), log_probs, prompt, told))
        return members

    return make


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
