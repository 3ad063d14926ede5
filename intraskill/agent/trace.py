"""What is kept of an episode on disk.

A **trace** (`shopsimrl-episode-v4`) is one self-contained JSON object: the job, where it came from (provenance), the
public reset, the chunks shown, the conversation as the model saw it, every step, and how it ended. It serves audits,
analysts, metrics and comparisons alike. What a family adds stands beside the common keys, under the family's names.
The goal stands in `final` and nowhere else; nothing before the end of an episode, and nothing the policy reads, may
hold it. Traces are local: they contain reasoning and what users told.

The keys are those of the published format, so a trace written elsewhere is read as well: what only we write (a turn's
whole text, the success in `final`) may be missing. The tools a turn was offered stand with every step.

What only a trainer needs (ids, masks, log-probs) is a record of its own (`intraskill-tokens-v1`), tied to the trace
by the episode id, so that a trace never changes with the training code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from intraskill.agent.segments import segments
from intraskill.core.errors import StateCorrupted
from intraskill.core.records import (
    Episode,
    EpisodeJob,
    EpisodeStep,
    Reset,
    Segment,
    StepResult,
    ToolCall,
    Turn,
)
from intraskill.skills.bank import Chunk, chunk_record
from intraskill.skills.released import content_sha256, markdown, released_version

TRACE_SCHEMA = "shopsimrl-episode-v4"
TOKENS_SCHEMA = "intraskill-tokens-v1"
_PRIVATE = frozenset({"goal", "private_goal", "env_idx", "lease_id"})
# Keys that the traces of every family have; the others are the family's own.
_RESET = frozenset({"task_instruction", "observation", "observation_state"})
_RESULT = frozenset(
    ["observation", "observation_state", "done", "reward", "reward_detail", "action_feedback", "termination_reason"]
)
_FINAL = _RESULT | {"goal", "success"}


def episode_trace(episode: Episode, provenance: Mapping[str, Any], chunks: Sequence[Chunk] = ()) -> dict[str, Any]:
    """The trace of an episode; give the `chunks` it was shown to keep their content beside their ids."""
    return {
        "schema_version": TRACE_SCHEMA,
        "episode_id": episode.job.episode_id,
        "status": episode.status,
        "job": episode.job.record(),
        "provenance": _provenance(provenance),
        "started_at": episode.started_at,
        "ended_at": _ended_at(episode),
        "duration_ms": episode.seconds * 1000,
        "reset": _reset(episode.reset),
        "selected_skills": _skills(episode.skill_ids, chunks),
        "conversation": list(episode.messages),
        "steps": list(_steps(episode)),
        "final": _final(episode),
        "error": episode.error,
    }


def training_record(episode: Episode) -> dict[str, Any]:
    """The episode's segments. Raises `ValueError` for an episode without token ids."""
    keep = ("token_ids", "loss_mask", "log_probs", "prompt_length")
    return {
        "schema": TOKENS_SCHEMA,
        "episode_id": episode.job.episode_id,
        "job": episode.job.record(),
        "weight_versions": [step.turn.weight_version for step in episode.steps],
        "segments": [{key: getattr(segment, key) for key in keep} for segment in segments(episode, 0)],
    }


def segments_from_record(record: Mapping[str, Any], group_index: int) -> tuple[Segment, ...]:
    """The segments of a training record, exactly as `segments` gave them."""
    _expect(record, TOKENS_SCHEMA)
    return tuple(
        Segment(
            episode_id=record["episode_id"],
            group_index=group_index,
            token_ids=tuple(stored["token_ids"]),
            loss_mask=tuple(stored["loss_mask"]),
            log_probs=tuple(stored["log_probs"]),
            prompt_length=stored["prompt_length"],
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
        reset=_reset_from(str(trace["job"]["task_id"]), trace["reset"]) if trace["reset"] else None,
        messages=tuple(trace["conversation"]),
        steps=tuple(_steps_from(trace["steps"], final)),
        reward=float(final.get("reward", 0.0)),
        success=succeeded(final),
        detail=dict(final.get("reward_detail") or {}),
        termination=final.get("termination_reason"),
        error=trace["error"],
        started_at=trace["started_at"],
        seconds=trace["duration_ms"] / 1000,
    )


def _expect(record: Mapping[str, Any], schema: str) -> None:
    found = record.get("schema_version", record.get("schema"))
    if found != schema:
        raise StateCorrupted(f"expected a {schema} record, found {found!r}")


def _provenance(given: Mapping[str, Any]) -> dict[str, Any]:
    """Where the episode came from, sorted as in the published format: model, environment, prompt, skills, runtime."""
    rest = dict(given)
    environment = rest.pop("environment", {})
    return {
        "model": {**rest.pop("policy", {}), "sampling": rest.pop("sampling", {})},
        "environment": environment,
        "prompt": {key: rest.pop(key, None) for key in ("prompt_sha256", "tool_schema")},
        "skills": {"bank_sha256": rest.pop("bank_sha256", None)},
        "runtime": {
            "max_steps": rest.pop("max_steps", None),
            "action_protocol": environment.get("action_protocol"),
        },
        **rest,
    }


def _reset(reset: Reset | None) -> dict[str, Any] | None:
    if reset is None:
        return None
    return {
        **reset.extra,
        "task_instruction": reset.instruction,
        "observation": reset.observation,
        "observation_state": _public(reset.state),
    }


def _reset_from(task_id: str, record: Mapping[str, Any]) -> Reset:
    return Reset(
        task_id=task_id,
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
    content = markdown(chunk_record(chunk))
    return {
        "content": content,
        "version": released_version(chunk.metadata, chunk.version),
        "metadata": chunk.metadata,
        "content_sha256": content_sha256(content),
    }


def _steps(episode: Episode) -> Iterable[dict[str, Any]]:
    """Steps with what each turn was about: the observation that the last action led to."""
    if episode.reset is None:
        return
    observation = episode.reset.observation
    for index, step in enumerate(episode.steps, start=1):
        yield {"step_index": index, "observation": observation, "tools": list(step.tools), **_step(step)}
        if step.action is not None and step.result is not None:
            observation = step.result.observation


def _step(step: EpisodeStep) -> dict[str, Any]:
    """The turn and what it led to. A reply that was cut ends the episode; its terminal stands in `final` alone."""
    code, _, message = (step.protocol_error or "").partition(": ")
    error = {"code": code, "message": message}
    stored: dict[str, Any] = {"model": _turn(step)}
    if step.result is not None and step.result.termination == "generation_length":
        stored["policy_failure"] = {"code": "generation_length", "message": message}
    elif step.protocol_error:
        tools = [tool["function"]["name"] for tool in step.tools]
        stored["protocol_error"] = error
        stored["protocol_feedback"] = {"type": "tool_protocol_error", **error, "available_tools": tools}
    acted = step.action is not None and step.result is not None
    return stored | {"action": step.action, "environment": _result(step.result) if acted else None}


def _turn(step: EpisodeStep) -> dict[str, Any]:
    turn = step.turn
    return {
        "content": turn.content,
        "reasoning": turn.reasoning,
        "tool_calls": [asdict(call) for call in turn.tool_calls],
        "finish_reason": turn.finish_reason,
        "usage": turn.usage,
        "latency_ms": step.seconds * 1000,
        "text": turn.text,
        "parse_error": turn.parse_error,
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
        **({"termination_reason": result.termination} if result.done else {}),
    }


def _result_from(record: Mapping[str, Any], others: frozenset[str] = _RESULT) -> StepResult:
    return StepResult(
        observation=record["observation"],
        state=record["observation_state"],
        done=record["done"],
        reward=record["reward"],
        detail=record["reward_detail"],
        feedback=record.get("action_feedback", {}),
        termination=record.get("termination_reason"),
        extra={key: value for key, value in record.items() if key not in others},
    )


def _steps_from(rows: Iterable[Mapping[str, Any]], final: Mapping[str, Any]) -> list[EpisodeStep]:
    """The steps; what is only known at the end belongs to the terminal result, which is the last step's."""
    steps = [_step_from(row) for row in rows]
    if final and steps:
        end = steps[-1].result or _result_from(final, _FINAL)
        end = replace(end, success=succeeded(final), goal=final.get("goal"), termination=final["termination_reason"])
        steps[-1] = replace(steps[-1], result=end)
    return steps


def succeeded(final: Mapping[str, Any]) -> bool:
    """As it was written down; traces from elsewhere say it in the reward's parts."""
    return bool(final.get("success", (final.get("reward_detail") or {}).get("r_success") == 1))


def _step_from(stored: Mapping[str, Any]) -> EpisodeStep:
    model, result = stored["model"], stored["environment"]
    error = stored.get("protocol_error") or stored.get("policy_failure")
    turn = Turn(
        text=model.get("text") or "",
        content=model["content"] or "",
        reasoning=model.get("reasoning") or "",
        tool_calls=tuple(ToolCall(call["name"], call["arguments"], call["call_id"]) for call in model["tool_calls"]),
        finish_reason=model["finish_reason"],
        parse_error=model.get("parse_error"),
        weight_version=model.get("weight_version", ""),
        usage=dict(model["usage"]),
    )
    return EpisodeStep(
        turn=turn,
        action=stored["action"],
        result=_result_from(result) if result else None,
        protocol_error=f"{error['code']}: {error.get('message', '')}" if error else None,
        seconds=model.get("latency_ms", 0.0) / 1000,
        tools=tuple(stored["tools"]),
    )


def _final(episode: Episode) -> dict[str, Any] | None:
    """How the episode ended; None for a technical failure, whose reward would mean nothing."""
    if not episode.scorable:
        return None
    end = episode.steps[-1].result if episode.steps else None
    return {
        **(_result(end) or {}),
        "done": True,
        "reward": episode.reward,
        "success": episode.success,
        "reward_detail": episode.detail,
        "goal": end.goal if end else None,
        "termination_reason": episode.termination,
    }


def _public(state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key not in _PRIVATE}


def _ended_at(episode: Episode) -> str:
    if not episode.started_at:
        return ""
    finished = datetime.fromisoformat(episode.started_at) + timedelta(seconds=episode.seconds)
    return finished.isoformat(timespec="milliseconds")
