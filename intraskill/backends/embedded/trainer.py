"""Policy gradients on the embedded model: two optimizer updates a step, float32 master weights, bfloat16 arithmetic.

A step receives the admitted groups in order, cuts them into equal consecutive parts and makes one AdamW update from
each. The clip compares with the log-probs the sampler recorded, for both updates: the second one is slightly
off-policy, which is what the clip is for. Log-probs are recomputed at the sampling temperature; how far they lie from
the sampler's on the first update is rounding only, and is logged.

An update whose advantages are all 0 has nothing to learn from, and AdamW would still move along its momentum: it is
measured, counted in `train/skipped_updates`, and not made. One whose loss or gradients are not finite, or that leaves
weights behind which are not, raises `NotFinite`: such weights are never saved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from intraskill.backends.embedded.loss import entropy_of, policy_loss
from intraskill.backends.embedded.models import broken_weight, copy_model
from intraskill.backends.embedded.packing import Pack, micro_batches, pack, prompt_groups
from intraskill.core.errors import NotFinite
from intraskill.core.records import Segment
from intraskill.objectives.weights import token_weights
from intraskill.settings.models import TrainSettings

TOKEN_BUDGET = 2048  # tokens, padding included, of one forward and backward pass: bounds memory


class Trainer:
    """Trains `model` in place; `updates` counts optimizer updates.

    The KL reference, when used, is the model as given here: build the trainer from the starting checkpoint, then load
    a later state into it.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        settings: TrainSettings,
        *,
        temperature: float = 1.0,
        token_budget: int = TOKEN_BUDGET,
    ) -> None:
        self.model = model.train()
        self.updates = 0
        self._settings = settings
        self._temperature = temperature
        self._reference = copy_model(model, torch.float32) if settings.kl_coef > 0 else None
        self._token_budget = token_budget
        self._optimizer = _optimizer(model, settings)

    def step(self, groups: Sequence[Sequence[Segment]]) -> list[dict[str, float]]:
        """Train on the groups; one dict of `train/*` metrics per update, made or skipped.

        Fewer groups than `updates_per_step` make fewer updates. Raises `NotFinite`; the weights are lost then.
        """
        parts = _parts(groups, self._settings.updates_per_step)
        return [self._update(part) for part in parts if any(any(s.loss_mask) for group in part for s in group)]

    def state_dict(self) -> dict[str, Any]:
        """Optimizer moments and the update count; the weights are saved with the model."""
        return {"optimizer": self._optimizer.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state["optimizer"])
        self.updates = state["updates"]

    def log_probs(self, packed: Pack, model: PreTrainedModel | None = None) -> tuple[Tensor, Tensor]:
        """Log-probs of the sampled tokens at the sampling temperature `[M]`, and their distributions' entropy."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self._settings.dtype == "bfloat16"):
            output = (model or self.model)(
                input_ids=packed.input_ids[None],
                position_ids=packed.positions[None],
                use_cache=False,
                logits_to_keep=packed.layout.keep,
                layout=packed.layout,
            )
        distribution = torch.log_softmax(output.logits[0].float() / self._temperature, dim=-1)
        return distribution[packed.rows, packed.targets], entropy_of(distribution.detach())[packed.rows]

    def _update(self, groups: Sequence[Sequence[Segment]]) -> dict[str, float]:
        """One optimizer update from all sampled tokens of `groups`, or none when they teach nothing."""
        segments = [segment for group in groups for segment in group]
        weight_of, learns = token_weights(segments), any(any(segment.advantages) for segment in segments)
        sums: dict[str, float] = {}
        self._optimizer.zero_grad(set_to_none=True)
        everything = sorted((p for group in groups for p in prompt_groups(group)), key=lambda part: part.longest_tail)
        for batch in micro_batches(everything, self._token_budget):
            with torch.set_grad_enabled(learns):
                found = self._accumulate(pack(batch, weight_of))
            for name, value in found.items():
                sums[name] = sums.get(name, 0.0) + value
        if not math.isfinite(sums["loss"]):
            raise NotFinite(f"update {self.updates + 1}: the loss is {sums['loss']}")
        norm, lr = self._move() if learns else (0.0, 0.0)
        return _metrics(sums, norm, lr, self._reference is not None) | {"train/skipped_updates": float(not learns)}

    def _move(self) -> tuple[float, float]:
        """Clip the gradients and let the optimizer step; returns the gradients' norm and the learning rate."""
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._settings.max_grad_norm))
        if not math.isfinite(norm):
            raise NotFinite(f"update {self.updates + 1}: the norm of the gradients is {norm}")
        lr = self._settings.lr * min(1.0, (self.updates + 1) / max(1, self._settings.warmup_updates))
        for parameter_group in self._optimizer.param_groups:
            parameter_group["lr"] = lr
        self._optimizer.step()
        self.updates += 1
        if (name := broken_weight(self.model)) is not None:
            raise NotFinite(f"update {self.updates}: {name} holds numbers that are not finite")
        return norm, lr

    def _accumulate(self, packed: Pack) -> dict[str, float]:
        """Add one micro-batch's gradients, where they are wanted; returns sums over its tokens."""
        log_probs, entropy = self.log_probs(packed)
        reference = None
        if self._reference is not None:
            with torch.no_grad():
                reference = self.log_probs(packed, self._reference)[0]
        terms = policy_loss(
            log_probs,
            packed.sampled_log_probs,
            packed.advantages,
            packed.weights,
            clip_low=self._settings.clip_low,
            clip_high=self._settings.clip_high,
            reference_log_probs=reference,
            kl_coef=self._settings.kl_coef,
        )
        if terms.total.requires_grad:
            terms.total.backward()
        drift = packed.sampled_log_probs - log_probs.detach()
        return {
            "loss": terms.total.item(),
            "pg_loss": terms.policy.item(),
            "kl": terms.kl.item(),
            "clipped": terms.clipped.item(),
            "entropy": entropy.sum().item(),
            "drift": drift.sum().item(),
            "abs_drift": drift.abs().sum().item(),
            "tokens": len(packed.targets),
        }


def _optimizer(model: PreTrainedModel, settings: TrainSettings) -> torch.optim.AdamW:
    """AdamW; weight decay on matrices only."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": settings.weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=settings.lr,
        betas=settings.betas,
        fused=True,
    )


def _parts(groups: Sequence[Sequence[Segment]], count: int) -> list[Sequence[Sequence[Segment]]]:
    """Consecutive parts of (nearly) equal size, in order; none is empty."""
    count = min(count, len(groups))
    edges = [len(groups) * part // count for part in range(count + 1)] if count else []
    return [groups[start:stop] for start, stop in pairwise(edges)]


def _metrics(sums: dict[str, float], grad_norm: float, lr: float, with_kl: bool) -> dict[str, float]:
    tokens = sums["tokens"]
    metrics = {
        "train/loss": sums["loss"],
        "train/pg_loss": sums["pg_loss"],
        "train/grad_norm": grad_norm,
        "train/clip_fraction": sums["clipped"] / tokens,
        "train/entropy": sums["entropy"] / tokens,
        "train/ppo_kl": sums["drift"] / tokens,
        "train/train_rollout_logprob_abs_diff": sums["abs_drift"] / tokens,
        "train/lr": lr,
        "train/tokens": tokens,
    }
    return {**metrics, "train/reference_kl": sums["kl"]} if with_kl else metrics
