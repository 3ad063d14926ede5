"""Supervised warm-up: imitate the actions of demonstrations.

Plain next-token cross-entropy over the tokens marked as learned; prompt, pages and slips are context. Early on, the
context is predicted too, with a small weight that falls to 0: pages repeat themselves, which teaches copying. Episodes
of similar length share a batch, so that little is padded; padding stands at the end, where causal attention never
looks.
Master weights and optimizer are float32, the forward runs in bfloat16. Matrices are updated by Muon, whose
orthogonalised steps find the copying circuits (which noun was asked for?) in a few hundred updates where AdamW stays
on a plateau; embeddings and norms by AdamW. The learning rates rise linearly and fall along a cosine. The figure to
watch is the *excess*: cross-entropy minus the demonstrator's own surprise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from intraskill.agent.demonstration import Demonstration

_POOL = 32  # batches sorted by length together
_PAD_TO = 8


@dataclass(frozen=True, slots=True)
class WarmupSettings:
    """How the warm-up trains; all of it goes into the checkpoint's manifest."""

    updates: int = 4000
    batch: int = 16
    matrix_lr: float = 0.02
    lr: float = 2e-3
    warmup_updates: int = 100
    final_share: float = 0.01
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    max_grad_norm: float = 1.0
    context_weight: float = 0.3  # of the tokens that are not learned from, at first
    context_share: float = 0.4  # of the updates, after which that weight has fallen to 0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Excess:
    """Cross-entropy of held-out demonstrations against the demonstrator's own (nats per learned token)."""

    cross_entropy: float
    floor: float

    @property
    def excess(self) -> float:
        return self.cross_entropy - self.floor


def train(
    model: PreTrainedModel,
    data: Sequence[Demonstration],
    settings: WarmupSettings,
    report: Callable[[int, float], None],
    done: int = 0,
) -> None:
    """Run all updates; `report(update, loss)` is called after each and may evaluate or save the model.

    `done` updates were made before: schedule and data go on behind them, the optimizers' moments start anew.
    """
    optimizers = _optimizers(model, settings)
    model.train()
    batches = islice(_batches(data, settings), done, None)
    for update, batch in zip(range(done + 1, settings.updates + 1), batches):
        for optimizer, peak in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = peak * schedule(update, settings)
        focus = context_weight(update, settings)
        loss, context = _losses(model, batch, with_context=focus > 0)
        (loss + focus * context).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        for optimizer, _ in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        report(update, loss.item())


@torch.no_grad()
def measure(model: PreTrainedModel, data: Sequence[Demonstration], batch: int = 64) -> Excess:
    """Cross-entropy and floor of `data`, per learned token."""
    was_training = model.training
    model.eval()
    ordered = sorted(data, key=lambda episode: len(episode.token_ids))
    total, tokens = 0.0, 0
    for start in range(0, len(ordered), batch):
        chosen = ordered[start : start + batch]
        count = sum(sum(episode.learned) for episode in chosen)
        total += count * _losses(model, chosen, with_context=False)[0].item()
        tokens += count
    model.train(was_training)
    return Excess(total / tokens, sum(episode.floor for episode in data) / tokens)


def schedule(update: int, settings: WarmupSettings) -> float:
    """Share of the peak learning rate: a linear rise, then a cosine down to `final_share`; updates count from 1."""
    if update <= settings.warmup_updates:
        return update / settings.warmup_updates
    progress = (update - settings.warmup_updates) / max(1, settings.updates - settings.warmup_updates)
    return settings.final_share + (1 - settings.final_share) * 0.5 * (1 + math.cos(math.pi * progress))


def context_weight(update: int, settings: WarmupSettings) -> float:
    """Weight of predicting the context too; 0 from the update on at which it has faded out."""
    last = settings.context_share * settings.updates
    return settings.context_weight * max(0.0, 1 - update / last) if last else 0.0


def _optimizers(model: PreTrainedModel, settings: WarmupSettings) -> list[tuple[torch.optim.Optimizer, float]]:
    """Each optimizer with its peak learning rate."""
    embedding = model.get_input_embeddings().weight  # tied to the output layer
    matrices = [weight for weight in model.parameters() if weight.ndim == 2 and weight is not embedding]
    others = [weight for weight in model.parameters() if weight.ndim < 2 or weight is embedding]
    muon = torch.optim.Muon(matrices, lr=settings.matrix_lr, weight_decay=settings.weight_decay)
    adamw = torch.optim.AdamW(others, lr=settings.lr, betas=settings.betas, weight_decay=0.0)
    return [(muon, settings.matrix_lr), (adamw, settings.lr)]


def _batches(data: Sequence[Demonstration], settings: WarmupSettings) -> Iterator[list[Demonstration]]:
    """Endless batches of similar length, in random order; every pass over the data is a new shuffle."""
    rng = random.Random(settings.seed)
    size = settings.batch
    while True:
        order = rng.sample(range(len(data)), len(data))
        for start in range(0, len(order) - size + 1, size * _POOL):
            pool = sorted(order[start : start + size * _POOL], key=lambda index: len(data[index].token_ids))
            batches = [pool[at : at + size] for at in range(0, len(pool) - size + 1, size)]
            rng.shuffle(batches)
            for batch in batches:
                yield [data[index] for index in batch]


def _losses(model: PreTrainedModel, batch: Sequence[Demonstration], *, with_context: bool) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy of the learned tokens, and of the others (0 without `with_context`)."""
    ids, learned, real = _padded(batch)
    where = real if with_context else learned
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[where[:, 1:]])
    surprise = torch.nn.functional.cross_entropy(logits.float(), ids[:, 1:][where[:, 1:]], reduction="none")
    if not with_context:
        return surprise.mean(), surprise.new_zeros(())
    action = learned[:, 1:][where[:, 1:]]
    return surprise[action].mean(), surprise[~action].mean()


def _padded(batch: Sequence[Demonstration]) -> tuple[Tensor, Tensor, Tensor]:
    """Token ids, learned flags and real-token flags, `[B, T]`."""
    length = 1 + -(-(max(len(episode.token_ids) for episode in batch) - 1) // _PAD_TO) * _PAD_TO
    ids = np.zeros((len(batch), length), dtype=np.int64)
    learned = np.zeros((len(batch), length), dtype=bool)
    real = np.zeros((len(batch), length), dtype=bool)
    for row, episode in enumerate(batch):
        size = len(episode.token_ids)
        ids[row, :size] = episode.token_ids
        learned[row, :size] = episode.learned
        real[row, :size] = True
    return torch.from_numpy(ids), torch.from_numpy(learned), torch.from_numpy(real)
