"""A policy that works on token ids: what was sampled is what is trained on.

`TokenEngine` is anything that samples continuations of token ids: the embedded torch engine, or a client of an
inference server. `TokenPolicy` adds the words: it renders the first prompt with the model's chat template, decodes
and parses each reply, and hands on the ids untouched.

From the second turn on, a *prefix-stable* conversation is never rendered again: the next prompt is the previous
prompt, the ids sampled for it, and the few ids that carry the new messages. So an episode is one growing sequence,
its cache stays valid, and no re-tokenisation can put tokens into the training data that were never sampled. With
changing tool schemas everything is rendered anew each turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from intraskill.agent.parsing import parse_reply
from intraskill.core.errors import NotFinite, PolicyUnavailable
from intraskill.core.records import FinishReason, Sampling, Turn, TurnRequest
from intraskill.policies.chat import ChatTemplate


@dataclass(frozen=True, slots=True)
class Generation:
    """One sampled continuation. `token_ids` ends with one of the stop tokens exactly when `finish_reason` is "stop".

    `log_probs` holds one entry per sampled token (nats, under the sampling distribution). A prompt that leaves no
    room in the context window is answered with no tokens and "length". `cached_tokens` of the prompt came from a cache.
    """

    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_reason: FinishReason
    weight_version: str = ""
    cached_tokens: int = 0


class TokenEngine(Protocol):
    """Samples continuations of token ids. Raises `PolicyUnavailable` when it cannot answer."""

    async def generate(
        self, prompt_ids: tuple[int, ...], *, sampling: Sampling, seed: int, session: str, group: str
    ) -> Generation:
        """Sample one continuation; the same seed and prompt give the same result whatever else runs."""

    async def score(self, ids: Sequence[int]) -> list[float]:
        """Log-probs (nats, temperature 1) of `ids[1:]` given what precedes each."""

    def open_session(self, session: str) -> None:
        """This session will ask for continuations."""

    def close_session(self, session: str) -> None:
        """This session is over: drop its cache, abort what runs for it."""

    def identity(self) -> dict[str, Any]:
        """Model and weights."""


class TokenPolicy:
    """A `Policy` made of a chat template and a token engine."""

    def __init__(self, chat: ChatTemplate, engine: TokenEngine) -> None:
        self.chat = chat
        self.engine = engine

    async def generate(self, request: TurnRequest) -> Turn:
        prompt_ids = next_prompt_ids(self.chat, request)
        generation = await self.engine.generate(
            prompt_ids, sampling=request.sampling, seed=request.seed, session=request.session, group=request.group
        )
        if len(generation.token_ids) != len(generation.log_probs):
            raise PolicyUnavailable(
                f"the engine returned {len(generation.token_ids)} tokens but {len(generation.log_probs)} log-probs"
            )
        if not all(map(math.isfinite, generation.log_probs)):
            raise NotFinite(f"the policy's log-probs at weights {generation.weight_version!r} are not finite")
        return turn_from(self.chat, prompt_ids, generation)

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        return await self.engine.score(token_ids)

    def open_session(self, session: str) -> None:
        self.engine.open_session(session)

    def close_session(self, session: str) -> None:
        self.engine.close_session(session)

    def identity(self) -> dict[str, Any]:
        return {**self.engine.identity(), **self.chat.identity()}


def next_prompt_ids(chat: ChatTemplate, request: TurnRequest) -> tuple[int, ...]:
    """The ids of the request's prompt: an extension of the previous turn's where that is exact, else all rendered."""
    previous = request.previous
    if previous is None or not previous.token_ids or not request.prefix_stable:
        return chat.initial_ids(request.messages, request.tools)
    ids = previous.prompt_ids + previous.token_ids
    if previous.token_ids[-1] != chat.end_of_turn_id:  # cut at the limit, or ended otherwise: close it, unsampled
        ids += (chat.end_of_turn_id,)
    return ids + chat.extension_ids(messages_since_reply(request.messages))


def messages_since_reply(messages: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The messages after the last assistant message."""
    last = max(index for index, message in enumerate(messages) if message["role"] == "assistant")
    return tuple(messages[last + 1 :])


def turn_from(chat: ChatTemplate, prompt_ids: tuple[int, ...], generation: Generation) -> Turn:
    """The turn a continuation stands for: decoded and parsed, its ids kept as sampled."""
    text = chat.decode(generation.token_ids)
    reply = parse_reply(text, chat.call_format, starts_in_think=chat.starts_in_think)
    return Turn(
        text=text,
        content=reply.content,
        reasoning=reply.reasoning,
        tool_calls=reply.tool_calls,
        finish_reason=generation.finish_reason,
        prompt_ids=prompt_ids,
        token_ids=generation.token_ids,
        log_probs=generation.log_probs,
        parse_error=reply.error,
        weight_version=generation.weight_version,
        usage={
            "prompt_tokens": len(prompt_ids),
            "completion_tokens": len(generation.token_ids),
            "cached_tokens": generation.cached_tokens,
        },
    )
