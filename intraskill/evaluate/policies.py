"""The policy an evaluation's settings ask for: embedded weights, or an endpoint.

Embedded weights are sampled in batches, so their episodes run in waves; an endpoint answers each request by itself.
torch is imported only when the embedded policy is asked for.
"""

from __future__ import annotations

from intraskill.core.extras import needing
from intraskill.core.protocol import Policy
from intraskill.evaluate.settings import EvalPolicySettings
from intraskill.policies.openai import Endpoint, OpenAIPolicy
from intraskill.policies.retry import Retry
from intraskill.policies.token import TokenPolicy
from intraskill.settings.models import PolicySettings


def open_policy(settings: EvalPolicySettings) -> Policy:
    """The policy, ready to answer. Raises `UserError` when it cannot be had."""
    if settings.base_url is None:
        return open_embedded(settings)
    return OpenAIPolicy(
        Endpoint(
            base_url=settings.base_url,
            model=settings.model,
            api_key_env=settings.api_key_env,
            checkpoint_id=settings.checkpoint_id,
            extra_body=settings.extra_body,
            timeout_s=settings.timeout_s,
            retry=Retry(attempts=settings.attempts),
        )
    )


def open_embedded(settings: PolicySettings) -> TokenPolicy:
    """The embedded policy; its weight version is the hash of its weights."""
    with needing("an embedded policy", "or give policy.base_url"):
        from intraskill.backends.embedded.frozen_policy import load_policy
    return load_policy(settings.model, settings.sampler_dtype, settings.threads)


def embedded_weights(model: str) -> str:
    """The hash by which gates and traces name these weights."""
    with needing("an embedded policy", "or give policy.base_url"):
        from intraskill.backends.embedded.models import load_model, weights_hash
    return weights_hash(load_model(model))
