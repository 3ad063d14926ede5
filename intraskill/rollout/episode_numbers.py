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
from intraskill.storage.store import JsonlLog


class UsageNumbers(msgspec.Struct, gc=False):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class TurnNumbers(msgspec.Struct):
    finish_reason: str | None
    usage: UsageNumbers
    latency_ms: float = 0.0
    weight_version: str = ""


class Code(msgspec.Struct, gc=False):
    code: str


class Feedback(msgspec.Struct, gc=False):
    valid: bool | None = None
    reason: str = ""


class Answer(msgspec.Struct, gc=False):
    """What the environment answered; to a termination it gives no feedback."""

    action_feedback: Feedback = msgspec.field(default_factory=Feedback)


class StepNumbers(msgspec.Struct):
    """One step: `action` is None exactly when the reply was a protocol error or was cut."""

    model: TurnNumbers
    action: str | None
    environment: Answer | None
    protocol_error: Code | None = None
    policy_failure: Code | None = None

    @property
    def action_feedback(self) -> Feedback | None:
        feedback = self.environment.action_feedback if self.environment else None
        return feedback if feedback and feedback.valid is not None else None

    @property
    def seconds(self) -> float:
        return self.model.latency_ms / 1000

    @property
    def invalid(self) -> bool:
        return self.action_feedback is not None and not self.action_feedback.valid


class FinalNumbers(msgspec.Struct):
    reward: float
    reward_detail: dict[str, Any]
    termination_reason: str | None
    stored_success: bool | None = msgspec.field(name="success", default=None)

    @property
    def success(self) -> bool:
        """As it was written down; traces from elsewhere say it in the reward's parts."""
        return self.reward_detail.get("r_success") == 1 if self.stored_success is None else self.stored_success


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

    schema_version: str
    stored_job: JobNumbers = msgspec.field(name="job")
    status: str
    steps: list[StepNumbers]
    final: FinalNumbers | None
    error: Failure | None
    started_at: str
    duration_ms: float
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

    @property
    def seconds(self) -> float:
        return self.duration_ms / 1000


def read_numbers(log: JsonlLog) -> Iterator[TraceNumbers]:
    """Every attempt of a trace log in file order. Raises `StateCorrupted` for a record that is no trace."""
    decoder = msgspec.json.Decoder(TraceNumbers)

    def decode(line: bytes) -> TraceNumbers | None:
        try:
            trace = decoder.decode(line)
        except msgspec.ValidationError as error:
            raise StateCorrupted(f"{log.path}: a record is no episode trace ({error}); restore the file") from error
        except msgspec.DecodeError:
            return None
        if trace.schema_version != TRACE_SCHEMA:
            raise StateCorrupted(f"{log.path}: expected {TRACE_SCHEMA} records, found {trace.schema_version!r}")
        return trace

    return log.scan(decode)
