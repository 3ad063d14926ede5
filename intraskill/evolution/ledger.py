"""The memory of skill evolution: every proposal that ever reached the compiler, and what became of it.

`ledger.jsonl` stands in the run folder and only grows. A round adds its rows in one write, after its gate: candidates
with the gate's verdict and effect, and proposals that were dropped before with the reason. A later round reads from it
which texts a gate already turned down. Rows hold deployable text and opaque card names, nothing privileged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from intraskill.storage.jsonl import JsonlLog

LEDGER_SCHEMA = "intraskill-ledger-v1"
REJECTED = frozenset({"non_positive", "rewrite_loser"})


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One proposal of one round. `family` is the logical chunk it competes for, `effect` the gate's coefficient."""

    round: int
    checkpoint: str
    candidate_id: str
    operation: str
    family: str
    mechanism: str
    cards: tuple[str, ...]
    title: str
    applies_when: str
    procedure: tuple[str, ...]
    text_key: str
    result: str
    effect: float | None = None
    standard_error: float | None = None
    rank: int | None = None
    notes: str = ""


class Ledger:
    """The run's ledger. Rows of one round are written once, also when the round is closed again after a kill."""

    def __init__(self, log: JsonlLog) -> None:
        self._log = log

    def rows(self, before_round: int | None = None) -> list[dict[str, Any]]:
        """All rows in the order they were written; with `before_round`, only those of earlier rounds."""
        rows = self._log.read()
        return rows if before_round is None else [row for row in rows if row["round"] < before_round]

    def settle(self, round_index: int, rows: Sequence[LedgerRow]) -> None:
        """Add a round's rows; those it holds already, with the same result, are not repeated."""
        known = {(row["round"], row["candidate_id"], row["result"]) for row in self._log.read()}
        new = [row for row in rows if (row.round, row.candidate_id, row.result) not in known]
        self._log.append_many({"schema": LEDGER_SCHEMA, **asdict(row)} for row in new)


def rejected_texts(rows: Iterable[Mapping[str, Any]]) -> frozenset[tuple[str, str]]:
    """(family kind and name, text key) of everything a gate turned down; an ADD competes for no chunk."""
    return frozenset(
        (row["family"] if row["operation"] == "REWRITE" else "", row["text_key"])
        for row in rows
        if row["result"] in REJECTED
    )
