"""Tables for the terminal: one row per round, and one row per chunk of a gate."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

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


def rounds_table(data: RunData) -> Table:
    """One row per round so far: training, validation without and with skills, and the bank."""
    table = Table(title=Text(f"{data.name}: success in % of validation tasks"), title_justify="left")
    for heading in ("round", "step", "training", "no skill", "greedy", "masked", "full bank", "gap", "bank", "dropped"):
        table.add_column(heading, justify="left" if heading == "dropped" else "right")
    for summary in summarize_rounds(data):
        table.add_row(*_cells(summary))
    return table


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


def gate_table(gate: GateFile) -> Table:
    """One row per chunk of a gate: its coefficient, both standard errors, and what was decided."""
    name = "the initial bank" if gate.round < 0 else f"round {gate.round}"
    table = Table(title=Text(f"gate of {name}: {gate.observations} paired tasks"), title_justify="left")
    for heading in ("chunk", "coefficient", "se", "se (HC3)", "t", "decision"):
        table.add_column(heading, justify="left" if heading in ("chunk", "decision") else "right")
    for row in gate.measured:
        beta, error = float(row["coefficient"]), row.get("standard_error")
        table.add_row(
            Text(str(row["intervention_id"])),
            Text(f"{beta:+.3f}"),
            Text(_decimal(error)),
            Text(_decimal(row.get("standard_error_hc3"))),
            Text(f"{beta / error:+.1f}" if error else "-"),
            Text(str(row.get("status", "-"))),
        )
    return table


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
