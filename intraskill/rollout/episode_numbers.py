"""The numbers of stored episodes, read fast: what summaries, comparisons, exports and resuming need of a trace.

A trace is mostly text: pages, conversation, reasoning. The decoder here knows the few fields that are numbers or
short codes and skips everything else without building it, which is several times faster than reading whole records
and lets a hundred thousand episodes pass through a small, constant amount of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from intraskill.agent.trace import TRACE_SCHEMA
from intraskill.core.errors import StateCorrupted
from intraskill.core.records import EpisodeJob
from intraskill.storage.jsonl import JsonlLog


class UsageNumbers(msgspec.Struct, gc=False):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class TurnNumbers(msgspec.Struct):
    finish_reason: str
    usage: UsageNumbers
    weight_version: str = ""


class Code(msgspec.Struct, gc=False):
    code: str


class Feedback(msgspec.Struct, gc=False):
    valid: bool
    code: str


class StepNumbers(msgspec.Struct):
    """One step: `action` is None exactly when the reply was a protocol error or was cut."""

    model: TurnNumbers
    action: str | None
    protocol_error: Code | None
    action_feedback: Feedback | None
    seconds: float

    @property
    def invalid(self) -> bool:
        return self.action_feedback is not None and not self.action_feedback.valid


class FinalNumbers(msgspec.Struct):
    reward: float
    success: bool
    reward_detail: dict[str, Any]
    termination_reason: str | None


class Times(msgspec.Struct, gc=False):
    started_at: str
    seconds: float


class JobNumbers(msgspec.Struct, gc=False):
    task_id: int | str
    sample_id: int
    seed: int
    split: str


class Failure(msgspec.Struct, gc=False):
    stage: str
    type: str
    message: str = ""


class TraceNumbers(msgspec.Struct):
    """One stored attempt. `final` is None for a technical failure, whose outcome means nothing."""

    schema: str
    stored_job: JobNumbers = msgspec.field(name="job")
    status: str
    steps: list[StepNumbers]
    final: FinalNumbers | None
    error: Failure | None
    times: Times
    step: int | None = None  # training logs also say in which step and group an episode was generated
    group_index: int | None = None

    @property
    def completed(self) -> bool:
        return self.status == "completed"

    @property
    def job(self) -> EpisodeJob:
        stored = self.stored_job
        return EpisodeJob(str(stored.task_id), stored.sample_id, stored.seed, stored.split)

    @property
    def episode_id(self) -> str:
        return self.job.episode_id


def read_numbers(log: JsonlLog) -> Iterator[TraceNumbers]:
    """Every attempt of a trace log in file order. Raises `StateCorrupted` for a record that is no trace."""
    for trace in log.read_as(TraceNumbers):
        if trace.schema != TRACE_SCHEMA:
            raise StateCorrupted(f"{log.path}: expected {TRACE_SCHEMA} records, found {trace.schema!r}")
        yield trace
