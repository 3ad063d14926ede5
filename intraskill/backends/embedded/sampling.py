"""Drawing tokens so that a sample depends on its own seed only.

Each request brings a seed. Its noise is a stream of uniform numbers from a counter-based generator keyed by that
seed and by the length of the prompt (so that the turns of an episode differ); the i-th number chooses the i-th token
by inverting the cumulative distribution. Batch order and batch composition therefore change a sample only through
floating-point rounding.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from intraskill.core.records import Sampling

WORD = (1 << 64) - 1


def uniforms(seed: int, prompt_length: int, count: int) -> np.ndarray:
    """`count` numbers in [0, 1), a pure function of the arguments (and a prefix of what a larger count gives)."""
    key = np.array([seed & WORD, prompt_length & WORD], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random(count)


def draw(logits: Tensor, noise: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Choose one token per row of `logits` `[n, vocabulary]` (float32) -> ids `[n]` and log-probs `[n]`.

    The log-prob is that of the sampling distribution; at temperature 0 it is the model's own (temperature 1).
    """
    if sampling.temperature == 0:
        log_probs = torch.log_softmax(logits, dim=-1)
        ids = logits.argmax(dim=-1)
        return ids, log_probs.gather(1, ids[:, None])[:, 0]
    log_probs = torch.log_softmax(_truncate(logits / sampling.temperature, sampling), dim=-1)
    cumulative = log_probs.exp().cumsum(dim=-1, dtype=torch.float64)
    target = noise[:, None] * cumulative[:, -1:]
    ids = torch.searchsorted(cumulative, target, right=True)[:, 0].clamp_(max=logits.shape[1] - 1)
    return ids, log_probs.gather(1, ids[:, None])[:, 0]


def _truncate(logits: Tensor, sampling: Sampling) -> Tensor:
    """Keep the `top_k` likeliest tokens, then the smallest set holding `top_p` of the mass (evaluation only)."""
    if 0 < sampling.top_k < logits.shape[1]:
        smallest = logits.topk(sampling.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, float("-inf"))
    if sampling.top_p < 1.0:
        ranked, order = logits.sort(dim=-1, descending=True, stable=True)
        mass = torch.softmax(ranked, dim=-1)
        outside = mass.cumsum(dim=-1) - mass >= sampling.top_p
        logits = logits.masked_fill(outside.scatter(1, order, outside), float("-inf"))
    return logits
