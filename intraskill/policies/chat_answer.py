"""A chat completion, as OpenAI-compatible servers answer it, read into a turn.

The server took the reply apart; what it says is taken as it is. What a model may fill freely (content, reasoning,
arguments) is never a reason to refuse the answer: arguments that are no JSON object move into the content, as written,
and are the policy's mistake. Only the shape around them is the server's, and is checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from intraskill.core.foreign_json import decode
from intraskill.core.records import UNREADABLE, FinishReason, ToolCall, Turn

_FINISH: dict[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",  # Gemini
    "model_length": "length",  # Mistral: the context window is full
    "abort": "abort",
    "error": "abort",  # OpenRouter: the server behind it failed while sampling
}


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


class ChatAnswer(msgspec.Struct):
    """The shape that is read below; what a model may fill freely (content, reasoning, arguments) is left open."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    usage: _Usage | None = None


def turn_from_choice(choice: Mapping[str, Any], answer: Mapping[str, Any], checkpoint_id: str) -> Turn:
    """The turn a chat-completion choice stands for; undecodable calls move into the content, as written."""
    message = choice["message"]
    calls, broken = _calls(message.get("tool_calls") or [])
    content = "\n".join(part for part in (_text(message.get("content")), *(text for _, text in broken)) if part)
    metadata = answer.get("metadata")
    served = metadata.get("weight_version") if isinstance(metadata, dict) else None
    return Turn(
        text=json.dumps(message, ensure_ascii=False),
        content=content,
        reasoning=str(message.get("reasoning_content") or message.get("reasoning") or ""),
        tool_calls=calls,
        finish_reason=_FINISH.get(str(choice.get("finish_reason")).lower(), "stop"),
        parse_error="the arguments of a tool call are not a JSON object" if broken else None,
        parse_code=broken[0][0] if broken else UNREADABLE,
        weight_version=str(served or checkpoint_id),
        usage=_usage(answer.get("usage") or {}),
    )


def _calls(listed: Sequence[Mapping[str, Any]]) -> tuple[tuple[ToolCall, ...], list[tuple[str, str]]]:
    """Decoded calls, and of those whose arguments are no JSON object what is wrong (a code) and their text."""
    calls, broken = [], []
    for call in listed:
        function = call.get("function") or {}
        name, arguments = str(function.get("name") or ""), function.get("arguments")
        fault = "invalid_arguments_object" if isinstance(arguments, str) else "invalid_arguments_type"
        try:
            decoded = decode(arguments) if isinstance(arguments, str) else arguments
        except ValueError:
            decoded, fault = None, "invalid_arguments_json"
        if isinstance(decoded, dict):
            calls.append(ToolCall(name, decoded, str(call.get("id") or "")))
        else:
            broken.append((fault, f"{name}({arguments})"))
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
