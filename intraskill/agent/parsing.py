"""Reading a model's reply: reasoning, visible text, tool calls.

The wire format is the one Qwen's coder and 3.5 models write (`qwen3_coder`): reasoning between `<think>` and
`</think>`, then calls of the form

    <tool_call>
    <function=click>
    <parameter=value>
    buy now
    </parameter>
    </function>
    </tool_call>

The parser is strict on purpose: a reply that is *almost* a call is a protocol error that the model gets told about,
not something to guess at. A value ends at the first `</parameter>` that is followed by another parameter or by
`</function>`, so a value may contain `</tool_call>` or any other tag. One newline after the opening and one before
the closing tag belong to the format, every further one to the value.

Whether a reply starts inside the reasoning is not visible in its text: some chat templates already write `<think>`
into the prompt. `starts_in_think` says so; without it, a lone `</think>` is ordinary visible text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from intraskill.core.records import ToolCall

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
CALL_OPEN = "<tool_call>"

_CALL_HEAD = re.compile(r"<tool_call>\s*<function=([^<>\n]+)>\s*")
_CALL_TAIL = re.compile(r"</function>\s*</tool_call>")
_PARAMETER = re.compile(r"<parameter=([^<>\n]+)>(.*?)</parameter>\s*(?=<parameter=|</function>)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A reply taken apart. With an `error`, `tool_calls` is empty and `content` keeps the visible text as written."""

    reasoning: str
    content: str
    tool_calls: tuple[ToolCall, ...]
    error: str | None = None


def parse_reply(text: str, *, starts_in_think: bool = False) -> ParsedReply:
    """Split `text` into reasoning, visible content and decoded calls; never raises."""
    reasoning, visible = _split_reasoning(text, starts_in_think)
    calls: list[ToolCall] = []
    spoken: list[str] = []
    position = 0
    while (start := visible.find(CALL_OPEN, position)) >= 0:
        spoken.append(visible[position:start])
        parsed = _parse_call(visible, start)
        if isinstance(parsed, str):
            return ParsedReply(reasoning, visible.strip(), (), parsed)
        call, position = parsed
        calls.append(call)
    spoken.append(visible[position:])
    content = "\n".join(part.strip() for part in spoken if part.strip())
    stray = next((tag for tag in ("<function=", "</tool_call>") if tag in content), None)
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


def _parse_call(text: str, start: int) -> tuple[ToolCall, int] | str:
    """The call that opens at `start` and where it ends, or what is wrong with it."""
    head = _CALL_HEAD.match(text, start)
    if head is None:
        return "<tool_call> is not followed by <function=NAME>"
    arguments: dict[str, str] = {}
    position = head.end()
    while (parameter := _PARAMETER.match(text, position)) is not None:
        name, value = parameter.group(1).strip(), parameter.group(2)
        if name in arguments:
            return f"parameter {name} is given twice"
        arguments[name] = value.removeprefix("\n").removesuffix("\n")
        position = parameter.end()
    tail = _CALL_TAIL.match(text, position)
    if tail is None:
        return _what_is_missing(text, position)
    return ToolCall(head.group(1).strip(), arguments), tail.end()


def _what_is_missing(text: str, position: int) -> str:
    rest = text[position:]
    if rest.startswith("</function>"):
        return "</tool_call> is missing"
    if rest.startswith("<parameter="):
        return "a parameter is not closed by </parameter> and then another parameter or </function>"
    return "</function> is missing"
