"""What became of every chunk of a run, read from its files.

A chunk's history is a list of events: it was there from the start, or came as a candidate on the evidence of so many
cards; gates measured it; it was rewritten; it left, and why. A gate that was completed only after the next round had
begun changed no bank, and its events say so. Each event carries the gate's coefficient with a 95 %
interval (from the classical standard error, as published), so a reader can judge the decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from intraskill.core.errors import UserError
from intraskill.skills.bank import Bank, Chunk, read_bank
from intraskill.storage.documents import read_json
from intraskill.storage.run_documents import GateShape
from intraskill.storage.run_folder import RunFolder

_LEFT = {
    "retired": "it does not help",
    "non_positive": "the gate found no benefit",
    "budget_excluded": "better chunks fill the budget",
    "rewrite_loser": "another wording did better",
    "undecided": "nothing proves it better or worse",
}
_Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Event:
    """One gate's word on one text of a chunk. `round` -1 is the gate before the first step."""

    chunk: str
    text: str
    round: int
    step: int
    event: str
    coefficient: float | None
    interval: tuple[float, float] | None
    cards: int
    why: str
    title: str


def banks_of(run: Path) -> dict[int, Bank]:
    """The bank of each round that was set up, and under the next number what the latest gate selected."""
    folder = RunFolder(run)
    banks: dict[int, Bank] = {}
    for index in _rounds(run):
        path = folder.round_dir(index) / "skill_bank.json"
        if path.exists():
            banks[index] = read_bank(path)
    last = max(banks, default=-1)
    selected = folder.gate_dir(last) / "selected_skill_bank.json"
    if selected.exists():
        banks[last + 1] = read_bank(selected)
    if not banks:
        raise UserError(f"{run}: there is no skill bank yet; give the folder of a run that has started")
    return banks


def bank_history(run: Path) -> list[Event]:
    """All events of all chunks, gate by gate in pool order."""
    folder = RunFolder(run)
    evidence = {row["candidate_id"]: len(row["cards"]) for row in folder.ledger.read()}
    events: list[Event] = []
    for index in (-1, *_rounds(run)):
        path = folder.gate_dir(index) / "contributions.json"
        if path.exists():
            late = _late(folder, index)
            events += _gate_events(read_json(path, None, GateShape), index, evidence, late)
            rewritten = (event for event in events if event.event == "rewritten" and event.round == index)
            evidence |= {event.chunk: event.cards for event in rewritten}  # its text now rests on these cards
    return events


def _late(folder: RunFolder, index: int) -> bool:
    """Whether the round after this gate has another bank than the gate selected."""
    selected, after = folder.gate_dir(index) / "selected_skill_bank.json", folder.round_dir(index + 1)
    return (
        selected.exists()
        and (after / "skill_bank.json").exists()
        and read_bank(selected) != read_bank(after / "skill_bank.json")
    )


def _rounds(run: Path) -> list[int]:
    names = [path.name.removeprefix("round-") for path in run.glob("rounds/round-*")]
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def event_record(event: Event) -> dict[str, Any]:
    return asdict(event)


def bank_difference(old: Bank, new: Bank) -> dict[str, list[str]]:
    """Chunks by what happened to them between two banks."""
    before, after = {c.skill_id: c for c in old.chunks}, {c.skill_id: c for c in new.chunks}
    both = [skill_id for skill_id in after if skill_id in before]
    return {
        "added": [skill_id for skill_id in after if skill_id not in before],
        "removed": [skill_id for skill_id in before if skill_id not in after],
        "rewritten": [skill_id for skill_id in both if _said(before[skill_id]) != _said(after[skill_id])],
        "unchanged": [skill_id for skill_id in both if _said(before[skill_id]) == _said(after[skill_id])],
    }


def _gate_events(gate: Mapping[str, Any], index: int, evidence: Mapping[str, int], late: bool) -> Iterator[Event]:
    for row in gate["contributions"]:
        coefficient, error = row.get("coefficient"), row.get("standard_error")
        interval = None
        if coefficient is not None and error is not None:
            interval = (coefficient - _Z * error, coefficient + _Z * error)
        event, why = _verdict(row, gate.get("complete", True))
        if late and event in ("added", "rewritten", "replaced", "left"):
            event, why = "not taken up", "measured when the next round had begun"
        yield Event(
            chunk=row["logical_chunk_id"],
            text=row["intervention_id"],
            round=index,
            step=gate["step"],
            event=event,
            coefficient=coefficient,
            interval=interval,
            cards=evidence.get(row["intervention_id"], 0),
            why=why,
            title=row.get("title", ""),
        )


def _verdict(row: Mapping[str, Any], complete: bool) -> tuple[str, str]:
    if not complete:
        return "not measured", "the gate is incomplete, the bank stayed"
    status, candidate = row.get("status", ""), row["kind"] == "candidate"
    if status == "selected":
        if not candidate:
            return "kept", ""
        return ("rewritten" if row.get("operation") == "REWRITE" else "added"), ""
    if status == "rewrite_loser" and not candidate:
        return "replaced", _LEFT[status]
    if status == "undecided":
        return ("undecided, not taken" if candidate else "undecided, stays"), _LEFT[status]
    return ("turned down" if candidate else "left"), _LEFT.get(status, str(status))


def _said(chunk: Chunk) -> dict[str, Any]:
    return chunk.visible()
