"""What a run directory says about itself, as a dictionary for programs and a few lines for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from intraskill.report.rounds import RoundSummary, summarize_rounds
from intraskill.report.run_data import RunData, read_run
from intraskill.report.tables import percent, points
from intraskill.storage.lock import lock_holder

SCHEMA = "intraskill-status-v1"


def status(run_dir: Path | str) -> dict[str, Any]:
    """The run's progress, its latest numbers, its bank, and which process holds it. Raises `UserError`."""
    data = read_run(run_dir)
    summaries = summarize_rounds(data)
    measured = [summary for summary in summaries if summary.skill_free is not None]
    report = data.path / "report" / "index.html"
    process = lock_holder(data.path)
    return {
        "schema": SCHEMA,
        "name": data.name,
        "path": str(data.path),
        "state": _state(data, process),
        "process": process,
        "finished": data.finished,
        "step": data.step,
        "total_steps": data.total_steps,
        "rounds_closed": int(data.state.get("rounds_closed", data.state.get("round", 0))),
        "rounds": int(data.settings.get("rounds", 0)),
        "train_success_last_step": data.steps[-1].get(data.outcome("success_rate")) if data.steps else None,
        "validation_first": _validation(measured[0]) if measured else None,
        "validation_last": _validation(measured[-1]) if measured else None,
        "bank": _bank(data),
        "report": str(report) if report.exists() else None,
    }


def _state(data: RunData, process: int | None) -> str:
    if data.finished:
        return "finished"
    if process is not None:
        return "running"
    return "stopped" if data.steps or data.gate_rows else "not started"


def _validation(summary: RoundSummary) -> dict[str, Any]:
    return {
        "step": summary.step,
        "skill_free": summary.skill_free,
        "skill_free_greedy": summary.skill_free_greedy,
        "equipped": summary.equipped,
        "gap": summary.gap,
    }


def _bank(data: RunData) -> list[str]:
    """The chunks in force now: what the latest gate left, else the bank of the latest round."""
    if data.gates:
        return list(data.gates[-1].kept)
    return [str(chunk["skill_id"]) for chunk in data.banks[-1].chunks] if data.banks else []


def render_status(report: dict[str, Any]) -> str:
    """`status()` as a few aligned lines."""
    total = f" of {report['total_steps']}" if report["total_steps"] else ""
    process = f" (process {report['process']})" if report["process"] else ""
    lines = [
        ("run", f"{report['name']}  ({report['path']})"),
        ("state", report["state"] + process),
        ("progress", f"step {report['step']}{total}, {report['rounds_closed']} of {report['rounds']} rounds closed"),
        ("training", f"{percent(report['train_success_last_step'])} % success in the last step"),
        *_validation_lines(report),
        ("bank", ", ".join(report["bank"]) or "empty"),
        ("report", report["report"] or f"none yet; write it with: intraskill report {report['path']}"),
    ]
    return "\n".join(f"{name:<11}{text}" for name, text in lines)


def _validation_lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    first, last = report["validation_first"], report["validation_last"]
    if last is None:
        return [("validation", "not measured yet")]
    text = f"{percent(last['skill_free'])} % without skills at step {last['step']}"
    if last["step"] != first["step"]:
        text += f" ({points(last['skill_free'] - first['skill_free'])} points since the start)"
    if last["equipped"] is not None:
        text += f", {percent(last['equipped'])} % with the full bank"
    return [("validation", text)]
