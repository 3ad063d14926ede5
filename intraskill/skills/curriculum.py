"""Who sees which chunk in training: the curriculum of a round.

A **curriculum** turns measured contributions into inclusion probabilities. A chunk that still helps a lot is shown
often (the policy meets good trajectories), one that hardly helps any more is shown rarely (the policy must do
without):

    rho_j = clip(rho_min + (rho_max - rho_min) * contribution_j / scale, rho_min, rho_max)

evaluated left to right, with `scale` the largest active contribution. Without a positive contribution there is no
scale; a contribution of 0 or less maps to `rho_min` under any positive scale, so then every chunk gets `rho_min`
and the scale is recorded as 0. An empty bank is a curriculum without chunks: every group sees a bare prompt.

An **assignment** is drawn once for a whole group, so that siblings differ by sampling only: with probability q the
group sees no chunk, else each chunk independently with its rho_j. (A gate draws masks instead: `gate.design`.)

Nothing here holds a random state. Each decision hashes its own coordinates (curriculum id, group index, slot) into
a uniform number, so a draw can be repeated alone, in any order, on any machine, and a chunk's draws do not move
when another chunk joins or leaves the bank.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from intraskill.core.errors import UserError
from intraskill.core.records import Assignment
from intraskill.skills.bank import Bank

SCHEMA = "intraskill-curriculum-v1"
_BITS = 53  # a double's significand: every draw is an exact multiple of 2**-53


class Inclusion(NamedTuple):
    """One chunk's place in a curriculum."""

    skill_id: str
    contribution: float
    rho: float


@dataclass(frozen=True, slots=True)
class Curriculum:
    """One round's inclusion probabilities, in bank order."""

    curriculum_id: str
    q: float
    rho_min: float
    rho_max: float
    contribution_scale: float
    probabilities: tuple[Inclusion, ...]


def build_curriculum(
    bank: Bank, q: float, rho_min: float, rho_max: float, curriculum_id: str, scale: float | None = None
) -> Curriculum:
    """Map the bank's contributions to inclusion probabilities. Raises `UserError` for a chunk without one."""
    for name, value in (("q", q), ("rho_min", rho_min), ("rho_max", rho_max)):
        if not 0 <= value <= 1:
            raise UserError(f"curriculum: {name} is {value}; a probability lies between 0 and 1")
    if rho_min > rho_max:
        raise UserError(f"curriculum: rho_min ({rho_min}) is above rho_max ({rho_max}); swap them")
    contributions = [_contribution(chunk.skill_id, chunk.contribution) for chunk in bank.chunks]
    if scale is None:
        scale = max([0.0, *contributions])
    elif not (math.isfinite(scale) and scale > 0):
        raise UserError(f"curriculum: scale is {scale}; give a finite number above 0, or none")
    probabilities = tuple(
        Inclusion(skill_id, contribution, inclusion_probability(contribution, rho_min, rho_max, scale))
        for skill_id, contribution in zip(bank.ids, contributions)
    )
    return Curriculum(curriculum_id, q, rho_min, rho_max, scale, probabilities)


def inclusion_probability(contribution: float, rho_min: float, rho_max: float, scale: float) -> float:
    """rho of one chunk; `scale` 0 means that no active contribution is positive."""
    if scale == 0:
        return rho_min
    rho = rho_min + (rho_max - rho_min) * contribution / scale
    return min(max(rho, rho_min), rho_max)


def draw_assignment(curriculum: Curriculum, group_index: int) -> Assignment:
    """The chunks one group sees; a pure function of (curriculum id, group index)."""
    key = (curriculum.curriculum_id, group_index)
    if uniform(*key, "skill-free") < curriculum.q:
        return Assignment(group_index, skill_free=True, skill_ids=())
    shown = tuple(
        item.skill_id for item in curriculum.probabilities if uniform(*key, "chunk", item.skill_id) < item.rho
    )
    return Assignment(group_index, skill_free=False, skill_ids=shown)


def uniform(*coordinates: str | int) -> float:
    """A number in [0, 1) that is a pure function of its coordinates."""
    digest = hashlib.sha256(json.dumps(coordinates, ensure_ascii=False).encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> (64 - _BITS)) * 2.0**-_BITS


def curriculum_record(curriculum: Curriculum) -> dict[str, Any]:
    """The curriculum as the JSON object its file holds."""
    return {
        "schema": SCHEMA,
        "curriculum_id": curriculum.curriculum_id,
        "q": curriculum.q,
        "rho_min": curriculum.rho_min,
        "rho_max": curriculum.rho_max,
        "contribution_scale": curriculum.contribution_scale,
        "chunks": [
            {"skill_id": item.skill_id, "contribution": item.contribution, "inclusion_probability": item.rho}
            for item in curriculum.probabilities
        ],
    }


def parse_curriculum(record: dict[str, Any], where: str) -> Curriculum:
    """Read back what `curriculum_record` wrote. Raises `UserError` for another schema or a missing key."""
    if record.get("schema") != SCHEMA:
        raise UserError(f"{where}: schema {record.get('schema')!r} is not known here, only {SCHEMA!r}")
    try:
        chunks = tuple(
            Inclusion(item["skill_id"], item["contribution"], item["inclusion_probability"])
            for item in record["chunks"]
        )
        return Curriculum(
            curriculum_id=record["curriculum_id"],
            q=record["q"],
            rho_min=record["rho_min"],
            rho_max=record["rho_max"],
            contribution_scale=record["contribution_scale"],
            probabilities=chunks,
        )
    except KeyError as error:
        raise UserError(f"{where}: the key {error} is missing; restore the file") from None


def _contribution(skill_id: str, contribution: float | None) -> float:
    if contribution is None:
        raise UserError(f"curriculum: chunk {skill_id!r} has no contribution; run a gate on the bank first")
    if not math.isfinite(contribution):
        raise UserError(f"curriculum: chunk {skill_id!r} has the contribution {contribution}; it must be finite")
    return float(contribution)
