"""A policy behind any OpenAI-compatible chat endpoint (vLLM, SGLang, a hosted API).

The server applies the chat template and takes the reply apart: it must be started with a tool-call parser and, for
reasoning models, a reasoning parser. What it returns is taken as it is. A reply without a call, with two, or with
arguments that do not decode is the policy's own doing and is never asked for again; only the transport is retried
(`retry.py`).

A conversation that has outgrown the context window is answered like a reply cut at length, after one request without
`max_tokens`: near the end of the window the window is the tighter limit, as it is for a token engine. A *first* prompt
that does not fit together with `max_tokens` will fit in no episode: a user error. The system message is always sent,
also when it is empty, and a server that fills it is refused (`system_text.py`).

Turns carry no token ids, so they cannot be trained on; this policy is for evaluation, teachers and analysts.

The API key is read from the environment variable that the settings name and is kept out of everything that can be
printed: identity, repr, logs, errors.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from intraskill.core.errors import PolicyUnavailable, UserError
from intraskill.core.records import Turn, TurnRequest
from intraskill.policies.chat_answer import ChatAnswer, turn_from_choice
from intraskill.policies.retry import DoesNotFit, Refused, Retry, is_loopback, post_json, without_credentials
from intraskill.policies.system_text import has_empty_system, refuse_foreign_text

_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens")
_OURS = frozenset({"model", "messages", "tools", "tool_choice", "stream", "n", "seed", *_SAMPLING})
_OUTPUT_LIMIT = re.compile(r"max_(?:completion_|new_|output_)?tokens", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the model answers. `base_url` ends before `/chat/completions`; `checkpoint_id` names the weights it serves
    when the model's name alone does not (it is not sent)."""

    base_url: str
    model: str
    api_key_env: str | None = None
    checkpoint_id: str | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 600.0
    retry: Retry = field(default_factory=Retry)


def check_endpoint(base_url: str, extra_body: Mapping[str, Any]) -> None:
    """Raise `UserError` for an address that is none, and for keys that have a setting of their own."""
    if urlsplit(base_url).scheme not in ("http", "https"):
        raise UserError(f"endpoint {base_url!r} is no http(s) URL; give one such as http://127.0.0.1:8000/v1")
    clash = sorted(_OURS & extra_body.keys())
    if clash:
        raise UserError(f"extra_body may not set {', '.join(clash)}; remove it there")


class OpenAIPolicy:
    """A `Policy` over one endpoint. Raises `UserError` for settings that cannot work."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._key = _read_key(endpoint.api_key_env)
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._checking: asyncio.Lock
        self._system_checked = False
        self._running: dict[str, asyncio.Task[Turn]] = {}
        check_endpoint(endpoint.base_url, endpoint.extra_body)

    async def generate(self, request: TurnRequest) -> Turn:
        task = asyncio.ensure_future(self._complete(request))
        self._running[request.session] = task
        try:
            return await task
        except asyncio.CancelledError:
            if self._running.get(request.session) is task:
                raise  # our caller was cancelled; the request went with it
            raise PolicyUnavailable("the session was closed while its reply was being sampled") from None
        finally:
            if self._running.get(request.session) is task:
                del self._running[request.session]

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        raise PolicyUnavailable("a chat endpoint cannot score token ids")

    def open_session(self, session: str) -> None:
        """Nothing to prepare: a chat endpoint keeps no sessions."""

    def close_session(self, session: str) -> None:
        task = self._running.pop(session, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def identity(self) -> dict[str, Any]:
        return {
            "endpoint": without_credentials(self.endpoint.base_url),
            "model": self.endpoint.model,
            "checkpoint_id": self.endpoint.checkpoint_id,
            "extra_body": dict(self.endpoint.extra_body),
        }

    def __repr__(self) -> str:
        return f"OpenAIPolicy({self.endpoint.model!r} at {without_credentials(self.endpoint.base_url)})"

    async def _complete(self, request: TurnRequest) -> Turn:
        body = self._body(request)
        try:
            await self._check_system_text(body)
            return await self._ask(body)
        except Refused as refused:
            about_length = isinstance(refused, DoesNotFit) or any(_OUTPUT_LIMIT.finditer(refused.message))
            if request.previous is None or not about_length:
                raise self._refusal(request, refused) from None
        try:  # the first prompt did fit: what room is left now is less than max_tokens, and bounds the reply by itself
            return await self._ask({key: value for key, value in body.items() if key != "max_tokens"})
        except Refused:
            return Turn(text="", content="", reasoning="", tool_calls=(), finish_reason="length")

    async def _check_system_text(self, body: dict[str, Any]) -> None:
        """Once, before the first reply to a conversation with an empty system message."""
        if self._system_checked or not has_empty_system(body):
            return
        self._connection()
        async with self._checking:
            if not self._system_checked:
                await refuse_foreign_text(body, self._ask)
                self._system_checked = True

    async def _ask(self, body: dict[str, Any]) -> Turn:
        url = f"{self.endpoint.base_url.rstrip('/')}/chat/completions"
        answer = await post_json(self._connection(), url, body, self.endpoint.retry, self._key)
        try:
            msgspec.convert(answer, ChatAnswer)
        except msgspec.ValidationError as error:
            raise PolicyUnavailable(f"{without_credentials(url)} gave no chat completion ({error})") from None
        return turn_from_choice(answer["choices"][0], answer, self.endpoint.checkpoint_id or "")

    def _refusal(self, request: TurnRequest, refused: Refused) -> Exception:
        """The error that a refusal is."""
        limit = request.sampling.max_tokens
        if isinstance(refused, DoesNotFit):
            return UserError(
                f"the context window of {self.endpoint.model!r} does not hold an episode's first prompt and {limit} "
                f"sampled tokens ({refused}); set a smaller policy.sampling.max_tokens, or serve the model with a "
                "longer context"
            )
        if refused.status in (401, 403):
            named = self.endpoint.api_key_env
            remedy = f"check the key in {named}" if named else "name the environment variable of its API key"
            return UserError(f"the model endpoint refuses access ({refused}); {remedy}")
        if refused.status == 404:
            return UserError(
                f"the model endpoint knows no {self.endpoint.model!r} ({refused}); check its URL and model name"
            )
        if any(_OUTPUT_LIMIT.finditer(refused.message)):
            return UserError(
                f"the model endpoint does not take max_tokens {limit} ({refused}); set another "
                "policy.sampling.max_tokens"
            )
        return PolicyUnavailable(str(refused))

    def _body(self, request: TurnRequest) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "messages": list(request.messages),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": request.seed % 2**31,  # some servers hold seeds in 32 bits
        }
        if sampling.top_k != -1:
            body["top_k"] = sampling.top_k
        if request.tools:
            body |= {"tools": list(request.tools), "tool_choice": "auto"}
        return body | dict(self.endpoint.extra_body)

    def _connection(self) -> httpx.AsyncClient:
        """The client of the running event loop (connections cannot move between loops)."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._loop, self._checking = loop, asyncio.Lock()
            self._client = httpx.AsyncClient(
                headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
                timeout=httpx.Timeout(self.endpoint.timeout_s, connect=min(10.0, self.endpoint.timeout_s), pool=None),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
                trust_env=not is_loopback(self.endpoint.base_url),
            )
        return self._client


def _read_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(f"the environment variable {variable} is empty or not set; put the endpoint's API key there")
    return key
