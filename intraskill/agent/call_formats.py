"""The two ways in which models write a tool call, each read as strictly as it is written.

`qwen3_coder` (Qwen's coder and 3.5 models) spells a call out in tags, and every value is text as it stands:

    <tool_call>
    <function=open>
    <parameter=page>
    the third one
    </parameter>
    </function>
    </tool_call>

A value ends at the first `</parameter>` that is followed by another parameter or by `</function>`, so a value may
contain `</tool_call>` or any other tag. One newline after the opening and one before the closing tag belong to the
format, every further one to the value.

`hermes` (Hermes, Qwen2.5, Qwen3) writes one JSON object with exactly these two keys, and a value keeps its JSON type:

    <tool_call>
    {"name": "open", "arguments": {"page": "the third one"}}
    </tool_call>

Which of them a model writes is found out from its chat template (`policies/chat.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Protocol

from intraskill.core.foreign_json import decode_at
from intraskill.core.records import ToolCall

CALL_OPEN = "<tool_call>"
_CALL_CLOSE = "</tool_call>"


class CallFormat(Protocol):
    """One way of writing calls. A reply may hold `stray` only inside of a call."""

    name: str
    stray: tuple[str, ...]

    def read(self, text: str, start: int) -> tuple[ToolCall, int] | str:
        """The call that opens at `start` and where it ends, or what is wrong with it."""

    def write(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The call as a model would write it."""


class _Qwen3Coder:
    name = "qwen3_coder"
    stray: tuple[str, ...] = ("<function=", _CALL_CLOSE)

    _head = re.compile(r"<tool_call>\s*<function=([^<>\n]+)>\s*")
    _tail = re.compile(r"</function>\s*</tool_call>")
    _parameter = re.compile(r"<parameter=([^<>\n]+)>(.*?)</parameter>\s*(?=<parameter=|</function>)", re.DOTALL)

    def read(self, text: str, start: int) -> tuple[ToolCall, int] | str:
        head = self._head.match(text, start)
        if head is None:
            return "<tool_call> is not followed by <function=NAME>"
        arguments: dict[str, str] = {}
        position = head.end()
        while (parameter := self._parameter.match(text, position)) is not None:
            name, value = parameter.group(1).strip(), parameter.group(2)
            if name in arguments:
                return f"parameter {name} is given twice"
            arguments[name] = value.removeprefix("\n").removesuffix("\n")
            position = parameter.end()
        tail = self._tail.match(text, position)
        if tail is None:
            return _missing_tag(text[position:])
        return ToolCall(head.group(1).strip(), arguments), tail.end()

    def write(self, name: str, arguments: Mapping[str, Any]) -> str:
        parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
        return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


class _Hermes:
    name = "hermes"
    stray: tuple[str, ...] = (_CALL_CLOSE,)

    _head = re.compile(r"<tool_call>\s*")
    _tail = re.compile(r"\s*</tool_call>")

    def read(self, text: str, start: int) -> tuple[ToolCall, int] | str:
        head = self._head.match(text, start)
        assert head is not None, "a call opens here"
        try:
            call, end = decode_at(text, head.end())
        except ValueError as error:
            return f"<tool_call> is not followed by a JSON object ({error})"
        tail = self._tail.match(text, end)
        if tail is None:
            return "</tool_call> is missing after the JSON object"
        if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
            return 'a tool call is a JSON object with exactly the keys "name" and "arguments"'
        if not isinstance(call["name"], str) or not isinstance(call["arguments"], dict):
            return 'in a tool call "name" is a text and "arguments" is an object'
        return ToolCall(call["name"], call["arguments"]), tail.end()

    def write(self, name: str, arguments: Mapping[str, Any]) -> str:
        call = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)
        return f"<tool_call>\n{call}\n</tool_call>"


QWEN3_CODER: CallFormat = _Qwen3Coder()
HERMES: CallFormat = _Hermes()
CALL_FORMATS = (QWEN3_CODER, HERMES)


def _missing_tag(rest: str) -> str:
    if rest.startswith("</function>"):
        return "</tool_call> is missing"
    if rest.startswith("<parameter="):
        return "a parameter is not closed by </parameter> and then another parameter or </function>"
    return "</function> is missing"
