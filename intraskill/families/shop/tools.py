"""The two tools of a shopper, and how a call becomes an environment action.

`search(query)` and `click(value)` are all there is. **dynamic** schemas follow the page: `search` is offered only
where the page has a search box and `click` lists the clickable values as an enum. **static** schemas never change;
what can be clicked stands in the observation alone. Static keeps each prompt a prefix of the next one, so an
episode is one training segment.

A call that is no call of these tools is a `ProtocolError`: the environment never sees it. Whether a *well-formed*
action fits the page is the environment's business in both modes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from intraskill.core.records import Tool, ToolCall, ToolSchema, Turn
from intraskill.families.base import Decoded, ProtocolError

PARAMETER_OF = {"search": "query", "click": "value"}
_DESCRIPTIONS = {
    "search": ("Search the shop.", "What to search for."),
    "click": ("Click one of the page's clickable values.", "The value, exactly as the page shows it."),
}


def build_tools(state: Mapping[str, Any], mode: ToolSchema) -> tuple[Tool, ...]:
    """The function tools offered on the page `state` describes."""
    if mode == "static":
        return _STATIC
    tools = [_tool("search")] if state.get("search_available") else []
    actions = list(state.get("actions") or ())
    if actions:
        tools.append(_tool("click", {"enum": actions}))
    return tuple(tools)


def decode(turn: Turn, state: Mapping[str, Any]) -> Decoded:
    """The reply's action. Raises `ProtocolError` unless it is exactly one valid call."""
    call = single_call(turn)
    return Decoded(to_action(call, state), (call.call_id,))


def single_call(turn: Turn) -> ToolCall:
    """The turn's one tool call. Raises `ProtocolError` for none, several, undecodable ones, or text beside it."""
    if turn.parse_error is not None:
        raise ProtocolError("malformed_tool_call", turn.parse_error)
    if not turn.tool_calls:
        raise ProtocolError("no_tool_call", "the reply holds no tool call; make exactly one")
    if len(turn.tool_calls) > 1:
        raise ProtocolError(
            "multiple_tool_calls", f"the reply holds {len(turn.tool_calls)} tool calls; make exactly one"
        )
    if turn.content.strip():
        raise ProtocolError("mixed_content", "there is visible text beside the tool call; write the call alone")
    return turn.tool_calls[0]


def to_action(call: ToolCall, state: Mapping[str, Any]) -> str:
    """`search[...]` or `click[...]`. Raises `ProtocolError` on an unknown tool or wrong arguments.

    `state` is part of the seam for environments whose tools differ by page; here both tools exist everywhere.
    """
    parameter = PARAMETER_OF.get(call.name)
    if parameter is None:
        raise ProtocolError("unknown_tool", f"there is no tool {call.name!r}; use search or click")
    if set(call.arguments) != {parameter}:
        given = ", ".join(sorted(call.arguments)) or "none"
        raise ProtocolError("invalid_arguments", f"{call.name} takes exactly one argument, {parameter}; given: {given}")
    value = call.arguments[parameter]
    if not isinstance(value, str):
        raise ProtocolError("invalid_arguments", f"{parameter} must be a string, not {type(value).__name__}")
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
                "properties": {parameter: {"type": "string", "description": about, **(constraint or {})}},
                "required": [parameter],
                "additionalProperties": False,
            },
        },
    }


_STATIC: tuple[Tool, ...] = (_tool("search"), _tool("click"))
