"""The two tools of a shopper, and how a call becomes an environment action.

`search(query)` and `click(value)` are all there is. **dynamic** schemas follow the page: `search` is offered only
where the page has a search box and `click` lists the clickable values as an enum. **static** schemas never change;
what can be clicked stands in the observation alone. Static keeps each prompt a prefix of the next one, so an
episode is one training segment.

A reply that is not exactly one call of a tool that was offered is a `ProtocolError`: the environment never sees it. The
codes are those of `openai-function-tools-repair-v3`. Whether a *well-formed* action fits the page is the environment's
business: a click on a value that is not on the page goes there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from intraskill.core.errors import EnvironmentUnavailable
from intraskill.core.records import Tool, ToolCall, ToolSchema, Turn
from intraskill.families.base import Decoded, ProtocolError

PARAMETER_OF = {"search": "query", "click": "value"}
_DESCRIPTIONS = {
    "search": ("Search the shop.", "What to search for."),
    "click": ("Click one of the page's clickable values.", "The value, exactly as the page shows it."),
}


def build_tools(state: Mapping[str, Any], mode: ToolSchema) -> tuple[Tool, ...]:
    """The function tools offered on the page. Raises `EnvironmentUnavailable` if it allows nothing."""
    if mode == "static":
        return _STATIC
    tools = [_tool("search", {"minLength": 1})] if state.get("search_available") else []
    actions = list(state.get("actions") or ())
    if actions:
        tools.append(_tool("click", {"enum": actions}))
    if not tools:
        raise EnvironmentUnavailable("the page offers no search and nothing to click, and the episode is not over")
    return tuple(tools)


def decode(turn: Turn, tools: Sequence[Tool]) -> Decoded:
    """The reply's action. Raises `ProtocolError` unless it is exactly one valid call of one of the tools."""
    call = single_call(turn, [tool["function"]["name"] for tool in tools])
    return Decoded(to_action(call), (call.call_id,))


def single_call(turn: Turn, offered: Collection[str]) -> ToolCall:
    """The turn's one tool call. Raises `ProtocolError` for undecodable ones, other tools, none, several, or text."""
    if turn.parse_error is not None:
        raise ProtocolError(turn.parse_code, turn.parse_error)
    for call in turn.tool_calls:
        if call.name not in offered:
            raise ProtocolError("unavailable_tool", f"there is no tool {call.name!r} here; use {' or '.join(offered)}")
    if len(turn.tool_calls) != 1:
        raise ProtocolError("tool_call_count", f"the reply holds {len(turn.tool_calls)} tool calls; make exactly one")
    if turn.content.strip():
        raise ProtocolError("mixed_content", "there is visible text beside the tool call; write the call alone")
    return turn.tool_calls[0]


def to_action(call: ToolCall) -> str:
    """`search[...]` or `click[...]`. Raises `ProtocolError` on wrong arguments."""
    parameter = PARAMETER_OF[call.name]
    if set(call.arguments) != {parameter}:
        given = ", ".join(sorted(call.arguments)) or "none"
        raise ProtocolError(
            "invalid_tool_arguments", f"{call.name} takes exactly one argument, {parameter}; given: {given}"
        )
    value = call.arguments[parameter]
    if not isinstance(value, str) or not value.strip():
        raise ProtocolError("invalid_tool_arguments", f"{parameter} must be a text that is not empty")
    return f"{call.name}[{value.strip()}]"


def _tool(name: str, constraint: dict[str, Any] | None = None) -> Tool:
    summary, about = _DESCRIPTIONS[name]
    parameter = PARAMETER_OF[name]
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": summary,
            "parameters": {
                "type": "object",
                "properties": {parameter: {"type": "string", **(constraint or {}), "description": about}},
                "required": [parameter],
                "additionalProperties": False,
            },
        },
    }


_STATIC: tuple[Tool, ...] = (_tool("search", {"minLength": 1}), _tool("click"))
