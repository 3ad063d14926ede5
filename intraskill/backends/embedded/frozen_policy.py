"""A frozen model directory as a policy, without anything a trainer needs."""

from __future__ import annotations

import torch

from intraskill.assets import model_directory
from intraskill.backends.embedded.engine import BatchEngine
from intraskill.backends.embedded.models import load_model, weights_hash
from intraskill.policies.chat import load_chat
from intraskill.policies.token import TokenPolicy


def load_policy(model: str, dtype: str, threads: int) -> TokenPolicy:
    """The policy of a model directory or `builtin:NAME`, sampled in `dtype`. `threads` 0: as many as torch likes."""
    if threads:
        torch.set_num_threads(threads)
    chat = load_chat(model_directory(model))
    weights = load_model(model)
    engine = BatchEngine(weights, chat.stop_ids, dtype=getattr(torch, dtype), version=weights_hash(weights))
    return TokenPolicy(chat, engine)
