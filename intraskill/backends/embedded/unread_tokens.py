"""Not computing what nobody reads.

Most tokens of a forward pass are there to be attended to: a prompt, an observation. Of their way through the last
layer only keys and values matter; what its feed-forward block makes of them would become logits that are never asked
for. In a four-layer model that block is a fifth of all arithmetic. So hooks on the last block let only the tokens
pass that the layout says are read (`layout.keep`); the others get zeros, which nothing looks at.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


def skip_unread(model: PreTrainedModel) -> PreTrainedModel:
    """Install the hooks where the last layer has a plain feed-forward block called `mlp`; returns the model."""
    layers = getattr(model.base_model, "layers", None)
    block = getattr(layers[-1], "mlp", None) if layers else None
    if isinstance(block, nn.Module) and type(block).__name__.endswith("MLP"):
        gate = _Gate()
        layers[-1].register_forward_pre_hook(gate.begin, with_kwargs=True)  # type: ignore[index]
        block.register_forward_pre_hook(gate.select)
        block.register_forward_hook(gate.restore)
    return model


class _Gate:
    """Remembers, for the layer that is running, which tokens are read."""

    def __init__(self) -> None:
        self._keep: Tensor | None = None

    def begin(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._keep = getattr(kwargs.get("layout"), "keep", None)

    def select(self, _: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if self._keep is None:
            return None
        self._tokens = args[0].shape[1]
        return (args[0].index_select(1, self._keep),)

    def restore(self, _: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        if self._keep is None:
            return None
        everyone = torch.zeros(1, self._tokens, output.shape[2], dtype=output.dtype)
        return everyone.index_copy(1, self._keep, output)
