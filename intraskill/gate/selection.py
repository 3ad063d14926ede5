"""Which chunks stay: from measured coefficients to the next active bank.

A gate compares **interventions**: the texts of the current bank (`kind` "current") and proposed ones ("candidate"),
a candidate being an `ADD` (a new chunk) or a `REWRITE` (another text for a chunk that exists). All texts of one
logical chunk compete for its **slot**. Selection has two rounds:

1. inside a slot the largest coefficient wins, and a tie keeps the current text; the rest are `rewrite_loser`s;
2. the winners of all slots are ranked by coefficient. Those above 0 are `selected` until the budget is used up,
   then `budget_excluded`. A winner at or below 0 goes: `retired` if it was in the bank, else `non_positive`. The
   bank is never padded with chunks that do not help.

A rewrite that wins takes over the logical chunk id, so a chunk's history stays one line. Selected chunks keep the
order of the bank (`order`), not of the ranking, so a prompt changes as little as possible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from intraskill.core.errors import UserError

Status = Literal["selected", "rewrite_loser", "non_positive", "budget_excluded", "retired", "undecided"]


@dataclass(frozen=True, slots=True)
class Contribution:
    """One intervention and its coefficient. `order` is its chunk's place in the bank; versions share it."""

    intervention_id: str
    kind: Literal["current", "candidate"]
    logical_chunk_id: str
    operation: Literal["ADD", "REWRITE"] | None
    order: int
    coefficient: float


@dataclass(frozen=True, slots=True)
class Row:
    """The verdict on one intervention. `rank` counts the winners of slots from 1; losers have none."""

    intervention_id: str
    rank: int | None
    status: Status


@dataclass(frozen=True, slots=True)
class Selection:
    """Verdicts in input order, each slot's winner, and the selected interventions in bank order."""

    rows: tuple[Row, ...]
    replacement_winners: dict[str, str]
    selected_ids: tuple[str, ...]


def select(contributions: Sequence[Contribution], budget: int) -> Selection:
    """Choose at most `budget` interventions. Raises `UserError` for what cannot be compared."""
    check_contributions(contributions, budget)
    winners = _slot_winners(contributions)
    ranked = sorted(winners.values(), key=lambda item: (-item.coefficient, item.order))
    ranks = {item.intervention_id: rank for rank, item in enumerate(ranked, start=1)}
    rows = tuple(_verdict(item, ranks.get(item.intervention_id), budget) for item in contributions)
    chosen = {row.intervention_id for row in rows if row.status == "selected"}
    in_bank_order = sorted((item for item in contributions if item.intervention_id in chosen), key=lambda x: x.order)
    return Selection(
        rows=rows,
        replacement_winners={logical: item.intervention_id for logical, item in winners.items()},
        selected_ids=tuple(item.intervention_id for item in in_bank_order),
    )


def parse_contributions(record: Any) -> list[Contribution]:
    """Check a decoded contributions file: a list of rows, or an object that holds it under `contributions`."""
    rows = record.get("contributions") if isinstance(record, dict) else record
    if not isinstance(rows, list):
        raise UserError('contributions: expected a list of rows, or an object with "contributions"')
    return [_parse_row(row, position) for position, row in enumerate(rows)]


def selection_record(selection: Selection) -> dict[str, Any]:
    """The selection as JSON."""
    return {
        "rows": [
            {"intervention_id": row.intervention_id, "rank": row.rank, "status": row.status} for row in selection.rows
        ],
        "replacement_winners": selection.replacement_winners,
        "selected_intervention_ids": list(selection.selected_ids),
    }


def _slot_winners(contributions: Sequence[Contribution]) -> dict[str, Contribution]:
    """The best version of each logical chunk; between equals the current one, then the one listed first."""
    winners: dict[str, Contribution] = {}
    for item in contributions:
        best = winners.get(item.logical_chunk_id)
        if best is None or _strength(item) > _strength(best):
            winners[item.logical_chunk_id] = item
    return winners


def _strength(item: Contribution) -> tuple[float, bool]:
    return item.coefficient, item.kind == "current"


def _verdict(item: Contribution, rank: int | None, budget: int) -> Row:
    status: Status
    if rank is None:
        status = "rewrite_loser"
    elif item.coefficient > 0:
        status = "selected" if rank <= budget else "budget_excluded"
    else:
        status = "retired" if item.kind == "current" else "non_positive"
    return Row(item.intervention_id, rank, status)


def check_contributions(contributions: Sequence[Contribution], budget: int) -> None:
    """Refuse what cannot be compared. Raises `UserError`."""
    if budget < 1:
        raise UserError(f"budget is {budget}; allow at least one active chunk")
    seen: set[str] = set()
    current: dict[str, str] = {}
    for item in contributions:
        name = item.intervention_id
        if not math.isfinite(item.coefficient):
            raise UserError(f"contributions: {name!r} has the coefficient {item.coefficient}; it must be finite")
        if name in seen:
            raise UserError(f"contributions: {name!r} stands there twice; intervention ids must differ")
        seen.add(name)
        if item.kind == "current":
            other = current.setdefault(item.logical_chunk_id, name)
            if other != name:
                raise UserError(
                    f"contributions: {other!r} and {name!r} are both current texts of {item.logical_chunk_id!r}; "
                    "a chunk has one current text, the others are candidates"
                )


def _parse_row(row: Any, position: int) -> Contribution:
    where = f"contributions[{position}]"
    if not isinstance(row, dict):
        raise UserError(f"{where} must be an object, not {row!r}")
    for key in Contribution.__dataclass_fields__:
        if key not in row and key != "operation":
            raise UserError(f'{where}: "{key}" is missing')
    for key in ("intervention_id", "logical_chunk_id"):
        if not isinstance(row[key], str) or not row[key]:
            raise UserError(f"{where}: {key} is {row[key]!r}; it must be a text")
    operations = {"current": (None,), "candidate": ("ADD", "REWRITE")}
    if row["kind"] not in tuple(operations):
        raise UserError(f'{where}: kind is {row["kind"]!r}; it must be "current" or "candidate"')
    operation = row.get("operation")
    if operation not in operations[row["kind"]]:
        wanted = " or ".join(str(name) for name in operations[row["kind"]]).replace("None", "null")
        raise UserError(f"{where}: operation is {operation!r}; for kind {row['kind']!r} it must be {wanted}")
    if type(row["order"]) is not int:
        raise UserError(f"{where}: order is {row['order']!r}; it must be a whole number")
    if type(row["coefficient"]) not in (int, float):
        raise UserError(f"{where}: coefficient is {row['coefficient']!r}; it must be a finite number")
    return Contribution(
        intervention_id=row["intervention_id"],
        kind=row["kind"],
        logical_chunk_id=row["logical_chunk_id"],
        operation=operation,
        order=row["order"],
        coefficient=float(row["coefficient"]),
    )
