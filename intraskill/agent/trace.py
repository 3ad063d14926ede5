"""What is kept of an episode on disk.

A **trace** (`shopsimrl-episode-v4`) is one self-contained JSON object: the job, where it came from (provenance), the
public reset, the chunks shown, the conversation as the model saw it, every step, and how it ended. It serves audits,
analysts, metrics and comparisons alike. What a family adds stands beside the common keys, under the family's names.
The goal stands in `final` and nowhere else; nothing before the end of an episode, and nothing the policy reads, may
hold it. Traces are local: they contain reasoning and what users told.

The tools a turn was offered stand with the first step and with every step at which they changed.

What only a trainer needs (ids, masks, log-probs, advantages) is a record of its own (`intraskill-tokens-v2`), tied to
the trace by the episode id, so that a trace never changes with the training code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from intraskill.core.errors import StateCorrupted
from intraskill.core.records import (
    LIMITS,
    Episode,
    EpisodeJob,
    EpisodeStep,
    Reset,
    Segment,
    StepResult,
    ToolCall,
    Turn,
    stored_task_id,
)
from intraskill.skills.bank import Chunk

TRACE_SCHEMA = "shopsimrl-episode-v4"
TOKENS_SCHEMA = "intraskill-tokens-v2"
_PRIVATE = frozenset({"goal", "private_goal", "env_idx", "lease_id"})
# Keys that the traces of every family have; the others are the family's own.
_RESET = frozenset({"task_id", "task_instruction", "observation", "observation_state"})
_RESULT = frozenset(
    ["observation", "observation_state", "done", "reward", "reward_detail", "action_feedback", "termination_reason"]
)


def episode_trace(episode: Episode, provenance: Mapping[str, Any], chunks: Sequence[Chunk] = ()) -> dict[str, Any]:
    """The trace of an episode; give the `chunks` it was shown to keep their content beside their ids."""
    return {
        "schema": TRACE_SCHEMA,
        "episode_id": episode.job.episode_id,
        "job": episode.job.record(),
        "status": episode.status,
        "provenance": dict(provenance),
        "reset": _reset(episode.reset),
        "selected_skills": _skills(episode.skill_ids, chunks),
        "conversation": list(episode.messages),
        "steps": list(_steps(episode)),
        "final": _final(episode),
        "error": episode.error,
        "times": {
            "started_at": episode.started_at,
            "finished_at": _finished_at(episode),
            "seconds": episode.seconds,
        },
    }


def training_record(episode: Episode, learnt: Sequence[Segment]) -> dict[str, Any]:
    """What is learnt from the episode: its segments with their advantages."""
    keep = ("token_ids", "loss_mask", "log_probs", "advantages", "prompt_length")
    return {
        "schema": TOKENS_SCHEMA,
        "episode_id": episode.job.episode_id,
        "job": episode.job.record(),
        "weight_versions": [step.turn.weight_version for step in episode.steps],
        "segments": [{key: getattr(segment, key) for key in keep} for segment in learnt],
    }


def segments_from_record(record: Mapping[str, Any], group_index: int) -> tuple[Segment, ...]:
    """The segments of a training record, exactly as they were learnt from."""
    _expect(record, TOKENS_SCHEMA)
    return tuple(
        Segment(
            episode_id=record["episode_id"],
            group_index=group_index,
            token_ids=tuple(stored["token_ids"]),
            loss_mask=tuple(stored["loss_mask"]),
            log_probs=tuple(stored["log_probs"]),
            prompt_length=stored["prompt_length"],
            advantages=tuple(stored["advantages"]),
        )
        for stored in record["segments"]
    )


def episode_from_trace(trace: Mapping[str, Any]) -> Episode:
    """The episode a trace was made of, without token ids."""
    _expect(trace, TRACE_SCHEMA)
    final = trace["final"] or {}
    return Episode(
        job=EpisodeJob.from_record(trace["job"]),
        status=trace["status"],
        skill_ids=tuple(skill["skill_id"] for skill in trace["selected_skills"]),
        reset=_reset_from(trace["reset"]) if trace["reset"] else None,
        messages=tuple(trace["conversation"]),
        steps=tuple(_steps_from(trace["steps"], final)),
        reward=float(final.get("reward", 0.0)),
        success=bool(final.get("success", False)),
        detail=dict(final.get("reward_detail") or {}),
        termination=final.get("termination_reason"),
        error=trace["error"],
        started_at=trace["times"]["started_at"],
        seconds=trace["times"]["seconds"],
    )


def _expect(record: Mapping[str, Any], schema: str) -> None:
    if record.get("schema") != schema:
        raise StateCorrupted(f"expected a {schema} record, found {record.get('schema')!r}")


def _reset(reset: Reset | None) -> dict[str, Any] | None:
    if reset is None:
        return None
    return {
        **reset.extra,
        "task_id": stored_task_id(reset.task_id),
        "task_instruction": reset.instruction,
        "observation": reset.observation,
        "observation_state": _public(reset.state),
    }


def _reset_from(record: Mapping[str, Any]) -> Reset:
    return Reset(
        task_id=str(record["task_id"]),
        instruction=record["task_instruction"],
        observation=record["observation"],
        state=record["observation_state"],
        extra={key: value for key, value in record.items() if key not in _RESET},
    )


def _skills(skill_ids: Sequence[str], chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
    shown = {chunk.skill_id: chunk for chunk in chunks}
    return [{"skill_id": skill_id} | _content(shown.get(skill_id)) for skill_id in skill_ids]


def _content(chunk: Chunk | None) -> dict[str, Any]:
    if chunk is None:
        return {}
    visible = chunk.visible()
    digest = hashlib.sha256(json.dumps(visible, ensure_ascii=False, sort_keys=True).encode()).hexdigest()
    return {"version": chunk.version, "content": visible, "content_sha256": digest, "metadata": chunk.metadata}


def _steps(episode: Episode) -> Iterable[dict[str, Any]]:
    """Steps with what each turn was about: the observation that the last action led to."""
    if episode.reset is None:
        return
    observation, offered = episode.reset.observation, None
    for index, step in enumerate(episode.steps):
        stored = {"step": index, "observation": observation} | _step(step)
        if step.tools != offered:
            stored["tools"] = list(step.tools)
        yield stored
        offered = step.tools
        if step.action is not None and step.result is not None:
            observation = step.result.observation


def _step(step: EpisodeStep) -> dict[str, Any]:
    code, _, message = (step.protocol_error or "").partition(": ")
    error = {"code": code, "message": message} if code else None
    return {
        "model": _turn(step.turn),
        "action": step.action,
        "protocol_error": error,
        "protocol_feedback": {"valid": False, **error} if error else None,
        "policy_failure": _policy_failure(step),
        "environment": _result(step.result),
        "action_feedback": step.result.feedback if step.result and step.action is not None else None,
        "seconds": step.seconds,
    }


def _policy_failure(step: EpisodeStep) -> dict[str, str] | None:
    termination = step.result.termination if step.result else None
    return {"code": termination} if termination in LIMITS else None


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "text": turn.text,
        "content": turn.content,
        "reasoning_content": turn.reasoning,
        "tool_calls": [asdict(call) for call in turn.tool_calls],
        "parse_error": turn.parse_error,
        "finish_reason": turn.finish_reason,
        "usage": turn.usage,
        "weight_version": turn.weight_version,
    }


def _result(result: StepResult | None) -> dict[str, Any] | None:
    if result is None:
        return None
    return {
        **result.extra,
        "observation": result.observation,
        "observation_state": _public(result.state),
        "done": result.done,
        "reward": result.reward,
        "reward_detail": result.detail,
        "action_feedback": result.feedback,
        "termination_reason": result.termination,
    }


def _result_from(record: Mapping[str, Any]) -> StepResult:
    return StepResult(
        observation=record["observation"],
        state=record["observation_state"],
        done=record["done"],
        reward=record["reward"],
        detail=record["reward_detail"],
        feedback=record["action_feedback"],
        termination=record["termination_reason"],
        extra={key: value for key, value in record.items() if key not in _RESULT},
    )


def _steps_from(rows: Iterable[Mapping[str, Any]], final: Mapping[str, Any]) -> list[EpisodeStep]:
    """The steps; what is only known at the end belongs to the terminal result, which is the last step's."""
    steps: list[EpisodeStep] = []
    offered: tuple[dict[str, Any], ...] = ()
    for row in rows:
        offered = tuple(row.get("tools", offered))
        steps.append(_step_from(row, offered))
    if final and steps and (end := steps[-1].result) is not None:
        steps[-1] = replace(steps[-1], result=replace(end, success=final["success"], goal=final["goal"]))
    return steps


def _step_from(stored: Mapping[str, Any], tools: tuple[dict[str, Any], ...]) -> EpisodeStep:
    model, result, error = stored["model"], stored["environment"], stored["protocol_error"]
    turn = Turn(
        text=model["text"],
        content=model["content"],
        reasoning=model["reasoning_content"],
        tool_calls=tuple(ToolCall(**call) for call in model["tool_calls"]),
        finish_reason=model["finish_reason"],
        parse_error=model["parse_error"],
        weight_version=model["weight_version"],
        usage=dict(model["usage"]),
    )
    return EpisodeStep(
        turn=turn,
        action=stored["action"],
        result=_result_from(result) if result else None,
        protocol_error=f"{error['code']}: {error['message']}" if error else None,
        seconds=stored["seconds"],
        tools=tools,
    )


def _final(episode: Episode) -> dict[str, Any] | None:
    """How the episode ended; None for a technical failure, whose reward would mean nothing."""
    if not episode.scorable:
        return None
    end = episode.steps[-1].result if episode.steps else None
    return {
        **(end.extra if end else {}),
        "done": True,
        "reward": episode.reward,
        "success": episode.success,
        "reward_detail": episode.detail,
        "goal": end.goal if end else None,
        "termination_reason": episode.termination,
    }


def _public(state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key not in _PRIVATE}


def _finished_at(episode: Episode) -> str:
    if not episode.started_at:
        return ""
    finished = datetime.fromisoformat(episode.started_at) + timedelta(seconds=episode.seconds)
    return finished.isoformat(timespec="milliseconds")
