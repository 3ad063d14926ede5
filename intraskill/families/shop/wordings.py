"""The form of a mechanism's wordings, whatever their language; see `mechanisms.py`."""

from __future__ import annotations

from dataclasses import dataclass

from intraskill.core.records import Style


@dataclass(frozen=True, slots=True)
class Wording:
    """One way to say a mechanism: the condition and the steps."""

    applies_when: str
    procedure: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One kind of care. `cues` are words by which a chunk that does not name its mechanism is recognised."""

    name: str
    title: str
    verify: str
    avoid: str
    cues: frozenset[str]
    short: tuple[Wording, ...]
    full: tuple[Wording, ...]

    def wordings(self, style: Style) -> tuple[Wording, ...]:
        return self.short if style == "compact" else self.full


def mechanism(
    name: str,
    title: str,
    verify: str,
    avoid: str,
    cues: str,
    short: tuple[tuple[str, tuple[str, ...]], ...],
    full: tuple[tuple[str, tuple[str, ...]], ...],
) -> Mechanism:
    """A mechanism from plain tuples; `cues` are separated by spaces."""
    wordings = tuple(Wording(*pair) for pair in short), tuple(Wording(*pair) for pair in full)
    return Mechanism(name, title, verify, avoid, frozenset(cues.split()), *wordings)
