"""Everything that is special to one kind of task, behind one protocol.

A **task family** is a kind of task with its world: a shop to buy in, a user to talk to. The loop (episodes, groups,
gates, evolution, evaluations) is the same for all of them and knows none of their words. What it needs to know it asks
an opened family, a `TaskFamily`: which tasks there are, where to act, what the policy is told and offered, what its
replies mean, and how the parts of the reward are called.

A reply means something in one of three ways: it is a tool call, plain text said to somebody, or both. `decode` makes
it the one action that the family's environment understands, in the family's own writing; what it cannot read is a
`ProtocolError`, which costs a step and reaches no environment.

Each family has its own settings class, a `FamilySettings`; `families.registry` knows which family goes by which name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from pydantic import Field

from intraskill.core.errors import IntraSkillError, UserError
from intraskill.core.protocol import Environment
from intraskill.core.records import EpisodeJob, Message, Reset, Tool, ToolSchema, Turn
from intraskill.core.settings import Settings
from intraskill.families.analysis import Evolution
from intraskill.skills.bank import Chunk


class FamilySettings(Settings):
    """What the settings of every family have, and what is known of a family without opening it.

    Each family adds its own settings and says how its numbers are called. A reward and its parts lie between 0 and 1.
    """

    metric_prefix: ClassVar[str]  # of the rollout metrics, such as `rollout/guess/`
    reward_parts: ClassVar[tuple[str, ...]] = ()  # keys of a terminal's `detail` that evaluations report
    mean_parts: ClassVar[Mapping[str, str]] = {}  # name of a step metric -> the reward part whose mean it is

    family: str
    max_steps: int = Field(10, ge=1, le=200, description="action budget of one episode")

    @classmethod
    def action_kind(cls, action: str) -> str:
        """What kind of action this is, in a word of a closed vocabulary: all that a public table tells of it."""
        return "action"

    def semantic(self) -> dict[str, Any]:
        """The part that decides what an episode means."""
        return self.model_dump(mode="json")

    def offline(self) -> FamilySettings:
        """The same tasks without asking any service, for plans and analyses."""
        return self

    def at(self, url: str) -> FamilySettings:
        """The same tasks, acted in at the service `url`. Raises `UserError` where the family has no service."""
        raise UserError(f"environment.family: {self.family} runs in process only; leave the service's address out")

    def service_problems(self, sessions: int) -> Iterator[str]:
        """What is wrong with the service these settings name, one line each, when `sessions` are wanted at once."""
        yield from ()

    @classmethod
    def describe(cls, stored: Mapping[str, Any]) -> str:
        """A stored section of these settings in a few words, for people; it may be incomplete."""
        return str(stored.get("family", ""))


class ProtocolError(IntraSkillError):
    """A reply that the family cannot read. `code` is stable, `message` is for the model."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a reply does: the environment's action, and the tool calls that its answer belongs to (none: it spoke)."""

    action: str
    call_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskSplits:
    """Task ids by role, in `task_order`: `train` makes the stream, `val` feeds the gates, `test` selects nothing."""

    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]


class Prompt(Protocol):
    """What the policy is told, in one style. `sha256` covers everything it can say."""

    @property
    def sha256(self) -> str: ...

    def messages(self, reset: Reset, chunks: Sequence[Chunk]) -> tuple[Message, ...]:
        """The messages an episode starts with; without chunks there is no trace of a skills section."""

    def protocol_feedback(self, error: ProtocolError, observation: str, tools: Sequence[Tool]) -> str:
        """What answers a reply that could not be read, on an unchanged observation with these tools."""


class TaskFamily(Protocol):
    """An opened family: a world ready to act in, with everything special about its tasks.

    A family that derives from this class only writes what it has: the methods with a body may be left out.
    """

    settings: FamilySettings

    def identity(self) -> dict[str, Any]:
        """Versions and settings that decide what an episode means (part of every fingerprint)."""

    def splits(self) -> TaskSplits: ...

    def new_environment(self, job: EpisodeJob | None = None) -> Environment:
        """An environment for one episode; a simulated user draws from the job's seed."""

    def prompt(self, name: str) -> Prompt:
        """The prompt of a style, or that of a user's file. Raises `UserError` for neither, or one it cannot use."""

    def tools(self, state: Mapping[str, Any], schema: ToolSchema) -> tuple[Tool, ...]:
        """The tools offered in this state; none where the policy only talks."""

    def decode(self, turn: Turn, state: Mapping[str, Any], tools: Sequence[Tool]) -> Decoded:
        """What the reply does, with the tools it was offered. Raises `ProtocolError`.

        For a reply that was cut at the token limit without holding exactly one call, that ends the episode.
        """

    def evolution(self) -> Evolution | None:
        """What lets the bank evolve; None: no analyst reads this family's failures."""
        return None

    def serve(self, *, host: str, port: int, sessions: int, announce: Callable[[str], None]) -> None:
        """Serve this world over HTTP until interrupted; `announce` gets the URL. Raises `UserError` where it cannot."""
        raise UserError(f"environment.family: {self.settings.family} has no service; it runs in process")


def answers(call_ids: Sequence[str], content: str) -> tuple[Message, ...]:
    """An answer as the conversation holds it: one tool message a call, or a user message where there was no call."""
    if not call_ids:
        return ({"role": "user", "content": content},)
    return tuple({"role": "tool", "tool_call_id": call_id, "content": content} for call_id in call_ids)


def function_tool(name: str, description: str, required: Sequence[str], **properties: dict[str, Any]) -> Tool:
    """An OpenAI function tool."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
