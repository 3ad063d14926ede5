"""A conversation with a language model that answers by calling tools, one at a time.

`call` asks for the next call. A reply that is no single well-formed call of an offered tool is **repaired**: the model
is told the exact error and asked again, at most twice in a row; then the dialogue is over (`Garbled`). Every reply
counts against the turn limit, repairs included, so endless chatter ends, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from intraskill.agent.episode import assistant_message
from intraskill.core.errors import IntraSkillError
from intraskill.core.protocol import Policy
from intraskill.core.records import Message, Sampling, Tool, ToolCall, Turn, TurnRequest
from intraskill.core.seeds import stable_seed

REPAIRS = 2
_SAMPLING = Sampling(temperature=0.6, max_tokens=4096)


class Garbled(IntraSkillError):
    """The model did not make a usable call although it was told twice what was wrong."""


class OutOfTurns(IntraSkillError):
    """The turn limit is reached."""


class Dialogue:
    """One conversation of at most `max_turns` replies."""

    def __init__(self, policy: Policy, name: str, system: str, user: str, max_turns: int) -> None:
        self._policy, self._name = policy, name
        self._messages: list[Message] = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        self._left = max_turns
        self._spoken = 0
        self._repaired = 0
        self._open: list[ToolCall] = []
        self._previous: Turn | None = None

    @property
    def last_turn(self) -> bool:
        return self._left <= 1

    async def call(self, tools: Sequence[Tool]) -> ToolCall:
        """The model's next call of one of `tools`. Raises `Garbled`, `OutOfTurns`, and what the policy raises."""
        while True:
            turn = await self._ask(tools)
            error = _fault(turn, tools)
            if error is None:
                return turn.tool_calls[0]
            self.reject(error)

    def answer(self, text: str) -> None:
        """Answer the open call: it was carried out."""
        self._repaired = 0
        self._reply(text)

    def reject(self, error: str) -> None:
        """Answer the open call or reply: it cannot be used. Raises `Garbled` when that was said twice before."""
        if self._repaired >= REPAIRS:
            raise Garbled(error)
        self._repaired += 1
        self._reply(f"Error: {error}. Reply again with exactly one valid tool call.")

    def remark(self, text: str) -> None:
        """Say something beside the answers."""
        self._messages.append({"role": "user", "content": text})

    async def _ask(self, tools: Sequence[Tool]) -> Turn:
        if self._left <= 0:
            raise OutOfTurns("the turn limit is reached")
        request = TurnRequest(
            messages=tuple(self._messages),
            tools=tuple(tools),
            sampling=_SAMPLING,
            seed=stable_seed("dialogue", self._name, self._spoken),
            session=self._name,
            group=self._name,
            previous=self._previous,
            prefix_stable=False,
        )
        turn = await self._policy.generate(request)
        calls = [
            call if call.call_id else replace(call, call_id=f"call_{self._spoken}_{i}")
            for i, call in enumerate(turn.tool_calls)
        ]
        turn = replace(turn, tool_calls=tuple(calls))
        self._left -= 1
        self._spoken += 1
        self._previous, self._open = turn, calls
        self._messages.append(assistant_message(turn))
        return turn

    def _reply(self, text: str) -> None:
        if self._open:
            self._messages += [{"role": "tool", "tool_call_id": call.call_id, "content": text} for call in self._open]
        else:
            self.remark(text)
        self._open = []


def _fault(turn: Turn, tools: Sequence[Tool]) -> str | None:
    """What is wrong with a reply, or None."""
    if turn.parse_error is not None:
        return turn.parse_error
    if not turn.tool_calls:
        return "the reply was cut at its length limit" if turn.finish_reason == "length" else "there is no tool call"
    if len(turn.tool_calls) > 1:
        return f"there are {len(turn.tool_calls)} tool calls"
    call = turn.tool_calls[0]
    offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    if call.name not in offered:
        return f"there is no tool {call.name!r} now; use {', '.join(offered)}"
    schema = offered[call.name]
    missing = [name for name in schema.get("required", ()) if name not in call.arguments]
    unknown = [name for name in call.arguments if name not in schema["properties"]]
    if missing or unknown:
        parts = [f"missing {', '.join(missing)}"] if missing else []
        parts += [f"unknown {', '.join(unknown)}"] if unknown else []
        return f"wrong arguments of {call.name}: {'; '.join(parts)}"
    return None


def text_argument(value: Any, name: str, *, required: bool = True) -> str:
    """A text given as an argument. Raises `ValueError` with what is wrong."""
    if value is None and not required:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text, not {type(value).__name__}")
    text = " ".join(value.split())
    if required and not text:
        raise ValueError(f"{name} is empty")
    return text
