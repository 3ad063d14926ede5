"""What a gate tests: the active chunks and the candidates that want their place.

Every **intervention** is one regression factor. Texts that cannot stand in one prompt (a chunk and its rewrites)
compete for one **slot**, named by the logical chunk id they share; everything else has a slot of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from intraskill.core.errors import UserError
from intraskill.skills.bank import Bank, Chunk


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposed chunk: new (`ADD`), or another wording of the active chunk `target` (`REWRITE`)."""

    chunk: Chunk
    operation: Literal["ADD", "REWRITE"]
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Intervention:
    """One factor of the gate's regression; `order` is the 1-based place of its slot in the pool."""

    intervention_id: str
    kind: Literal["current", "candidate"]
    logical_chunk_id: str
    operation: Literal["ADD", "REWRITE"] | None
    order: int
    chunk: Chunk


def build_pool(bank: Bank, candidates: Sequence[Candidate]) -> tuple[Intervention, ...]:
    """Current chunks in bank order, each followed by its rewrites; then the additions."""
    active = {chunk.skill_id for chunk in bank.chunks}
    for candidate in candidates:
        if candidate.operation == "REWRITE" and candidate.target not in active:
            raise UserError(f"candidate {candidate.chunk.skill_id} rewrites {candidate.target}, which is not active")
    pool: list[Intervention] = []
    order = 0
    for chunk in bank.chunks:
        order += 1
        pool.append(Intervention(chunk.skill_id, "current", chunk.skill_id, None, order, chunk))
        for candidate in candidates:
            if candidate.operation == "REWRITE" and candidate.target == chunk.skill_id:
                pool.append(_intervention(candidate, chunk.skill_id, order))
    for candidate in candidates:
        if candidate.operation == "ADD":
            order += 1
            pool.append(_intervention(candidate, candidate.chunk.skill_id, order))
    return tuple(pool)


def slots(pool: Sequence[Intervention]) -> tuple[tuple[str, ...], ...]:
    """The ids that compete for each slot, in pool order."""
    grouped: dict[str, list[str]] = {}
    for intervention in pool:
        grouped.setdefault(intervention.logical_chunk_id, []).append(intervention.intervention_id)
    return tuple(tuple(members) for members in grouped.values())


def next_bank(
    bank: Bank,
    pool: Sequence[Intervention],
    selected: Sequence[str],
    coefficients: Mapping[str, float],
    measured_at: tuple[str, str],
) -> Bank:
    """The bank of the selected interventions in pool order, with what was measured, and at which checkpoint under which
    conditions; a rewrite keeps its logical id."""
    checkpoint, here = measured_at
    chunks = []
    for intervention in pool:
        if intervention.intervention_id not in selected:
            continue
        chunk = intervention.chunk
        if intervention.operation == "REWRITE":
            old = next(c for c in bank.chunks if c.skill_id == intervention.logical_chunk_id)
            chunk = replace(chunk, skill_id=old.skill_id, version=old.version + 1)
        chunks.append(
            replace(
                chunk,
                contribution=coefficients[intervention.intervention_id],
                contribution_checkpoint=checkpoint,
                contribution_conditions=here,
            )
        )
    return replace(bank, chunks=tuple(chunks), draft_only=False)


def _intervention(candidate: Candidate, logical: str, order: int) -> Intervention:
    chunk = candidate.chunk
    return Intervention(chunk.skill_id, "candidate", logical, candidate.operation, order, chunk)
