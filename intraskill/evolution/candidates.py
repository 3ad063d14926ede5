"""Where a gate's candidates come from, as the driver sees it: the analyst's seat, and the empty one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from intraskill.gate.interventions import Candidate
from intraskill.gate.result import GateResult
from intraskill.skills.bank import Bank


@dataclass(frozen=True, slots=True)
class Proposed:
    """A round's candidates, best supported first, and the `analysis/*` metrics of how they came about."""

    candidates: tuple[Candidate, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


class CandidateSource(Protocol):
    """Turns a round's full-bank retries (their traces) into candidates."""

    def observe(self, round_index: int, bank: Bank, retries: Sequence[Mapping[str, Any]]) -> None:
        """One step's retries are on disk: analysis may start. Returns at once, never raises for an analyst's sake."""

    async def candidates(self, round_index: int, bank: Bank, retries: Sequence[Mapping[str, Any]]) -> Proposed:
        """The candidates of all the round's retries; the same again after a kill."""

    def settle(self, round_index: int, checkpoint: str, result: GateResult) -> None:
        """What the gate made of them."""

    def close(self) -> None:
        """Give up what is still being analysed."""


class NoCandidates:
    """Proposes nothing: the gate then measures and prunes the current bank only."""

    def observe(self, round_index: int, bank: Bank, retries: Sequence[Mapping[str, Any]]) -> None:
        pass

    async def candidates(self, round_index: int, bank: Bank, retries: Sequence[Mapping[str, Any]]) -> Proposed:
        return Proposed()

    def settle(self, round_index: int, checkpoint: str, result: GateResult) -> None:
        pass

    def close(self) -> None:
        pass
