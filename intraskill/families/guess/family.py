"""A toy family: guessing a number in a dialogue. The shortest example of everything a family has to say.

The policy has no tools; it speaks. A reply is plain text with one number in it; a simulated user, who has moods drawn
from the job's seed, answers in words whether their number is higher or lower. Found in time, it earns 1, else 0.
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
from intraskill.core.protocol import Environment
from intraskill.core.records import EpisodeJob, Limit, Message, Reset, StepResult, Style, Tool, ToolSchema, Turn
from intraskill.families.base import Decoded, ProtocolError, TaskSplits, answers
from intraskill.families.guess.settings import GuessSettings
from intraskill.skills.bank import Chunk, render_chunk

_ANSWERS = {"higher": ("higher", "it is higher"), "lower": ("lower", "it is lower"), "yes": ("yes", "that is it")}
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class GuessPrompt:
    """A `Prompt`: the chunks, then the task; both styles word the task alike."""

    style: Style

    @property
    def sha256(self) -> str:
        return hashlib.sha256(f"guess/1/{self.style}".encode()).hexdigest()

    def messages(self, reset: Reset, chunks: Sequence[Chunk]) -> tuple[Message, ...]:
        told = "\n".join(render_chunk(chunk, self.style) for chunk in chunks)
        opening = {"role": "user", "content": f"{reset.instruction}\n{reset.observation}"}
        return ({"role": "system", "content": told}, opening)

    def protocol_feedback(
        self, error: ProtocolError, state: Mapping[str, Any], observation: str, call_ids: Sequence[str]
    ) -> tuple[Message, ...]:
        return answers(call_ids, f"{error.message}\n{observation}")


class Dialogue:
    """An `Environment`: the user who thought of a number."""

    def __init__(self, settings: GuessSettings, seed: int) -> None:
        self._settings, self._mood = settings, random.Random(f"guess/{seed}")
        self._number, self._turns, self._over = 0, 0, True

    async def reset(self, task_id: str) -> Reset:
        if not task_id.isdigit() or not 1 <= int(task_id) <= self._settings.largest:
            raise UserError(f"unknown task {task_id!r}: the tasks are the numbers 1 to {self._settings.largest}")
        self._number, self._turns, self._over = int(task_id), 0, False
        return Reset(task_id, f"Guess my number from 1 to {self._settings.largest}.", "your guess?", {"turns": 0})

    async def step(self, action: str) -> StepResult:
        self._check_running()
        self._turns += 1
        found = _NUMBER.search(action)
        if found is None:
            return self._result("a number, please", valid=False)
        answer = "yes" if (guess := int(found[0])) == self._number else "higher" if guess < self._number else "lower"
        return self._result(self._mood.choice(_ANSWERS[answer]), success=answer == "yes")

    async def terminate(self, reason: Limit) -> StepResult:
        self._check_running()
        if reason not in ("action_limit", "generation_length"):
            raise UserError(f"unknown ending {reason!r}")
        return self._result("time is up", ending=reason)

    async def close(self) -> None:
        self._over = True

    def identity(self) -> dict[str, Any]:
        return {"environment": "guess-v1", "largest": self._settings.largest, "max_steps": self._settings.max_steps}

    def _check_running(self) -> None:
        if self._over:
            raise UserError("the dialogue is over; reset it with a task id first")

    def _result(self, said: str, *, valid: bool = True, success: bool = False, ending: str | None = None) -> StepResult:
        if ending is None and (success or self._turns >= self._settings.max_steps):
            ending = "guessed" if success else "action_limit"
        self._over = ending is not None
        feedback = {"valid": valid, "code": "ok" if valid else "no_number", "message": "" if valid else said}
        reward = float(success)
        detail = {"reward": reward} if self._over else {}
        goal = {"number": self._number} if self._over else None
        state = {"turns": self._turns}
        return StepResult(said, state, self._over, reward, detail, feedback, success, ending, goal=goal)


class Guess:
    """A `TaskFamily`."""

    def __init__(self, settings: GuessSettings, cache_dir: Path) -> None:
        self.settings = settings

    def identity(self) -> dict[str, Any]:
        return self.new_environment().identity()

    def splits(self) -> TaskSplits:
        tasks = [str(number) for number in range(1, self.settings.largest + 1)]
        return TaskSplits(tuple(tasks[::2]), tuple(tasks[1::4]), tuple(tasks[3::4]))

    def new_environment(self, job: EpisodeJob | None = None) -> Environment:
        return Dialogue(self.settings, job.seed if job else 0)

    def prompt(self, style: Style) -> GuessPrompt:
        return GuessPrompt(style)

    def tools(self, state: Mapping[str, Any], schema: ToolSchema) -> tuple[Tool, ...]:
        return ()

    def decode(self, turn: Turn, state: Mapping[str, Any]) -> Decoded:
        if turn.finish_reason == "length" or not turn.content.strip():
            raise ProtocolError("nothing_said", "say a number")
        return Decoded(turn.content.strip())

    def evolution(self) -> None:
        return None
