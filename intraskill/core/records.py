"""The data that flows through the loop, from one model turn up to a finished step.

A **turn** is one model reply. A **step** is one action budget unit: a turn that reached the environment, or a
protocol error that did not. An **episode** is one attempt at one task. A **group** is G sibling episodes under
byte-identical prompts: one task, one **assignment** of skill chunks, drawn once for all of them. Token ids and
log-probs are kept exactly as sampled; nothing here is ever re-tokenised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Message = dict[str, Any]  # one OpenAI chat message
Tool = dict[str, Any]  # one OpenAI function tool

FinishReason = Literal["stop", "length", "abort"]
Termination = Literal["purchase", "action_limit", "generation_length"]


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
    `parse_error` is None exactly when `tool_calls` holds everything the reply tried to call.
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
    """The public part of a fresh episode. `state` is the canonical observation, `observation` its rendering."""

    task_id: int
    instruction: str
    persona: dict[str, Any] | None
    observation: str
    state: dict[str, Any]

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Reset:
        """Read what the shop answers, which is what a trace keeps."""
        return cls(
            task_id=record["task_id"],
            instruction=record["task_instruction"],
            persona=record["user_persona"],
            observation=record["observation"],
            state=record["observation_state"],
        )


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the environment answered. `reward` is 0.0 until a purchase; `detail` carries the reward's parts."""

    observation: str
    state: dict[str, Any]
    done: bool
    reward: float
    detail: dict[str, Any]
    feedback: dict[str, Any]  # {"valid": bool, "code": reason code or "ok", "message": text}
    purchase: dict[str, Any] | None = None
    termination: Termination | None = None
    goal: dict[str, Any] | None = None  # terminal only, for audits of local traces; never shown to a policy

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> StepResult:
        """Read what the shop answers, which is what a trace keeps (the goal apart)."""
        return cls(
            observation=record["observation"],
            state=record["observation_state"],
            done=record["done"],
            reward=record["reward"],
            detail=record["reward_detail"],
            feedback=record["action_feedback"],
            purchase=record["purchase"],
            termination=record["termination_reason"],
            goal=record.get("goal"),
        )


@dataclass(frozen=True, slots=True)
class EpisodeJob:
    """One attempt at one task; all four fields together identify it."""

    task_id: int
    sample_id: int
    seed: int
    split: str

    @property
    def episode_id(self) -> str:
        return f"task-{self.task_id}__sample-{self.sample_id}"


@dataclass(frozen=True, slots=True)
class EpisodeStep:
    """One unit of the action budget: the turn and either what the environment said or the protocol error."""

    turn: Turn
    action: str | None  # canonical action, None when the turn never reached the environment
    result: StepResult | None
    protocol_error: str | None = None
    seconds: float = 0.0


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
    termination: Termination | None
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
    task_id: int
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
