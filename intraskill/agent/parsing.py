"""Reading a model's reply: reasoning, visible text, tool calls.

Reasoning stands between `<think>` and `</think>`; what follows is visible: text, and calls in the model's own format
(`call_formats.py`). The parser is strict on purpose: a reply that is *almost* a call is a protocol error that the
model gets told about, not something to guess at.

Whether a reply starts inside the reasoning is not visible in its text: some chat templates already write `<think>`
into the prompt. `starts_in_think` says so; without it, a lone `</think>` is ordinary visible text.
"""

from __future__ import annotations

from dataclasses import dataclass

from intraskill.agent.call_formats import CALL_OPEN, CallFormat
from intraskill.core.records import ToolCall

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A reply taken apart. With an `error`, `tool_calls` is empty and `content` keeps the visible text as written."""

    reasoning: str
    content: str
    tool_calls: tuple[ToolCall, ...]
    error: str | None = None


def parse_reply(text: str, call_format: CallFormat, *, starts_in_think: bool = False) -> ParsedReply:
    """Split `text` into reasoning, visible content and decoded calls; never raises."""
    reasoning, visible = _split_reasoning(text, starts_in_think)
    calls: list[ToolCall] = []
    spoken: list[str] = []
    position = 0
    while (start := visible.find(CALL_OPEN, position)) >= 0:
        spoken.append(visible[position:start])
        parsed = call_format.read(visible, start)
        if isinstance(parsed, str):
            return ParsedReply(reasoning, visible.strip(), (), parsed)
        call, position = parsed
        calls.append(call)
    spoken.append(visible[position:])
    content = "\n".join(part.strip() for part in spoken if part.strip())
    stray = next((tag for tag in call_format.stray if tag in content), None)
    if stray is not None:
        return ParsedReply(reasoning, visible.strip(), (), f"{stray} outside of a tool call")
    return ParsedReply(reasoning, content, tuple(calls))


def _split_reasoning(text: str, starts_in_think: bool) -> tuple[str, str]:
    """(reasoning, rest). Reasoning that is never closed swallows the whole reply: a call in there is not a call."""
    opened = text.lstrip()
    if opened.startswith(THINK_OPEN):
        body = opened[len(THINK_OPEN) :]
    elif starts_in_think:
        body = text
    else:
        return "", text
    reasoning, _, rest = body.partition(THINK_CLOSE)
    return reasoning.strip(), rest
