"""The data that flows through the loop, from one model turn up to a finished step.

A **turn** is one model reply. A **step** is one action budget unit: a turn that reached the environment, or a
protocol error that did not. An **episode** is one attempt at one task. A **group** is G sibling episodes under
byte-identical prompts: one task, one **assignment** of skill chunks, drawn once for all of them. Token ids and
log-probs are kept exactly as sampled; nothing here is ever re-tokenised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Message = dict[str, Any]  # one OpenAI chat message
Tool = dict[str, Any]  # one OpenAI function tool

UNREADABLE = "invalid_tool_call"  # the kind of error of a reply that does not follow the wire format
FinishReason = Literal["stop", "length", "abort"]
Style = Literal["full", "compact"]  # of a prompt and its chunks; `compact` is for very small models
STYLES: tuple[Style, ...] = ("full", "compact")
PROMPT_FILES = (".jinja", ".jinja2", ".j2")  # endings of prompts that a user wrote
ToolSchema = Literal["static", "dynamic"]  # the same tools on every turn, or those of the state
Limit = Literal["action_limit", "generation_length"]  # endings by the agent loop; a family has others of its own
LIMITS: tuple[Limit, ...] = ("action_limit", "generation_length")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the policy is sampled. `temperature` 0 is greedy; `max_tokens` bounds one turn."""

    temperature: float = 0.6
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int = 4096


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One decoded function call. `arguments` maps names to strings as written by the model."""

    name: str
    arguments: dict[str, Any]
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One model reply.

    `prompt_ids`: the exact token ids the model saw, `token_ids`: the ids it sampled (the end-of-turn token
    included), `log_probs`: their log-probabilities (nats) under the sampling distribution, one per sampled token.
    A policy behind a text-only endpoint leaves the three empty: such turns cannot be trained on.
    `parse_error` is None exactly when `tool_calls` holds everything the reply tried to call; `parse_code` then names
    the kind of error.
    """

    text: str
    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    parse_error: str | None = None
    parse_code: str = UNREADABLE
    weight_version: str = ""
    usage: dict[str, int] = field(default_factory=dict)  # prompt_tokens, completion_tokens, cached_tokens


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """What a policy needs for one reply.

    `messages` is the whole conversation. `previous` is the turn before (None on the first): with it, a
    token-level policy extends the very ids it saw and sampled instead of re-rendering them. `session` names the
    episode (cache key), `group` names its siblings (routing key for the shared prompt).
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    sampling: Sampling
    seed: int
    session: str
    group: str
    previous: Turn | None = None
    prefix_stable: bool = True  # static tool schema: this prompt extends the previous one


@dataclass(frozen=True, slots=True)
class Reset:
    """The public part of a fresh episode. `state` is the canonical observation, `observation` its rendering.

    `extra` is what else the family shows at the start, under names of its own.
    """

    task_id: str
    instruction: str
    observation: str
    state: dict[str, Any]
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the environment answered. `reward` is 0.0 before the end; `detail` carries the reward's parts.

    `extra` is what else the family says of the outcome, under names of its own; `goal` is the answer to the task, given
    at the end only, for audits of local traces, and never shown to a policy.
    """

    observation: str
    state: dict[str, Any]
    done: bool
    reward: float
    detail: dict[str, Any]
    feedback: dict[str, Any]  # {"valid": bool, "reason": code, "message": text}, and what the family adds
    success: bool = False
    termination: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    goal: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class EpisodeJob:
    """One attempt at one task; all four fields together identify it."""

    task_id: str
    sample_id: int
    seed: int
    split: str

    @property
    def episode_id(self) -> str:
        return f"task-{self.task_id:0>6}__sample-{self.sample_id:03d}"

    def record(self) -> dict[str, Any]:
        """The job as a trace holds it."""
        task_id = stored_task_id(self.task_id)
        return {"task_id": task_id, "sample_id": self.sample_id, "seed": self.seed, "split": self.split}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> EpisodeJob:
        return cls(str(record["task_id"]), record["sample_id"], record["seed"], record["split"])


_PLAIN_NUMBER = re.compile(r"(0|[1-9][0-9]*)\Z")
_DIGITS = re.compile(r"([0-9]+)")


def stored_task_id(task_id: str) -> int | str:
    """The id as a trace holds it: a plain number is written as one."""
    return int(task_id) if _PLAIN_NUMBER.match(task_id) else task_id


def task_order(task_id: str) -> tuple[Any, ...]:
    """Sort key of task ids: digits in them count as numbers, so `9` comes before `10`, `room-2` before `room-10`."""
    parts = _DIGITS.split(task_id)  # text and digits in turn, text first
    return (*((text, int(digits)) for text, digits in zip(parts[::2], (*parts[1::2], "-1"))), task_id)


@dataclass(frozen=True, slots=True)
class EpisodeStep:
    """One unit of the action budget: the turn and either what the environment said or the protocol error.

    `tools` are those the turn was offered.
    """

    turn: Turn
    action: str | None  # canonical action, None when the turn never reached the environment
    result: StepResult | None
    protocol_error: str | None = None
    seconds: float = 0.0
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished attempt. `status` is "failed" only for technical failures; then `reward` means nothing."""

    job: EpisodeJob
    status: Literal["completed", "failed"]
    skill_ids: tuple[str, ...]
    reset: Reset | None
    messages: tuple[Message, ...]
    steps: tuple[EpisodeStep, ...]
    reward: float
    success: bool
    detail: dict[str, Any]
    termination: str | None
    error: dict[str, str] | None = None  # {"stage", "type", "message"}
    started_at: str = ""
    seconds: float = 0.0

    @property
    def scorable(self) -> bool:
        return self.status == "completed"


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which chunks one whole group sees; a pure function of (curriculum id, group index)."""

    group_index: int
    skill_free: bool
    skill_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """G sibling episodes of one task under one assignment."""

    index: int
    task_id: str
    assignment: Assignment
    episodes: tuple[Episode, ...]

    @property
    def scorable(self) -> bool:
        return all(episode.scorable for episode in self.episodes)

    @property
    def all_wrong(self) -> bool:
        return self.scorable and not any(episode.success for episode in self.episodes)


@dataclass(frozen=True, slots=True)
class Segment:
    """One contiguous token sequence the trainer learns from.

    `loss_mask[i]` is 1 exactly where `token_ids[i]` was sampled by the policy; `log_probs[i]` is then its
    sampled log-prob and 0.0 elsewhere. `prompt_length` counts the leading tokens before the first sampled one
    (siblings share them). Segments of one episode share `episode_id` and `advantage`.
    """

    episode_id: str
    group_index: int
    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    log_probs: tuple[float, ...]
    prompt_length: int
    advantage: float = 0.0
