import copy
import math
from types import SimpleNamespace

import numpy as np
import pytest

from intraskill.core.errors import StateCorrupted
from intraskill.core.records import EpisodeJob
from intraskill.evaluate.episode_table import build_table
from intraskill.evaluate.summarize import summarize
from intraskill.rollout.episode_numbers import read_numbers
from intraskill.storage.store import JsonlLog

PARTS = ("r_strict", "r_loose", "r_att", "r_price")


def answer(reason):
    return {"action_feedback": {"valid": reason == "executed", "reason": reason, "message": "ignored"}, "reward": 0.0}


def step(**changes):
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "cached_tokens": 4}
    plain = {
        "model": {
            "finish_reason": "stop",
            "usage": usage,
            "text": "ignored",
            "weight_version": "w",
            "latency_ms": 500.0,
        },
        "action": "click[1]",
        "environment": answer("executed"),
        "observation": "ignored",
    }
    return plain | changes


def trace(task, sample=0, reward=1.0, steps=None, termination="purchase", start="00:00", seconds=2.0, **changes):
    success = reward == 1.0
    plain = {
        "schema_version": "shopsimrl-episode-v4",
        "job": {"task_id": task, "sample_id": sample, "seed": task, "split": "val"},
        "status": "completed",
        "steps": steps or [step()],
        "final": {
            "reward": reward,
            "success": success,
            "reward_detail": {"r_strict": reward, "r_loose": 0.5, "r_att": 1.0, "gold": True},
            "termination_reason": termination,
        },
        "error": None,
        "started_at": f"2026-01-01T{start}:00.000+00:00",
        "duration_ms": seconds * 1000,
    }
    return plain | changes


def failed(task):
    error = {"stage": "policy", "type": "PolicyUnavailable", "message": "x"}
    return trace(task, status="failed", final=None, error=error, steps=[step()])


@pytest.fixture
def table(tmp_path):
    """table(traces, repeats) -> the table of tasks 1..4."""

    def make(traces, repeats=1):
        log = JsonlLog(tmp_path / "traces.jsonl")
        log.append_many(traces)
        jobs = [EpisodeJob(str(task), sample, task, "val") for task in (1, 2, 3, 4) for sample in range(repeats)]
        return build_table(jobs, read_numbers(log), PARTS, "traces.jsonl")

    return make


def test_means_and_standard_errors_are_over_tasks(table):
    summary = summarize(table([trace(1), trace(2, reward=0.5), trace(3, reward=0.0), trace(4)]))
    rewards = np.array([1.0, 0.5, 0.0, 1.0])
    found = summary["outcomes"]["reward"]
    assert found["mean"] == rewards.mean()
    assert found["standard_error"] == pytest.approx(rewards.std(ddof=1) / 2)
    assert summary["outcomes"]["success"]["mean"] == 0.5
    assert summary["outcomes"]["r_loose"]["mean"] == 0.5
    assert summary["outcomes"]["r_price"]["mean"] == 0.0  # not in the detail: not earned


def test_repeats_of_a_task_are_not_independent_tasks(table):
    traces = [trace(task, sample, float(task < 3)) for task in (1, 2, 3, 4) for sample in range(2)]
    found = summarize(table(traces, repeats=2))["outcomes"]["reward"]
    assert (found["mean"], found["tasks"]) == (0.5, 4)
    assert found["standard_error"] == pytest.approx(math.sqrt(1 / 3) / 2)


def test_coverage_counts_failed_missing_and_retried(table):
    summary = summarize(table([failed(1), trace(1), failed(2), failed(2), trace(3)]))
    assert summary["coverage"] == {
        "requested": 4,
        "completed": 2,
        "failed": 1,
        "missing": 1,
        "coverage": 0.5,
        "failed_attempts": 3,
        "completed_after_retry": 1,
        "failures": {"policy: PolicyUnavailable": 3},
        "last_failure": "x",
    }
    assert summary["outcomes"]["reward"]["tasks"] == 2


def test_steps_actions_and_errors(table):
    error = step(action=None, environment=None, protocol_error={"code": "tool_call_count", "message": "x"})
    invalid = step(environment=answer("unavailable_action"))
    summary = summarize(table([trace(1, steps=[step(), error, error, invalid]), trace(2), trace(3), trace(4)]))
    steps = summary["steps"]
    assert (steps["total"], steps["actions"], steps["invalid_actions"], steps["protocol_errors"]) == (7, 5, 1, 2)
    assert steps["invalid_action_rate"] == 1 / 5
    assert steps["protocol_errors_per_step"] == 2 / 7
    assert steps["protocol_errors_per_task"] == 2 / 4
    assert steps["protocol_errors_by_code"] == {"tool_call_count": 2}
    assert summary["tokens"]["prompt_tokens"] == {"total": 70, "per_episode": 70 / 4}


def test_terminations(table):
    limit = {"reward": 0.0, "termination": "action_limit"}
    summary = summarize(table([trace(1), trace(2, **limit), trace(3, **limit), trace(4)]))
    assert summary["terminations"] == {
        "action_limit": {"count": 2, "share": 0.5},
        "purchase": {"count": 2, "share": 0.5},
    }


def test_wall_time_leaves_pauses_out(table):
    traces = [trace(1, start="00:00", seconds=40.0), trace(2, start="00:00"), trace(3, start="05:00", seconds=10.0)]
    time = summarize(table(traces))["time"]
    assert time["wall_seconds"] == pytest.approx(50.0)
    assert time["episode_seconds_total"] == pytest.approx(52.0)


def test_the_order_of_the_traces_leaves_no_mark(tmp_path):
    traces = [trace(task, reward=task * 0.1) for task in (1, 2, 3, 4)]
    jobs = [EpisodeJob(str(task), 0, task, "val") for task in (1, 2, 3, 4)]
    found = []
    for order in (traces, traces[::-1]):
        log = JsonlLog(tmp_path / f"{len(found)}.jsonl")
        log.append_many(order)
        found.append(summarize(build_table(jobs, read_numbers(log), PARTS, "x")))
    assert found[0] == found[1]


def test_nothing_completed_is_no_division_by_zero(table):
    summary = summarize(table([]))
    assert summary["outcomes"]["reward"] == {"mean": None, "standard_error": None, "tasks": 0}
    assert summary["coverage"]["missing"] == 4
    assert summary["time"]["wall_seconds"] == 0.0


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([trace(1), trace(1)], "completed twice"),
        ([trace(9)], "not in the manifest"),
        ([trace(1, sample=1)], "not in the manifest"),
        ([trace(1, schema="other")], "expected shopsimrl-episode-v4"),
        ([{"schema": "shopsimrl-episode-v4"}], "no episode trace"),
    ],
)
def test_records_that_contradict_the_manifest_are_errors(table, rows, says):
    with pytest.raises(StateCorrupted, match=says):
        table(rows)


def test_a_torn_last_line_is_skipped_and_a_broken_one_before_it_is_not(tmp_path):
    log = JsonlLog(tmp_path / "traces.jsonl")
    log.append_many([trace(1), trace(2)])
    whole = log.path.read_bytes()
    log.path.write_bytes(whole[:-40])
    assert [one.job.task_id for one in read_numbers(log)] == ["1"]
    log.path.write_bytes(whole[:-40] + b"\n" + whole)
    with pytest.raises(StateCorrupted, match=":2: not a JSON record"):
        list(read_numbers(log))


def test_the_fast_reader_agrees_with_the_whole_record(evaluate, read_traces):
    path, summary = evaluate(sample_size=12)
    traces = read_traces(path)
    fields = SimpleNamespace(
        reward=[t["final"]["reward"] for t in traces],
        steps=[len(t["steps"]) for t in traces],
        errors=[s["protocol_error"] is not None for t in traces for s in t["steps"]],
        invalid=[not s["action_feedback"]["valid"] for t in traces for s in t["steps"] if s["action"]],
    )
    assert summary["outcomes"]["reward"]["mean"] == pytest.approx(np.mean(fields.reward))
    assert summary["steps"]["per_episode"]["mean"] == pytest.approx(np.mean(fields.steps))
    assert summary["steps"]["protocol_errors"] == sum(fields.errors)
    assert summary["steps"]["invalid_action_rate"] == pytest.approx(np.mean(fields.invalid))
    assert summary["tokens"]["completion_tokens"]["total"] == 7 * sum(fields.steps)


def test_the_summary_does_not_change_what_it_reads(table):
    rows = [trace(task) for task in (1, 2, 3, 4)]
    before = copy.deepcopy(rows)
    summarize(table(rows))
    assert rows == before
