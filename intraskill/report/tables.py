"""Tables for the terminal, 80 columns wide: one row per round, and one row per chunk of a gate."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE
from rich.console import Group
from rich.table import Table
from rich.text import Text

from intraskill.report.labels import decision, text_name
from intraskill.report.rounds import RoundSummary, summarize_rounds
from intraskill.report.run_data import GateFile, RunData, read_run


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def points(value: float | None) -> str:
    """A difference of two rates, in percentage points with its sign."""
    return "-" if value is None else f"{100 * value:+.1f}"


def round_table(run_dir: Path | str, round_index: int | None = None) -> Group:
    """All rounds so far and, with `round_index`, every chunk of the gate that closed that round."""
    data = read_run(run_dir)
    gates = [gate for gate in data.gates if gate.round == round_index]
    return Group(rounds_table(data), *(gate_table(gate) for gate in gates))


def rounds_table(data: RunData) -> Group:
    """One row per round so far: training, validation without and with skills, and the bank."""
    table = _table()
    for heading in ("round", "step", "training", "no\nskill", "greedy", "masked", "full\nbank", "gap", "bank"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("dropped", overflow="fold")
    for summary in summarize_rounds(data):
        table.add_row(*_cells(summary))
    return Group(Text(f"{data.name}: success in % of validation tasks"), table)


def _cells(summary: RoundSummary) -> list[Text]:
    cells = [
        summary.label,
        str(summary.step),
        percent(summary.train_success),
        percent(summary.skill_free),
        percent(summary.skill_free_greedy),
        percent(summary.masked),
        percent(summary.equipped),
        points(summary.gap),
        "-" if summary.kept is None else str(len(summary.kept)),
        ", ".join(summary.dropped) or "-",
    ]
    return [Text(cell) for cell in cells]


def gate_table(gate: GateFile) -> Group:
    """One row per chunk of a gate: its coefficient, both standard errors, and what was decided. Below it, what the
    candidates are about: their ids say nothing to a reader."""
    name = "the initial bank" if gate.round < 0 else f"round {gate.round}"
    title = f"gate of {name}: what a chunk adds to the mean reward, {gate.observations} paired tasks"
    table = _table()
    table.add_column("chunk", overflow="fold")
    for heading in ("effect", "se", "se (HC3)", "t"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("decision", no_wrap=True)
    for row in gate.measured:
        beta, error = float(row["coefficient"]), row.get("standard_error")
        table.add_row(
            Text(text_name(row)),
            Text(f"{beta:+.3f}"),
            Text(_decimal(error)),
            Text(_decimal(row.get("standard_error_hc3"))),
            Text(f"{beta / error:+.1f}" if error else "-"),
            Text(decision(row)),
        )
    candidates = [row for row in gate.measured if row["kind"] == "candidate"]
    notes = [Text(f" {text_name(row)}: {row.get('title') or row['intervention_id']}") for row in candidates]
    return Group(Text(title), table, *notes, *([Text()] if notes else []))


def _table() -> Table:
    """An empty table without rules between columns: they would leave too little room for words."""
    return Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
