"""`intraskill bank`: what stands in a run's skill bank, and how it came there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from intraskill.assets import PREFIX, bank_path
from intraskill.commands.output import print_json
from intraskill.core.errors import UserError
from intraskill.core.progress import LOG_WIDTH
from intraskill.evolution.history import Event, bank_difference, bank_history, banks_of, event_record
from intraskill.skills.bank import Bank, bank_record, read_bank, render_chunk

bank_app = typer.Typer(help="What stands in a skill bank, and how it came there.", no_args_is_help=True)

AS_JSON = typer.Option(False, "--json", help="One JSON value instead of text.")
WHICH = "A run folder, a bank file, or builtin:NAME."


@bank_app.command()
def show(
    source: str = typer.Argument(..., metavar="RUN", help=WHICH),
    round_index: int | None = typer.Option(None, "--round", help="The bank of this round; default: the latest."),
    as_json: bool = AS_JSON,
) -> None:
    """Show a bank, every chunk as the policy sees it.

    With what a gate measured.
    """
    bank = _bank(source, round_index)
    if as_json:
        print_json(bank_record(bank))
        return
    for chunk in bank.chunks:
        measured = "not measured" if chunk.contribution is None else f"contribution {chunk.contribution:+.3f}"
        print(f"{render_chunk(chunk, 'full')}\n\n({chunk.skill_id}, version {chunk.version}, {measured})\n")
    if not bank.chunks:
        print("The bank is empty.")


@bank_app.command()
def diff(
    old: str = typer.Argument(..., metavar="OLD", help=WHICH),
    new: str = typer.Argument("", metavar="NEW", help=f"{WHICH} Left out: two rounds of the run OLD."),
    old_round: int | None = typer.Option(None, "--from", help="Round of OLD; default: the first of the run."),
    new_round: int | None = typer.Option(None, "--to", help="Round of NEW; default: the latest."),
    as_json: bool = AS_JSON,
) -> None:
    """Compare two banks: what was added, removed, rewritten."""
    if not new and not Path(old).is_dir():
        raise UserError(f"{old} is no run folder, so it has no two banks to compare; name a second bank")
    first = _bank(old, old_round if old_round is not None or new else _first_round(old))
    second = _bank(new or old, new_round)
    changes = bank_difference(first, second)
    if as_json:
        print_json(changes)
        return
    signs = {"added": "+", "removed": "-", "rewritten": "~", "unchanged": " "}
    for kind, sign in signs.items():
        for skill_id in changes[kind]:
            before = "" if kind == "added" else render_chunk(first.chunk(skill_id), "compact")
            after = "" if kind == "removed" else render_chunk(second.chunk(skill_id), "compact")
            text = f"{before} -> {after}" if kind == "rewritten" else before or after
            print(f"{sign} {skill_id}: {text}")


@bank_app.command()
def history(
    run: Path = typer.Argument(..., help="A run folder."),
    as_json: bool = AS_JSON,
) -> None:
    """What became of every chunk, gate by gate.

    When it came, on how many cards, what each gate measured, and why it left.
    """
    if not run.is_dir():
        raise UserError(f"{run}: no such run folder; check the path")
    events = bank_history(run)
    if as_json:
        print_json([event_record(event) for event in events])
        return
    if not events:
        raise UserError(f"{run}: no gate has run yet; give the folder of a run that has closed a round")
    print(f"{run.name}: chunks at each gate")
    Console(highlight=False, width=None if sys.stdout.isatty() else LOG_WIDTH).print(_history_table(events))


def _history_table(events: Sequence[Event]) -> Table:
    """One row per chunk and gate, each gate under its own heading; fits 80 columns."""
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("chunk", overflow="fold", min_width=25)  # the id of a new text, in brackets, is not broken
    table.add_column("effect", justify="right", no_wrap=True)
    table.add_column("95 % interval", no_wrap=True)
    table.add_column("cards", justify="right", no_wrap=True)
    table.add_column("event")
    for round_index, group in groupby(events, key=lambda event: event.round):
        rows = list(group)
        name = "start" if round_index < 0 else f"round {round_index}"
        table.add_row(Text(f"{name}, step {rows[0].step}", style="bold"))
        for event in rows:
            table.add_row(*map(Text, _cells(event)))
        table.add_section()
    return table


def _cells(event: Event) -> list[str]:
    name = event.chunk if event.text == event.chunk else f"{event.chunk} ({event.text})"
    effect = "-" if event.coefficient is None else f"{event.coefficient:+.3f}"
    interval = "-" if event.interval is None else f"{event.interval[0]:+.3f} to {event.interval[1]:+.3f}"
    why = event.why or (event.title if event.event == "added" else "")
    return [name, effect, interval, str(event.cards or "-"), f"{event.event}: {why}" if why else event.event]


def _bank(source: str, round_index: int | None) -> Bank:
    path = Path(source)
    if source.startswith(PREFIX) or path.is_file():
        return read_bank(bank_path(source))
    if not path.is_dir():
        raise UserError(f"{source}: no such run folder or bank file; check the path")
    banks = banks_of(path)
    index = max(banks) if round_index is None else round_index
    if index not in banks:
        raise UserError(f"{source}: round {index} has no bank; it has rounds {', '.join(map(str, sorted(banks)))}")
    return banks[index]


def _first_round(source: str) -> int | None:
    path = Path(source)
    return min(banks_of(path)) if path.is_dir() else None
