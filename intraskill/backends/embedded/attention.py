"""One attention function for everything this backend does, plugged into the model library's own forward.

A Hugging Face causal LM is called with all tokens of a batch **packed** into one row: `input_ids` is `[1, N]`, with
each token's position in its own sequence beside it. Embeddings, norms and linear layers then never see padding.
Only attention needs to know which token belongs to which sequence; it is told by a **layout**, an object that travels
through the forward as a keyword argument and answers one question per layer. Sampling with a KV cache
(`cache.py`) and training with a prompt shared by siblings (`packing.py`) are two such layouts.

The library hands keyword arguments on to the attention function a model is configured with, and skips building
masks for functions it does not know, so nothing of the library is patched. In return everything a mask would have said
is asked of the layout: who came before whom, and, where a layer has a **sliding window**, who is still in sight. What
else a layer may ask of its attention (capped scores, sinks, looking ahead) is refused by name, never left out.

Shapes: N packed tokens, H query heads, K key/value heads, G = H / K, D head size.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

ATTENTION = "intraskill_packed"
_LEFT_OUT = ("softcap", "s_aux", "sinks", "position_bias", "indices", "block_indices")  # what else layers may ask for


class Layout(Protocol):
    """Who attends to whom in one forward pass, and whose logits are read (`keep`, packed indices; None: everyone's)."""

    keep: Tensor | None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None) -> Tensor:
        """query `[N, H, D]` (already scaled), key and value `[N, K, D]` -> mixed values `[N, H, D]`.

        A token sees itself and what precedes it; with a `window`, the last `window` of these only.
        """


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
    layout: Layout | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The library's signature: heads before tokens, batch of one. Without a layout: plain causal attention."""
    _refuse_what_is_left_out(module, attention_mask, others)
    query, key = (query * scaling).to(value.dtype), key.to(value.dtype)  # under autocast only values are bfloat16
    if layout is None:
        return _causal(query, key, value, sliding_window), None
    layer: int = module.layer_idx  # type: ignore[assignment]
    query, key, value = (part[0].transpose(0, 1) for part in (query, key, value))
    return layout.attend(layer, query, key, value, sliding_window).unsqueeze(0), None


def _refuse_what_is_left_out(module: nn.Module, attention_mask: Tensor | None, others: dict[str, Any]) -> None:
    """Raise `ValueError` naming what this layer wants of its attention and would not get."""
    asked = [name for name in _LEFT_OUT if others.get(name) is not None]
    asked += ["a mask of its own"] if attention_mask is not None else []
    asked += ["a view of what follows"] if not getattr(module, "is_causal", True) else []
    if asked:
        raise ValueError(f"its layers ask for {', '.join(asked)}")


def _causal(query_BHTD: Tensor, key_BKTD: Tensor, value_BKTD: Tensor, window: int | None) -> Tensor:
    """Plain causal attention of whole, unpadded sequences -> `[B, T, H, D]`."""
    position = torch.arange(query_BHTD.shape[2], device=query_BHTD.device)
    bias = mask_bias(blocked(position, position, window)[None], query_BHTD.dtype)
    return attend_padded(query_BHTD.transpose(1, 2), key_BKTD, value_BKTD, bias)


def blocked(query: Tensor, key: Tensor, window: int | None) -> Tensor:
    """Which keys a query may not look at, from their positions `[..., T]` and `[..., S]` -> `[..., T, S]`."""
    distance = query[..., :, None] - key[..., None, :]
    return distance < 0 if window is None else (distance < 0) | (distance >= window)


def mask_bias(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn `hidden` (True = may not look, `[B, T, S]`) into what is added to scores shaped `[B, K, G, T, S]`."""
    bias = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))
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
