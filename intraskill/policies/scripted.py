"""A policy that is a plain function: demonstrations, and tests of everything around a policy.

The function gets the page's canonical state and the conversation and returns the reply as text, as a model would
write it (`call_text` writes a call). The state is what a real policy reads from the observation; to
see it, the policy has to watch the environment of its episode:

    policy = ScriptedPolicy(reply)
    episode = await run_episode(job, family, policy.watch(env), policy, ...)

With a chat template, calls are read in its format and turns carry token ids exactly as a token policy's would
(log-probs 0), so a demonstration becomes a training segment by the very code that makes one of a sampled episode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from intraskill.agent.call_formats import QWEN3_CODER
from intraskill.agent.parsing import parse_reply
from intraskill.core.errors import PolicyUnavailable
from intraskill.core.protocol import Environment
from intraskill.core.records import Limit, Message, Reset, StepResult, Turn, TurnRequest
from intraskill.policies.chat import ChatTemplate
from intraskill.policies.token import Generation, next_prompt_ids, turn_from

Reply = Callable[[dict[str, Any], Sequence[Message]], str]


def call_text(name: str, **arguments: str) -> str:
    """A tool call as `qwen3_coder` models write it: `call_text("open", page="3")`."""
    return QWEN3_CODER.write(name, arguments)


def turn_of(text: str, usage: dict[str, int] | None = None) -> Turn:
    """The turn of a reply in the `qwen3_coder` format, without token ids."""
    reply = parse_reply(text, QWEN3_CODER)
    return Turn(
        text, reply.content, reply.reasoning, reply.tool_calls, "stop", parse_error=reply.error, usage=usage or {}
    )


class ScriptedPolicy:
    """A `Policy` around `reply(state, messages) -> text`; one instance watches one episode at a time."""

    def __init__(self, reply: Reply, chat: ChatTemplate | None = None, name: str = "scripted") -> None:
        self.reply = reply
        self.chat = chat
        self.name = name
        self.state: dict[str, Any] = {}

    def watch(self, env: Environment) -> Environment:
        """The same environment; this policy sees its state from now on."""
        return _Watched(env, self)

    async def generate(self, request: TurnRequest) -> Turn:
        text = self.reply(self.state, request.messages)
        if self.chat is None:
            return turn_of(text)
        token_ids = (*self.chat.encode(text), self.chat.end_of_turn_id)
        generation = Generation(token_ids, (0.0,) * len(token_ids), "stop", self.name)
        return turn_from(self.chat, next_prompt_ids(self.chat, request), generation)

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        raise PolicyUnavailable("a scripted policy has no probabilities")

    def open_session(self, session: str) -> None:
        pass

    def close_session(self, session: str) -> None:
        pass

    def identity(self) -> dict[str, Any]:
        return {"model": self.name}


class _Watched:
    """An environment that shows each new state to a scripted policy."""

    def __init__(self, env: Environment, policy: ScriptedPolicy) -> None:
        self._env = env
        self._policy = policy

    async def reset(self, task_id: str) -> Reset:
        reset = await self._env.reset(task_id)
        self._policy.state = reset.state
        return reset

    async def step(self, action: str) -> StepResult:
        result = await self._env.step(action)
        self._policy.state = result.state
        return result

    async def terminate(self, reason: Limit) -> StepResult:
        return await self._env.terminate(reason)

    async def close(self) -> None:
        await self._env.close()

    def identity(self) -> dict[str, Any]:
        return self._env.identity()
