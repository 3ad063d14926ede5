"""Comparisons for people: a Markdown table and a picture of intervals, written beside the JSON.

The picture needs matplotlib; without it the other two files are written all the same.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intraskill.storage.documents import write_bytes_atomic, write_json_atomic


@dataclass(frozen=True, slots=True)
class Interval:
    """One row of the picture."""

    label: str
    value: float
    low: float
    high: float


def write_page(folder: Path, name: str, record: Mapping[str, Any], markdown: str, rows: Sequence[Interval]) -> None:
    """Write NAME.json, NAME.md and, where matplotlib is installed, NAME.png."""
    write_json_atomic(folder / f"{name}.json", record)
    write_bytes_atomic(folder / f"{name}.md", markdown.encode())
    try:
        picture = draw_intervals(rows)
    except ImportError:
        return
    write_bytes_atomic(folder / f"{name}.png", picture)


def comparison_markdown(record: Mapping[str, Any]) -> str:
    """One comparison as a page."""
    a, b, coverage = record["a"], record["b"], record["coverage"]
    lines = [
        f"# {b['name']} minus {a['name']}",
        "",
        f"{coverage['paired_tasks']} of {coverage['tasks']} tasks paired; coverage {coverage['a']['coverage']:.3f} and "
        f"{coverage['b']['coverage']:.3f}. What changed: {', '.join(record['changed']) or 'nothing'}.",
        "",
        *metric_table(record["metrics"], a["name"], b["name"]),
        "",
        *_success_lines(record["metrics"]["success"]),
        "",
        f"Intervals: percentile bootstrap over tasks, {record['bootstrap']['samples']} samples, seed "
        f"{record['bootstrap']['seed']}.",
    ]
    if {"model", "checkpoint_id"} & set(record["changed"]) and "skills" in record["changed"]:
        lines += ["", "Model and skills both changed: this difference describes, it does not attribute."]
    return "\n".join(lines) + "\n"


def metric_table(metrics: Mapping[str, Any], a: str, b: str) -> list[str]:
    """Markdown rows, one a metric."""
    lines = [f"| metric | {a} | {b} | difference | paired s.e. | 95 % interval |", "|---|---:|---:|---:|---:|---|"]
    for name, row in metrics.items():
        error = "" if row["paired_se"] is None else f"{row['paired_se']:.4f}"
        lines.append(
            f"| {name} | {row['mean_a']:.4f} | {row['mean_b']:.4f} | {row['mean_difference']:+.4f} | {error} | "
            f"{interval_text(row['ci'])} |"
        )
    return lines


def interval_text(ci: Sequence[float]) -> str:
    return f"[{ci[0]:+.4f}, {ci[1]:+.4f}]"


def comparison_intervals(record: Mapping[str, Any]) -> list[Interval]:
    """The picture's rows: every metric that lies between 0 and 1 by its nature."""
    counts = ("steps", "invalid_actions", "protocol_errors")
    shown = {name: row for name, row in record["metrics"].items() if name not in counts}
    return [Interval(name, row["mean_difference"], *row["ci"]) for name, row in shown.items()]


def _success_lines(row: Mapping[str, Any]) -> list[str]:
    moved, hoeffding = row["transitions"], row["hoeffding"]
    if moved is None:
        return ["Success was averaged over repeats, so there are no transitions."]
    return [
        f"Success: {moved['fixed']} tasks fixed, {moved['lost']} lost, {moved['both']} right both times, "
        f"{moved['neither']} wrong both times; exact McNemar p = {row['mcnemar_p']:.4g}. Hoeffding interval "
        f"+-{hoeffding['radius']:.4f}: {hoeffding['decision'].replace('_', ' ')}.",
    ]


def draw_intervals(rows: Sequence[Interval]) -> bytes:
    """A forest plot as PNG: one row a difference, its 95 % interval as a line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    from intraskill.report.plots import STYLE, Theme

    theme = Theme()
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 1.0 + 0.36 * len(rows)), layout="constrained")
        axis = figure.subplots()
        axis.axvline(0, color=theme.muted, linewidth=1)
        for y, row in enumerate(rows):
            color = theme.good if row.low > 0 else theme.bad if row.high < 0 else theme.ink
            axis.plot([row.low, row.high], [y, y], color=color, linewidth=1.8, solid_capstyle="round")
            axis.plot([row.value], [y], "o", color=color, markersize=6)
        axis.set_yticks(range(len(rows)), [row.label for row in rows])
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.set_xlabel("difference, with its 95 % interval over tasks")
        axis.grid(True, axis="x", color=theme.grid, linewidth=0.8)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=160, facecolor=theme.paper, metadata={"Software": None})
    return buffer.getvalue()
