"""Random tiny models of two architectures, and random episodes with known tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, PretrainedConfig, PreTrainedModel, Qwen3Config

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


def tiny_config(architecture: str) -> PretrainedConfig:
    if architecture == "qwen3":
        return Qwen3Config(**SHAPE, head_dim=8, tie_word_embeddings=True)
    return LlamaConfig(**SHAPE, tie_word_embeddings=False)


@pytest.fixture(params=["qwen3", "llama"])
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return build_model(tiny_config(request.param), seed=3)


@pytest.fixture
def qwen() -> PreTrainedModel:
    return build_model(tiny_config("qwen3"), seed=3)


@pytest.fixture
def make_group() -> Callable[..., list[Segment]]:
    """make_group(index, seed, siblings, prompt) -> one segment per sibling, random tokens, turns and advantages."""

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
            members.append(
                Segment(f"g{index}s{sibling}", index, tuple(ids), tuple(mask), log_probs, prompt, float(rng.normal()))
            )
        return members

    return make


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
