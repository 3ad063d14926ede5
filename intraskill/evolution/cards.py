"""Cards on disk, and what may leave them.

A card says everything about one analysed episode, in a private and a deployable part (`families.analysis`). What later
stages accept is a third type, a `Lesson`, which has no place for anything privileged. Only `firewall.release` makes
lessons of cards. So a leak is not a matter of care in the compiler, the gate or the report: they never hold the private
part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from intraskill.core.errors import StateCorrupted
from intraskill.families.analysis import Abstraction, Card, Channel, PrivilegedAudit
from intraskill.skills.bank import Chunk
from intraskill.storage.jsonl import JsonlLog

CARD_SCHEMA = "intraskill-card-v1"

Operation = Literal["ADD", "REWRITE"]


@dataclass(frozen=True, slots=True)
class Lesson:
    """What may leave a card: made by `firewall.release` alone."""

    card_id: str
    channel: Channel
    operation: Operation
    target: str | None
    abstraction: Abstraction


def card_record(card: Card) -> dict[str, Any]:
    """The card as a row of `cards.jsonl`."""
    return {"schema": CARD_SCHEMA, **asdict(card)}


def parse_card(record: Mapping[str, Any]) -> Card:
    """Read back what `card_record` wrote."""
    values = {item.name: record[item.name] for item in fields(Card)}
    audit, abstraction = values["privileged_audit"], values["deployable_abstraction"]
    values["privileged_audit"] = PrivilegedAudit(**{**audit, "repair": tuple(audit["repair"])})
    if abstraction is not None:
        values["deployable_abstraction"] = parse_abstraction(abstraction)
    return Card(**values)


def read_cards(log: JsonlLog) -> list[Card]:
    """All cards of a log. Raises `StateCorrupted` naming the line that is none."""
    cards = []
    for number, row in enumerate(log.read(), start=1):
        try:
            cards.append(parse_card(row))
        except (KeyError, TypeError) as error:
            raise StateCorrupted(f"{log.path}:{number}: not a card ({error}); restore the file") from error
    return cards


def parse_abstraction(record: Mapping[str, Any]) -> Abstraction:
    return Abstraction(**{**record, "procedure": tuple(record["procedure"])})


def text_key(applies_when: str, procedure: tuple[str, ...]) -> str:
    """Two texts that read the same have the same key."""
    folded = "\n".join(" ".join(part.lower().split()) for part in (applies_when, *procedure))
    return hashlib.sha256(folded.encode()).hexdigest()[:16]


def chunk_key(chunk: Chunk) -> str:
    return text_key(chunk.applies_when, chunk.procedure)
