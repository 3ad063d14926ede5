"""A toy family, and the example of `docs/extending.md`: a user has thought of a number, the policy asks for it.

There are no tools: the policy talks, and a reply is read as the first number in it. The user answers in words of their
own, drawn from the job's seed. The number found within the turns is a success.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intraskill.core.errors import UserError
from intraskill.core.records import (
    LIMITS,
    STYLES,
    EpisodeJob,
    Message,
    Reset,
    StepResult,
    Style,
    Tool,
    ToolSchema,
    Turn,
)
from intraskill.families.base import Decoded, ProtocolError, TaskFamily, TaskSplits
from intraskill.families.guess.settings import GuessSettings
from intraskill.skills.bank import Chunk, render_chunk

_SAID = {"higher": ("higher", "no, more"), "lower": ("lower", "no, less"), "found": ("yes", "that is it")}


class User:
    """An `Environment`: somebody with a number and a manner of speaking."""

    def __init__(self, settings: GuessSettings, seed: int) -> None:
        self._settings, self._manner = settings, random.Random(f"guess/{seed}")
        self._number, self._turns, self._talking = 0, 0, False

    async def reset(self, task_id: str) -> Reset:
        if task_id not in map(str, range(1, self._settings.largest + 1)):
            raise UserError(f"unknown task {task_id!r}: the numbers are 1 to {self._settings.largest}")
        self._number, self._turns, self._talking = int(task_id), 0, True
        return Reset(task_id, f"Guess my number, 1 to {self._settings.largest}.", "Your guess?", {"turns": 0})

    async def step(self, action: str) -> StepResult:
        self._require_talk()
        self._turns += 1
        if not action.isdigit():
            return self._answer("a number, please", "no_number")
        kind = "found" if int(action) == self._number else "higher" if int(action) < self._number else "lower"
        return self._answer(self._manner.choice(_SAID[kind]), "executed", "found" if kind == "found" else None)

    async def terminate(self, reason: str) -> StepResult:
        self._require_talk()
        if reason not in LIMITS:
            raise UserError(f"no talk ends by {reason!r}; use one of {', '.join(LIMITS)}")
        return self._answer("too late", "executed", reason)

    async def close(self) -> None:
        self._talking = False

    def identity(self) -> dict[str, Any]:
        return {"environment": "guess-v1", "largest": self._settings.largest, "max_steps": self._settings.max_steps}

    def _require_talk(self) -> None:
        if not self._talking:
            raise UserError("this talk is over; reset it with a task first")

    def _answer(self, said: str, reason: str, ending: str | None = None) -> StepResult:
        ending = ending or ("action_limit" if self._turns >= self._settings.max_steps else None)
        success, self._talking = ending == "found", ending is None
        detail = {} if ending is None else {"speed": success / max(1, self._turns)}
        goal = None if ending is None else {"number": self._number}
        feedback = {"valid": reason == "executed", "reason": reason, "message": said}
        state = {"turns": self._turns}
        return StepResult(said, state, ending is not None, float(success), detail, feedback, success, ending, goal=goal)


@dataclass(frozen=True)
class GuessPrompt:
    """A `Prompt`: the chunks, then the task."""

    style: Style

    @property
    def sha256(self) -> str:
        return hashlib.sha256(f"guess-prompt-v1/{self.style}".encode()).hexdigest()

    def messages(self, reset: Reset, chunks: Sequence[Chunk]) -> tuple[Message, ...]:
        told = "\n".join(render_chunk(chunk, self.style) for chunk in chunks)
        task = f"{reset.instruction} {reset.observation}"
        return ({"role": "system", "content": told}, {"role": "user", "content": task})

    def protocol_feedback(self, error: ProtocolError, observation: str, tools: Sequence[Tool]) -> str:
        return f"{error.message}. {observation}"


class Guess(TaskFamily):
    def __init__(self, settings: GuessSettings, cache_dir: Path) -> None:
        self.settings: GuessSettings = settings

    def identity(self) -> dict[str, Any]:
        return self.new_environment().identity()

    def splits(self) -> TaskSplits:
        tasks = [str(number) for number in range(1, self.settings.largest + 1)]
        return TaskSplits(tuple(tasks[::2]), tuple(tasks[1::4]), tuple(tasks[3::4]))

    def new_environment(self, job: EpisodeJob | None = None) -> User:
        return User(self.settings, job.seed if job else 0)

    def prompt(self, name: str) -> GuessPrompt:
        if name not in STYLES:
            raise UserError(f"policy.prompt: the guessing game has no prompt {name!r}; use full or compact")
        return GuessPrompt("compact" if name == "compact" else "full")

    def tools(self, state: Mapping[str, Any], schema: ToolSchema) -> tuple[Tool, ...]:
        return ()

    def decode(self, turn: Turn, state: Mapping[str, Any], tools: Sequence[Tool]) -> Decoded:
        numbers = re.findall(r"[0-9]+", turn.content)
        if turn.tool_calls or not numbers:
            raise ProtocolError("no_number", "Say a number")
        return Decoded(numbers[0])
