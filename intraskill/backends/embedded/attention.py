"""One attention function for everything this backend does, plugged into the model library's own forward.

A Hugging Face causal LM is called with all tokens of a batch **packed** into one row: `input_ids` is `[1, N]`, with
each token's position in its own sequence beside it. Embeddings, norms and linear layers then never see padding.
Only attention needs to know which token belongs to which sequence; it is told by a **plan**, an object that travels
through the forward as a keyword argument and answers one question per layer. Sampling with a KV cache
(`learn/cache.py`) and training with a prompt shared by siblings (`learn/packing.py`) are two such plans.

The library hands keyword arguments on to the attention function a model is configured with, and skips building
masks for functions it does not know, so nothing of the library is patched. Shapes: N packed tokens, H query heads,
K key/value heads, G = H / K, D head size.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

ATTENTION = "intraskill_packed"


class Plan(Protocol):
    """Who attends to whom in one forward pass, and whose logits are read (`keep`, packed indices; None: everyone's)."""

    keep: Tensor | None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query `[N, H, D]` (already scaled), key and value `[N, K, D]` -> mixed values `[N, H, D]`."""


def register_attention() -> str:
    """Make the function known to the model library; returns the name to load models with."""
    AttentionInterface.register(ATTENTION, packed_attention)
    return ATTENTION


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    plan: Plan | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The library's attention signature: heads before tokens, batch of one; without a plan, plain causal attention."""
    query, key = (query * scaling).to(value.dtype), key.to(value.dtype)  # under autocast only values are bfloat16
    if plan is None:
        return _causal(query, key, value), None
    layer: int = module.layer_idx  # type: ignore[assignment]
    mixed = plan.attend(layer, query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1))
    return mixed.unsqueeze(0), None


def _causal(query_BHTD: Tensor, key_BKTD: Tensor, value_BKTD: Tensor) -> Tensor:
    """Plain causal attention of whole, unpadded sequences -> `[B, T, H, D]`."""
    batch, heads, length, size = query_BHTD.shape
    query = query_BHTD.transpose(1, 2)
    blocked = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    return attend_padded(query, key_BKTD, value_BKTD, mask_bias(blocked[None], query.dtype)).view(
        batch, length, heads, size
    )


def mask_bias(blocked: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn `blocked` (True = may not look, `[B, T, S]`) into what is added to scores shaped `[B, K, G, T, S]`."""
    bias = torch.zeros(blocked.shape, dtype=dtype, device=blocked.device).masked_fill_(blocked, float("-inf"))
    return bias[:, None, None]


def fold_heads(query_BTHD: Tensor, kv_heads: int) -> Tensor:
    """Queries that share a key/value head become rows of one matrix: `[B, T, H, D]` -> `[B*K, G*T, D]`."""
    batch, length, heads, size = query_BTHD.shape
    grouped = query_BTHD.reshape(batch, length, kv_heads, heads // kv_heads, size)
    return grouped.permute(0, 2, 3, 1, 4).reshape(batch * kv_heads, -1, size)


def unfold_heads(mixed: Tensor, batch: int, kv_heads: int, length: int) -> Tensor:
    """Inverse of `fold_heads`: `[B*K, G*T, D]` -> `[B, T, H, D]`."""
    size = mixed.shape[-1]
    grouped = mixed.reshape(batch, kv_heads, -1, length, size)
    return grouped.permute(0, 3, 1, 2, 4).reshape(batch, length, -1, size)


def attend_padded(query_BTHD: Tensor, key_BKSD: Tensor, value_BKSD: Tensor, bias: Tensor) -> Tensor:
    """Masked attention as two batched matrix products; keys must be contiguous for speed -> `[B, T, H, D]`.

    Plain products beat the fused kernel here: heads that share keys are folded into one matrix, and its backward
    in bfloat16 is slow on CPUs.
    """
    batch, length = query_BTHD.shape[:2]
    kv_heads, span, size = key_BKSD.shape[1:]
    keys = key_BKSD.reshape(batch * kv_heads, span, size)
    values = value_BKSD.reshape(batch * kv_heads, span, size)
    scores = torch.bmm(fold_heads(query_BTHD, kv_heads), keys.transpose(1, 2))
    masked = scores.view(batch, kv_heads, -1, length, span)
    masked = masked + bias if scores.requires_grad else masked.add_(bias)
    mixed = torch.bmm(torch.softmax(masked, dim=-1).view(batch * kv_heads, -1, span), values)
    return unfold_heads(mixed, batch, kv_heads, length)
