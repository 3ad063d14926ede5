"""The objective: a clipped policy gradient over sampled tokens, optionally held near a reference policy.

For each sampled token, `ratio` compares its probability now with the one it was sampled at. The gain `ratio * A` is
trusted only inside [1 - low, 1 + high]; the upper bound is looser, so that unlikely good tokens can still grow. The
KL penalty uses the unbiased, always positive estimator exp(d) - d - 1 with d = log p_ref - log p (k3), of which one
token counts at most `KL_LIMIT`: what other trainers call `low_var_kl`.

Each token carries its share of the loss (mean over an episode's tokens, then mean over episodes), so partial sums
over micro-batches add up to the loss of the whole update.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

KL_LIMIT = 10.0


@dataclass(frozen=True, slots=True)
class LossTerms:
    """Sums over the tokens of one micro-batch; `total` carries the gradient."""

    total: Tensor
    policy: Tensor
    kl: Tensor
    clipped: Tensor  # tokens whose gradient the clip removed


def policy_loss(
    log_probs: Tensor,
    sampled_log_probs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    reference_log_probs: Tensor | None = None,
    kl_coef: float = 0.0,
) -> LossTerms:
    """Everything is `[M]`, one entry per sampled token, float32."""
    ratio = torch.exp(log_probs - sampled_log_probs)
    trusted = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    gain, bounded = ratio * advantages, trusted * advantages
    policy = -(torch.minimum(gain, bounded) * weights).sum()
    kl = torch.zeros(())
    if reference_log_probs is not None:
        difference = reference_log_probs - log_probs
        kl = ((torch.exp(difference) - difference - 1.0).clamp(max=KL_LIMIT) * weights).sum()
    return LossTerms(policy + kl_coef * kl, policy.detach(), kl.detach(), (bounded < gain).sum())


def entropy_of(log_distribution: Tensor) -> Tensor:
    """Entropy (nats) of each row of log-probabilities `[M, V]` -> `[M]`."""
    return -(log_distribution.exp() * log_distribution).sum(dim=-1)
