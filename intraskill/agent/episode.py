"""One episode: the agent loop that training, the gate, retries and evaluations all run.

A turn asks the policy for one reply, and the task family reads it: a reply it understands (a tool call, something
said to a user) becomes an environment action; anything else is a protocol error: no action, one step of the budget
spent, and feedback in the same state. Nothing is ever resampled: what the policy said is what it is scored on. Three
things end an episode:

- the environment says so (the task is done, or its own action limit is reached);
- the budget is used up by protocol errors, which the environment does not count: `action_limit`;
- a reply is cut at the token limit before it can be read: `generation_length`.

The last two are policy failures: scored zero, completed, trained on. Only a `TechnicalFailure`, or not being done
when `deadline_s` is over, makes a failed episode. Whatever happens, cancellation included, the policy session is
closed and the environment's slot given back.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from intraskill.core.errors import PolicyUnavailable, TechnicalFailure
from intraskill.core.protocol import Environment, Policy
from intraskill.core.records import (
    UNREADABLE,
    Episode,
    EpisodeJob,
    EpisodeStep,
    Limit,
    Message,
    Reset,
    Sampling,
    StepResult,
    Tool,
    ToolSchema,
    Turn,
    TurnRequest,
)
from intraskill.families.base import Prompt, ProtocolError, TaskFamily, answers
from intraskill.skills.bank import Chunk

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    """Limits and sampling of one episode; `max_steps` counts turns, protocol errors included.

    `deadline_s` ends an episode that hangs: a technical failure, since waiting says nothing about the policy.
    """

    max_steps: int = 30
    sampling: Sampling = field(default_factory=Sampling)
    tool_schema: ToolSchema = "static"
    deadline_s: float | None = None


async def run_episode(
    job: EpisodeJob,
    family: TaskFamily,
    env: Environment,
    policy: Policy,
    prompt: Prompt,
    chunks: Sequence[Chunk],
    settings: EpisodeSettings,
    group: str,
) -> Episode:
    """Attempt `job` once in `env`, an environment of the family; `group` names the siblings that share its prompt.

    Raises `UserError` (unknown task) and bugs; a technical failure is a failed episode.
    """
    attempt = _Attempt(job, family, env, policy, prompt, chunks, settings, group)
    started_at, clock = datetime.now(timezone.utc).isoformat(timespec="milliseconds"), time.perf_counter()
    error: dict[str, str] | None = None
    try:
        await asyncio.wait_for(attempt.run(), settings.deadline_s)
    except TechnicalFailure as failure:
        error = {"stage": failure.stage, "type": type(failure).__name__, "message": failure.message}
    except asyncio.TimeoutError:
        message = f"not finished after {settings.deadline_s:g} s and {len(attempt.steps)} steps"
        error = {"stage": "deadline", "type": "DeadlineExceeded", "message": message}
    finally:
        await attempt.close()
    return attempt.episode(error, started_at, time.perf_counter() - clock)


class _Attempt:
    """The growing state of one episode."""

    def __init__(
        self,
        job: EpisodeJob,
        family: TaskFamily,
        env: Environment,
        policy: Policy,
        prompt: Prompt,
        chunks: Sequence[Chunk],
        settings: EpisodeSettings,
        group: str,
    ) -> None:
        self.job, self.family, self.env, self.policy = job, family, env, policy
        self.prompt, self.settings = prompt, settings
        self.chunks = [chunk for chunk in chunks if chunk.applies_to(job.task_id)]
        self.group, self.session = group, f"{group}/{job.episode_id}"
        self.session_open = False
        self.reset: Reset | None = None
        self.messages: list[Message] = []
        self.steps: list[EpisodeStep] = []
        self.terminal: StepResult | None = None

    async def run(self) -> None:
        self.reset = await self.env.reset(self.job.task_id)
        self.messages = list(self.prompt.messages(self.reset, self.chunks))
        self.policy.open_session(self.session)
        self.session_open = True
        state, observation = self.reset.state, self.reset.observation
        while self.terminal is None:
            result = await self._step(state, observation)
            if result is not None:
                state, observation = result.state, result.observation
            if self.terminal is None and len(self.steps) >= self.settings.max_steps:
                await self._terminate("action_limit")

    async def _step(self, state: dict[str, Any], observation: str) -> StepResult | None:
        """One turn and what it led to; None when the environment was not asked."""
        clock = time.perf_counter()
        tools = self.family.tools(state, self.settings.tool_schema)
        turn = await self._ask(tools)
        if turn.content or turn.tool_calls or self.settings.tool_schema == "static":
            self.messages.append(assistant_message(turn))  # an empty reply is kept where the next prompt extends it
        try:
            decoded = self.family.decode(turn, state, tools)
        except ProtocolError as error:
            self.steps.append(EpisodeStep(turn, None, None, str(error), time.perf_counter() - clock, tools))
            if cut_short(turn):
                await self._terminate("generation_length")
            else:
                said = self.prompt.protocol_feedback(error, observation, tools)
                self.messages += answers([call.call_id for call in turn.tool_calls], said)
            return None
        result = await self.env.step(decoded.action)
        self.steps.append(EpisodeStep(turn, decoded.action, result, None, time.perf_counter() - clock, tools))
        if result.done:
            self.terminal = result
        else:
            self.messages += answers(decoded.call_ids, result.observation)
        return result

    async def _ask(self, tools: tuple[Tool, ...]) -> Turn:
        index = len(self.steps)
        turn = await self.policy.generate(
            TurnRequest(
                messages=tuple(self.messages),
                tools=tools,
                sampling=self.settings.sampling,
                seed=self.job.seed + index,
                session=self.session,
                group=self.group,
                previous=self.steps[-1].turn if self.steps else None,
                prefix_stable=self.settings.tool_schema == "static",
            )
        )
        if turn.finish_reason == "abort":
            raise PolicyUnavailable(f"turn {index} was aborted by the policy's backend")
        calls = tuple(
            call if call.call_id else replace(call, call_id=f"call_{index}_{position}")
            for position, call in enumerate(turn.tool_calls)
        )
        return replace(turn, tool_calls=calls)

    async def _terminate(self, reason: Limit) -> None:
        """Let the environment return its zero-reward terminal; it is kept on the step that caused it."""
        self.terminal = end = await self.env.terminate(reason)
        last = self.steps[-1]
        if last.result is not None:  # the action was answered before the budget ran out: keep that answer
            end = replace(
                end, observation=last.result.observation, state=last.result.state, feedback=last.result.feedback
            )
        self.steps[-1] = replace(last, result=end)

    async def close(self) -> None:
        """Close the session and give the slot back, even when cancelled again meanwhile."""
        if self.session_open:
            self.policy.close_session(self.session)
        try:
            await asyncio.shield(self.env.close())
        except TechnicalFailure as failure:  # the service reclaims an idle lease by itself
            log.warning("%s: slot not given back: %s", self.session, failure)

    def episode(self, error: dict[str, str] | None, started_at: str, seconds: float) -> Episode:
        end = self.terminal if error is None else None
        return Episode(
            job=self.job,
            status="completed" if error is None else "failed",
            skill_ids=tuple(chunk.skill_id for chunk in self.chunks),
            reset=self.reset,
            messages=tuple(self.messages),
            steps=tuple(self.steps),
            reward=end.reward if end else 0.0,
            success=end is not None and end.success,
            detail=dict(end.detail) if end else {},
            termination=end.termination if end else None,
            error=error,
            started_at=started_at,
            seconds=seconds,
        )


def cut_short(turn: Turn) -> bool:
    """Whether a reply that could not be read ends the episode: cut at the token limit before it held its one call.

    A call that came whole, but whose arguments could not be read, is an error like any other.
    """
    whole = len(turn.tool_calls) == 1 or (turn.parse_error and turn.parse_code != UNREADABLE)
    return turn.finish_reason == "length" and not whole


def assistant_message(turn: Turn) -> Message:
    """The reply as it stands in the conversation: reasoning and calls in their own fields, arguments as JSON text."""
    message: Message = {"role": "assistant", "content": turn.content}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
            }
            for call in turn.tool_calls
        ]
    return message
