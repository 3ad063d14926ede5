"""A policy behind any OpenAI-compatible chat endpoint (vLLM, SGLang, a hosted API).

The server applies the chat template and takes the reply apart: it must be started with a tool-call parser and, for
reasoning models, a reasoning parser. What it returns is taken as it is. A reply without a call, with two, or with
arguments that do not decode is the policy's own doing and is never asked for again; only the transport is retried
(`retry.py`). A conversation that no longer fits the model's context window is answered like a reply cut at length.

Turns carry no token ids, so they cannot be trained on; this policy is for evaluation, teachers and analysts.

The API key is read from the environment variable that the settings name and is kept out of everything that can be
printed: identity, repr, logs, errors.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import msgspec
import orjson

from intraskill.core.errors import PolicyUnavailable, UserError
from intraskill.core.records import FinishReason, Message, ToolCall, Turn, TurnRequest
from intraskill.policies.retry import Refused, Retry, is_loopback, post_json, without_credentials

_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens")
_OURS = frozenset({"model", "messages", "tools", "tool_choice", "stream", "n", "seed", *_SAMPLING})
_FINISH: dict[str, FinishReason] = {"length": "length", "max_tokens": "length", "abort": "abort"}
_TOO_LONG = re.compile(r"context[ _-]?(length|window)|maximum context|prompt is too long", re.IGNORECASE)


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
        url = f"{self.endpoint.base_url.rstrip('/')}/chat/completions"
        try:
            answer = await post_json(self._connection(), url, self._body(request), self.endpoint.retry, self._key)
        except Refused as refused:
            return self._refused(refused)
        try:
            msgspec.convert(answer, _Answer)
        except msgspec.ValidationError as error:
            raise PolicyUnavailable(f"{without_credentials(url)} gave no chat completion ({error})") from None
        return turn_from_choice(answer["choices"][0], answer, self.endpoint.checkpoint_id or "")

    def _refused(self, refused: Refused) -> Turn:
        if refused.status in (400, 413, 422) and _TOO_LONG.search(refused.message):
            return Turn(text="", content="", reasoning="", tool_calls=(), finish_reason="length")
        if refused.status in (401, 403):
            named = self.endpoint.api_key_env
            remedy = f"check the key in {named}" if named else "name the environment variable of its API key"
            raise UserError(f"the model endpoint refuses access ({refused}); {remedy}")
        if refused.status == 404:
            raise UserError(
                f"the model endpoint knows no {self.endpoint.model!r} ({refused}); check its URL and model name"
            )
        raise PolicyUnavailable(str(refused))

    def _body(self, request: TurnRequest) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "messages": [message for message in request.messages if not _empty_system(message)],
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
            self._loop = loop
            self._client = httpx.AsyncClient(
                headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
                timeout=httpx.Timeout(self.endpoint.timeout_s, connect=min(10.0, self.endpoint.timeout_s), pool=None),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
                trust_env=not is_loopback(self.endpoint.base_url),
            )
        return self._client


class _Function(msgspec.Struct):
    name: str | None = None


class _Call(msgspec.Struct):
    function: _Function | None = None


class _Message(msgspec.Struct):
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Answer(msgspec.Struct):
    """The shape that is read below; what a model may fill freely (content, reasoning, arguments) is left open."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    usage: _Usage | None = None


def turn_from_choice(choice: Mapping[str, Any], answer: Mapping[str, Any], checkpoint_id: str) -> Turn:
    """The turn a chat-completion choice stands for; undecodable calls move into the content, as written."""
    message = choice["message"]
    calls, broken = _calls(message.get("tool_calls") or [])
    content = "\n".join(part for part in (_text(message.get("content")), *broken) if part)
    metadata = answer.get("metadata")
    served = metadata.get("weight_version") if isinstance(metadata, dict) else None
    return Turn(
        text=json.dumps(message, ensure_ascii=False),
        content=content,
        reasoning=str(message.get("reasoning_content") or message.get("reasoning") or ""),
        tool_calls=calls,
        finish_reason=_FINISH.get(str(choice.get("finish_reason")), "stop"),
        parse_error="the arguments of a tool call are not a JSON object" if broken else None,
        weight_version=str(served or checkpoint_id),
        usage=_usage(answer.get("usage") or {}),
    )


def _calls(listed: Sequence[Mapping[str, Any]]) -> tuple[tuple[ToolCall, ...], list[str]]:
    """Decoded calls, and the text of those whose arguments are no JSON object."""
    calls, broken = [], []
    for call in listed:
        function = call.get("function") or {}
        name, arguments = str(function.get("name") or ""), function.get("arguments")
        try:
            decoded = orjson.loads(arguments) if isinstance(arguments, str) else arguments
        except ValueError:  # also for what no file can hold: NaN, half characters, endless nesting
            decoded = None
        if isinstance(decoded, dict):
            calls.append(ToolCall(name, decoded, str(call.get("id") or "")))
        else:
            broken.append(f"{name}({arguments})")
    return tuple(calls), broken


def _text(content: Any) -> str:
    """Visible text; content may be a list of typed parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return str(content or "")


def _usage(usage: Mapping[str, Any]) -> dict[str, int]:
    details = usage.get("prompt_tokens_details") or {}
    return {
        "prompt_tokens": int(usage.get("prompt_tokens") or 0),
        "completion_tokens": int(usage.get("completion_tokens") or 0),
        "cached_tokens": int(details.get("cached_tokens") or 0),
    }


def _empty_system(message: Message) -> bool:
    return bool(message["role"] == "system" and not message["content"])


def _read_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(f"the environment variable {variable} is empty or not set; put the endpoint's API key there")
    return key
