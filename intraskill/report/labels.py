"""What a report calls things: a gate's decision on a chunk, and a chunk's name beside others of the same title.

The words are those of `intraskill bank history`. A row is one entry of a gate's `contributions.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]


def decision(row: Row) -> str:
    """Kept, left or replaced for a chunk of the bank; added, rewritten or turned down for a candidate; or undecided."""
    status, candidate = str(row.get("status", "-")), row.get("kind") == "candidate"
    if status == "selected":
        return ("rewritten" if row.get("operation") == "REWRITE" else "added") if candidate else "kept"
    if status == "undecided":
        return "undecided" if candidate else "undecided, stays"
    if status == "budget_excluded":
        return "no room"
    if status == "rewrite_loser":
        return "turned down" if candidate else "replaced"
    return {"retired": "left", "non_positive": "turned down" if candidate else "left"}.get(status, status)


def text_name(row: Row) -> str:
    """A chunk's id; a rewrite goes by the id of the chunk it would replace."""
    if row.get("kind") == "candidate" and row.get("operation") == "REWRITE":
        return f"{row['logical_chunk_id']} (new text)"
    return str(row["intervention_id"])


def origin(row: Row, round_index: int) -> str:
    """How a text came into the run: nothing for one of the first bank."""
    if row.get("kind") != "candidate":
        return ""
    return f"{'new text' if row.get('operation') == 'REWRITE' else 'new chunk'}, round {round_index}"
