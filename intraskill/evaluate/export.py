"""What may leave a run: numbers for everybody, or conversations for a student.

Traces hold what users told, reasoning and goals and stay where they are. An export is built from an **allow-list**,
field by field, so that a trace that gains a field tomorrow does not leak it.

- `public`: one row an episode and one row a turn; numbers and codes of closed vocabularies, no text. An action appears
  as its kind alone, because its words may quote the user.
- `sft`: the conversations of completed, fully successful episodes, with the tools and where they came from. Where the
  tools change from turn to turn, a conversation makes several records: each ends with the replies that were given under
  its tools, and `first_reply` says which message is the first of these.
  Conversations that repeat another one are dropped. Only episodes of the train split are exported: validation tasks
  select skills and test tasks measure the result, and neither could for a student that was trained on them.

Both are JSONL, and Parquet beside it where pyarrow is installed; `report.json` says what was kept and what was not.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from intraskill.agent.trace import succeeded
from intraskill.core.errors import UserError
from intraskill.core.records import EpisodeJob
from intraskill.evaluate.episode_table import TOKENS
from intraskill.families.base import FamilySettings
from intraskill.families.registry import kind_of
from intraskill.rollout.episode_numbers import StepNumbers, TraceNumbers, read_numbers
from intraskill.storage.store import JsonlLog, decode_record, encode, read_json, write_json_atomic

_PARQUET_ROWS = 20_000  # converted at a time
# Where each part of a trace's provenance goes; all of them are names and numbers.
_PUBLISHED_PROVENANCE = {
    "model": ("model", "model"),
    "sampling": ("model", "sampling"),
    "prompt_sha256": ("prompt", "prompt_sha256"),
    "tool_schema": ("prompt", "tool_schema"),
    "bank_sha256": ("skills", "bank_sha256"),
}


def trace_logs(run: Path) -> dict[str, JsonlLog]:
    """The trace logs of an evaluation or a training run by name. Raises `UserError` when there are none."""
    if (run / "traces.jsonl").exists():
        return {"traces": JsonlLog(run / "traces.jsonl")}
    logs = {path.parent.name: JsonlLog(path) for path in sorted(run.glob("rounds/*/episodes.jsonl"))}
    if not logs:
        raise UserError(f"{run} holds no traces; give the folder of an evaluation or of a training run")
    return logs


def family_of(run: Path) -> type[FamilySettings]:
    """The task family of an evaluation or a training run. Raises `UserError` when it is not registered."""
    for name in ("manifest.json", "run.json"):
        if (run / name).exists():
            return kind_of(read_json(run / name).get("settings") or {})
    return kind_of({})


def export_public(run: Path, out: Path) -> dict[str, Any]:
    """Write `episodes.jsonl` and `turns.jsonl`; returns the report."""
    logs, kind = trace_logs(run), family_of(run)
    episodes = _write_table(out / "episodes", (_episode(name, t, kind) for name, t in _numbers(logs)))
    turns = _write_table(
        out / "turns",
        (_turn(name, trace, i, s, kind) for name, trace in _numbers(logs) for i, s in enumerate(trace.steps)),
    )
    return _report(out, {"kind": "public", "episodes": episodes, "turns": turns})


def export_sft(run: Path, out: Path) -> dict[str, Any]:
    """Write `sft.jsonl`, one conversation a line; returns the report."""
    keeper = _Keeper()
    records = _write_table(out / "sft", keeper.records(trace_logs(run)))
    return _report(
        out,
        {
            "kind": "sft",
            "read": keeper.read,
            "kept": len(keeper.seen),
            "records": records,
            "dropped": {"failed": 0, "not_successful": 0, "duplicate": 0} | dict(sorted(keeper.dropped.items())),
            "kept_with_protocol_errors": keeper.with_errors,
            "tasks": len(keeper.tasks),
            "splits": dict(sorted(keeper.splits.items())),
        },
    )


def _numbers(logs: Mapping[str, JsonlLog]) -> Iterator[tuple[str, TraceNumbers]]:
    for name, log in logs.items():
        for trace in read_numbers(log):
            yield name, trace


def _episode(log: str, trace: TraceNumbers, kind: type[FamilySettings]) -> dict[str, Any]:
    final, steps = trace.final, trace.steps
    detail = final.reward_detail if final else {}
    return {
        **_where(log, trace),
        "split": trace.job.split,
        "completed": trace.completed,
        "reward": final.reward if final else None,
        "success": int(final.success) if final else None,
        **{name: float(detail.get(name) or 0.0) if final else None for name in kind.reward_parts},
        "steps": len(steps),
        "actions": sum(step.action is not None for step in steps),
        "invalid_actions": sum(step.invalid for step in steps),
        "protocol_errors": sum(step.protocol_error is not None for step in steps),
        "termination": final.termination_reason if final else None,
        **{name: sum(getattr(step.model.usage, name) for step in steps) for name in TOKENS},
        "seconds": trace.seconds,
    }


def _turn(log: str, trace: TraceNumbers, index: int, step: StepNumbers, kind: type[FamilySettings]) -> dict[str, Any]:
    feedback = step.action_feedback
    return {
        **_where(log, trace),
        "turn": index,
        "action": kind.action_kind(step.action) if step.action else None,
        "valid": feedback.valid if feedback else None,
        "feedback": feedback.reason if feedback else None,
        "protocol_error": step.protocol_error.code if step.protocol_error else None,
        "finish_reason": step.model.finish_reason,
        **{name: getattr(step.model.usage, name) for name in TOKENS},
        "seconds": step.seconds,
    }


def _where(log: str, trace: TraceNumbers) -> dict[str, Any]:
    job = trace.job
    place = {"log": log, "task_id": job.task_id, "sample_id": job.sample_id}
    if trace.step is not None:
        place |= {"step": trace.step, "group_index": trace.group_index}
    return place


@dataclass
class _Keeper:
    """Decides which episodes a student may learn from, and counts the others."""

    read: int = 0
    with_errors: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    splits: Counter[str] = field(default_factory=Counter)
    tasks: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)

    def records(self, logs: Mapping[str, JsonlLog]) -> Iterator[dict[str, Any]]:
        for name, log in logs.items():
            for trace in log.scan(decode_record):
                self.read += 1
                reason = self._refusal(trace)
                if reason:
                    self.dropped[reason] += 1
                else:
                    yield from self._records(name, trace)

    def _refusal(self, trace: Mapping[str, Any]) -> str | None:
        if trace["job"]["split"] != "train":
            raise UserError(
                f"these are episodes of the {trace['job']['split']} split; a model trained on them could no longer be "
                "judged there, export a training run or an evaluation with split train"
            )
        if trace["status"] != "completed":
            return "failed"
        if not succeeded(trace["final"]):
            return "not_successful"
        digest = conversation_sha256(trace["conversation"])
        if digest in self.seen:
            return "duplicate"
        self.seen.add(digest)
        return None

    def _records(self, log: str, trace: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """One record for every stretch of turns under the same tools; usually that is one."""
        job = EpisodeJob.from_record(trace["job"])
        self.splits[job.split] += 1
        self.tasks.add(job.task_id)
        self.with_errors += any("protocol_error" in step for step in trace["steps"])
        origin = trace["provenance"]
        published = {name: origin.get(part, {}).get(key) for name, (part, key) in _PUBLISHED_PROVENANCE.items()}
        published |= {key: origin.get(key) for key in ("checkpoint", "checkpoint_id")}
        skills = [skill["skill_id"] for skill in trace["selected_skills"]]
        provenance = {
            "episode_id": job.episode_id,
            "log": log,
            **asdict(job),
            **{key: trace[key] for key in ("step", "group_index") if key in trace},
            "skill_ids": skills,
            **published,
        }
        messages = trace["conversation"]
        replies = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        changes = [turn for turn, step in enumerate(trace["steps"]) if "tools" in step]
        for turn, following in zip(changes, [*changes[1:], len(replies)]):
            yield {
                "messages": messages[: replies[following - 1] + 1],
                "tools": trace["steps"][turn]["tools"],
                "first_reply": replies[turn],
                "provenance": provenance,
            }


def conversation_sha256(messages: Sequence[Mapping[str, Any]]) -> str:
    """Hash of what was said, whatever the calls happened to be numbered."""
    said = []
    for message in messages:
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        said.append([message["role"], message.get("content"), message.get("reasoning_content"), calls])
    return hashlib.sha256(json.dumps(said, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


def _write_table(stem: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """STEM.jsonl, whole or not at all, and STEM.parquet where pyarrow is installed; returns the number of rows."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    unfinished = stem.with_name(f".{stem.name}.jsonl.tmp")
    count = 0
    try:
        with unfinished.open("wb") as file:
            for row in rows:
                file.write(encode(row) + b"\n")
                count += 1
        os.replace(unfinished, stem.with_suffix(".jsonl"))
    finally:
        unfinished.unlink(missing_ok=True)
    if count:
        _write_parquet(stem)
    return count


def _write_parquet(stem: Path) -> None:
    """The rows of STEM.jsonl; `tools` become JSON text, as columns would give each tool the other tools' parameters."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return
    parts = []
    with stem.with_suffix(".jsonl").open("rb") as file:
        while lines := list(islice(file, _PARQUET_ROWS)):
            rows = [orjson.loads(line) for line in lines]
            rows = [row | {"tools": json.dumps(row["tools"])} if "tools" in row else row for row in rows]
            parts.append(pyarrow.Table.from_struct_array(pyarrow.array(rows)))
    parquet.write_table(pyarrow.concat_tables(parts, promote_options="permissive"), stem.with_suffix(".parquet"))


def _report(out: Path, report: dict[str, Any]) -> dict[str, Any]:
    write_json_atomic(out / "report.json", report)
    return report
