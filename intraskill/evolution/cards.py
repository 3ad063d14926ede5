"""Evidence of one trajectory, in two parts that never mix.

A **card** is what an analyst found out about one episode. Its `PrivilegedAudit` says everything: the task, the goal,
the decision that went wrong, the purchase that proves the repair. It stays on disk, in `analysis/cards.jsonl`. Its
`Abstraction` is the deployable part: a mechanism in general words, written as a chunk would be.

The two are different types, and what later stages accept is a third one: a `Lesson`, which has no place for anything
privileged. Only `firewall.release` makes lessons of cards. So a leak is not a matter of care in the compiler, the
gate or the report: they never hold the private part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from intraskill.core.errors import StateCorrupted
from intraskill.skills.bank import Chunk
from intraskill.storage.store import JsonlLog

CARD_SCHEMA = "intraskill-card-v1"

Outcome = Literal["PROPOSE_ADD", "PROPOSE_REWRITE", "NO_PROPOSAL"]
Operation = Literal["ADD", "REWRITE"]
Channel = Literal["failure", "success"]


@dataclass(frozen=True, slots=True)
class PrivilegedAudit:
    """What only an auditor may read. `repair` are the actions that bought `purchase`, judged in `reward_detail`."""

    task_id: str
    episode_id: str
    split: str
    category: str = ""
    decision_step: int | None = None
    original_action: str | None = None
    repair: tuple[str, ...] = ()
    purchase: dict[str, Any] | None = None
    reward_detail: dict[str, Any] = field(default_factory=dict)
    goal: dict[str, Any] = field(default_factory=dict)
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Abstraction:
    """A mechanism in words for any task: when it applies, what to do, how to check it, what to avoid."""

    mechanism: str
    title: str
    applies_when: str
    procedure: tuple[str, ...]
    verify: str = ""
    avoid: str = ""

    def texts(self) -> dict[str, str]:
        """Every text a reader of the chunk could see, by field."""
        texts = {name: str(getattr(self, name)) for name in ("mechanism", "title", "applies_when", "verify", "avoid")}
        return texts | {f"procedure[{i}]": step for i, step in enumerate(self.procedure)}


@dataclass(frozen=True, slots=True)
class Card:
    """One analysed episode. Without a proposal, `reason` says why."""

    card_id: str
    channel: Channel
    analyst: str
    checkpoint: str
    step: int
    group_index: int
    outcome: Outcome
    reason: str
    target: str | None
    privileged_audit: PrivilegedAudit
    deployable_abstraction: Abstraction | None = None

    @property
    def verified(self) -> bool:
        """Whether a real purchase with `r_success` 1 stands behind it."""
        return self.privileged_audit.reward_detail.get("r_success") == 1


@dataclass(frozen=True, slots=True)
class Lesson:
    """What may leave a card: made by `firewall.release` alone."""

    card_id: str
    channel: Channel
    operation: Operation
    target: str | None
    abstraction: Abstraction


def card_id(checkpoint: str, channel: Channel, analyst: str, *place: str | int) -> str:
    """An opaque name of the card; the same evidence has the same name."""
    text = "\x1f".join((checkpoint, channel, analyst, *map(str, place)))
    return f"card-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


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
