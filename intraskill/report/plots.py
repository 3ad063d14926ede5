"""The four pictures of a run, drawn with matplotlib.

`training`: what the learner saw, step by step. `validation`: the same tasks without skills, with random subsets and
with the whole bank. `chunks`: each chunk's measured effect with its 95 % interval, gate by gate. `bank`: which chunks
were in force in which round, and how often they were shown.

A picture is drawn in the colours of a `Theme`. The page embeds the same SVG with CSS variables in their place, so
that one drawing fits a light and a dark page.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from intraskill.report.labels import origin
from intraskill.report.run_data import GateFile, Row, RunData

Z95 = 1.959964
WIDTH = 9.0  # inches; the same for all, so that text comes out equally large
TRAILING = 5
GATES_SHOWN = 6

STYLE: dict[Any, Any] = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "font.size": 9.5,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "legend.frameon": False,
    "lines.linewidth": 2.0,
}


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours by role. All differ, so that a page can tell the roles apart in the finished SVG."""

    ink: str = "#1f2933"
    muted: str = "#8b95a1"
    grid: str = "#e3e7ec"
    paper: str = "#ffffff"
    free: str = "#2f6fb3"
    greedy: str = "#7aa6d6"
    equipped: str = "#d9822b"
    masked: str = "#8e6bb0"
    good: str = "#2a8f6d"
    bad: str = "#c8473f"


ROLES = tuple(Theme.__dataclass_fields__)

CONDITIONS = {
    "skill_free": ("no skill", "free", "-"),
    "skill_free_greedy": ("no skill, greedy", "greedy", "--"),
    "masked": ("random half of the chunks", "masked", ":"),
    "equipped": ("full bank", "equipped", "-"),
}


def clean(text: Any, limit: int = 44) -> str:
    """Text as a label: one line, no control characters, cut to `limit` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def trailing_mean(values: Sequence[float], width: int = TRAILING) -> list[float]:
    """Mean of each value and the up to `width - 1` before it."""
    return [
        sum(values[max(0, i - width + 1) : i + 1]) / len(values[max(0, i - width + 1) : i + 1])
        for i in range(len(values))
    ]


def draw_training(data: RunData, theme: Theme) -> Figure | None:
    """Reward and success of every training step, with their trailing mean."""
    if not data.steps:
        return None
    figure, axes = _canvas(theme, WIDTH, 3.1, columns=2)
    steps = [int(row["step"]) for row in data.steps]
    keys = data.outcome("success_rate"), data.outcome("reward_mean")
    for axis, key, title in zip(axes, keys, ("Success in training episodes", "Mean reward in training")):
        points = [(step, float(row[key])) for step, row in zip(steps, data.steps) if row.get(key) is not None]
        xs, ys = [x for x, _ in points], [y for _, y in points]
        axis.plot(xs, ys, "o", color=theme.greedy, markersize=3.5, label="one step")
        axis.plot(xs, trailing_mean(ys), color=theme.free, label=f"mean of the last {TRAILING} steps")
        _round_lines(axis, data, theme)
        axis.set_title(title, color=theme.ink)
        axis.set_xlabel("training step")
        axis.set_ylim(0, 1)
    axes[0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _legend(axes[1], theme)
    return figure


def draw_validation(data: RunData, theme: Theme) -> Figure | None:
    """Validation success by training step: without skills, with random subsets, with the whole bank."""
    series = {name: data.series(name, "success_rate") for name in CONDITIONS}
    if not any(series.values()):
        return None
    figure, (axis,) = _canvas(theme, WIDTH, 3.7)
    for name, (label, role, line) in CONDITIONS.items():
        if not series[name]:
            continue
        xs, ys = zip(*series[name])
        color = getattr(theme, role)
        axis.plot(xs, ys, line, color=color, marker="o", markersize=5, label=label)
        bounds = [Z95 * error for error in _errors(data, name, xs)]
        axis.errorbar(xs, ys, yerr=bounds, fmt="none", color=color, ecolor=color, elinewidth=1.2, capsize=3)
    _shade_gap(axis, series, theme)
    axis.set_title("Success on the validation tasks", color=theme.ink)
    axis.set_xlabel("training step")
    axis.set_ylim(0, 1)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _legend(axis, theme)
    return figure


def _shade_gap(axis: Any, series: dict[str, list[tuple[int, float]]], theme: Theme) -> None:
    bare, equipped = dict(series["skill_free"]), dict(series["equipped"])
    shared = sorted(bare.keys() & equipped.keys())
    if len(shared) > 1:
        low, high = [bare[x] for x in shared], [equipped[x] for x in shared]
        axis.fill_between(
            shared, low, high, color=theme.equipped, alpha=0.10, linewidth=0, label="what the bank still adds"
        )


def _errors(data: RunData, condition: str, steps: Sequence[int]) -> list[float]:
    """Standard errors of the success rates; 0 where unknown."""
    known = {
        int(row["step"]): float(row["success_se"])
        for row in data.evaluations
        if row.get("condition") == condition and row.get("success_se") is not None
    }
    return [known.get(step, 0.0) for step in steps]


def draw_chunks(data: RunData, theme: Theme) -> Figure | None:
    """A forest plot: one panel a gate, one row a chunk, its effect on the reward with the 95 % interval."""
    gates = [gate for gate in data.gates if gate.measured]
    if not gates:
        return None
    gates = gates if len(gates) <= GATES_SHOWN else [gates[0], *gates[-(GATES_SHOWN - 1) :]]
    names = _by_family([row for gate in gates for row in gate.measured])
    labels = _labels(data, names)
    height = 1.1 + sum(0.46 if "\n" in label else 0.34 for label in labels)
    figure, axes = _canvas(theme, WIDTH, height, columns=len(gates), share=True)
    for axis, gate in zip(axes, gates):
        _forest(axis, gate, names, theme)
        axis.set_title("start" if gate.round < 0 else f"round {gate.round}", color=theme.ink)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.xaxis.set_major_locator(MaxNLocator(3))
    axes[0].set_yticks(range(len(names)), labels)
    for axis in axes[1:]:
        axis.tick_params(axis="y", left=False)
        axis.spines["left"].set_visible(False)
    caption = "effect on the reward of having the chunk in the prompt   (filled: stays in the bank, hollow: does not)"
    figure.supxlabel(caption, fontsize=9.5, color=theme.ink)
    return figure


def _forest(axis: Any, gate: GateFile, names: Sequence[str], theme: Theme) -> None:
    axis.axvline(0, color=theme.muted, linewidth=1)
    for row in gate.measured:
        y = names.index(str(row["intervention_id"]))
        beta, error = float(row["coefficient"]), float(row.get("standard_error") or 0.0)
        kept = row.get("status", "selected") == "selected"
        color = theme.good if kept else theme.bad
        axis.plot([beta - Z95 * error, beta + Z95 * error], [y, y], color=color, linewidth=1.8, solid_capstyle="round")
        axis.plot([beta], [y], "o", color=color, markerfacecolor=color if kept else theme.paper, markersize=6)


def _by_family(rows: Sequence[Row]) -> list[str]:
    """The ids of all texts, those of one chunk below each other, otherwise in order of appearance."""
    families: dict[str, list[str]] = {}
    for row in rows:
        name = str(row["intervention_id"])
        families.setdefault(str(row.get("logical_chunk_id") or name), []).append(name)
    return list(dict.fromkeys(name for family in families.values() for name in family))


def _labels(data: RunData, names: Sequence[str]) -> list[str]:
    """Titles for the rows of a picture; those that came during the run say so, on a second line."""
    origins = {
        str(row["intervention_id"]): origin(row, gate.round)
        for gate in reversed(data.gates)
        for row in gate.contributions
    }
    titles = data.titles()
    return [clean(titles.get(name, name)) + (f"\n({origins[name]})" if origins.get(name) else "") for name in names]


def draw_bank(data: RunData, theme: Theme) -> Figure | None:
    """Rows: chunks; columns: rounds. A filled cell was in the bank; its number is the inclusion probability."""
    if not data.banks:
        return None
    names = list(dict.fromkeys(str(chunk["skill_id"]) for bank in data.banks for chunk in bank.chunks))
    figure, (axis,) = _canvas(theme, WIDTH, 0.6 + 0.42 * max(1, len(names)))
    for column, bank in enumerate(data.banks):
        for chunk in bank.chunks:
            row = names.index(str(chunk["skill_id"]))
            rho = bank.probabilities.get(str(chunk["skill_id"]))
            axis.barh(row, 0.9, 0.78, left=column - 0.45, color=theme.good, alpha=0.2 + 0.6 * (rho or 0.0), linewidth=0)
            axis.text(column, row, "kept" if rho is None else f"{rho:.2f}", ha="center", va="center", color=theme.ink)
    axis.set_xlim(-0.5, len(data.banks) - 0.5)
    axis.set_ylim(max(1, len(names)) - 0.5, -0.5)
    axis.set_yticks(range(len(names)), _labels(data, names))
    labels = [f"round {bank.round}" if bank.probabilities else "final" for bank in data.banks]
    axis.set_xticks(range(len(labels)), labels)
    axis.grid(False)
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    return figure


PICTURES: dict[str, Callable[[RunData, Theme], Figure | None]] = {
    "validation": draw_validation,
    "training": draw_training,
    "chunks": draw_chunks,
    "bank": draw_bank,
}


def _canvas(
    theme: Theme, width: float, height: float, columns: int = 1, share: bool = False
) -> tuple[Figure, list[Any]]:
    """A transparent figure with `columns` axes, coloured by the theme."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.subplots(1, columns, squeeze=False, sharex=share, sharey=share)[0]
    for axis in axes:
        axis.patch.set_alpha(0)
        axis.grid(True, color=theme.grid, linewidth=0.8)
        axis.set_axisbelow(True)
        axis.tick_params(colors=theme.ink)
        axis.xaxis.label.set_color(theme.ink)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
        for spine in axis.spines.values():
            spine.set_color(theme.muted)
    return figure, list(axes)


def _round_lines(axis: Any, data: RunData, theme: Theme) -> None:
    """A thin line where each round ended."""
    for gate in data.gates:
        if gate.step > 0:
            axis.axvline(gate.step + 0.5, color=theme.muted, linewidth=0.8, linestyle=(0, (2, 3)))


def _legend(axis: Any, theme: Theme) -> None:
    axis.legend(loc="lower right", labelcolor=theme.ink, fontsize=8.5, ncols=2)


def _render(figure: Figure, kind: str, theme: Theme, **options: Any) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format=kind, facecolor=theme.paper, **options)
    return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class Picture:
    """One drawing in both file formats."""

    svg: bytes
    png: bytes


def draw_pictures(data: RunData) -> dict[str, Picture]:
    """Every picture there is something to show on, by name, in the order of the page."""
    theme = Theme()
    pictures = {}
    for name, draw in PICTURES.items():
        with matplotlib.rc_context(STYLE | {"svg.hashsalt": name}):
            figure = draw(data, theme)
            if figure is not None:
                svg = _render(figure, "svg", theme, metadata={"Date": None})
                pictures[name] = Picture(svg, _render(figure, "png", theme, dpi=160))
    return pictures


def inline_svg(svg: bytes, label: str) -> str:
    """The picture as an SVG element for a page, its colours as CSS variables named by role."""
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, count=1, flags=re.DOTALL)
    theme = Theme()
    for role in ROLES:
        text = text.replace(getattr(theme, role), f"var(--{role})")
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
