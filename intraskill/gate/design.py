"""Which chunks each validation task sees in a gate.

A **mask** is one row of zeros and ones, a column for every text the gate compares. All slots are independent, and each
state of a slot (absent, old text, new text, ...) is equally likely; so two versions of one chunk never meet and a plain
chunk is present half of the time. The draw hashes its own coordinates, like a curriculum's: a slot's column does not
move when another slot joins or leaves the pool.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intraskill.core.errors import UserError
from intraskill.core.seeds import stable_seed
from intraskill.skills.curriculum import uniform

Mask = tuple[int, ...]
_REDRAWS = 100


def draw_masks(slots: Sequence[Sequence[str]], n: int, seed: int) -> list[Mask]:
    """n rows of 0/1; columns are the slots' versions, in the order given.

    A slot is the ids of a chunk's competing versions, the current one first; that one names the slot's draws.
    A row's slots are independent; a slot of k versions takes each of its k + 1 states with equal probability.
    """
    return [tuple(bit for slot in slots for bit in _slot_mask(slot, row, seed)) for row in range(n)]


def draw_distinguishable_masks(slots: Sequence[Sequence[str]], n: int, seed: int) -> list[Mask]:
    """`draw_masks`, drawn again while the columns depend on each other by bad luck, which a few tasks can have.

    Raises `UserError` when n rows can never tell the columns apart.
    """
    columns = sum(map(len, slots))
    check_columns(n, columns)
    masks = draw_masks(slots, n, seed)
    for attempt in range(1, _REDRAWS):
        if not columns or np.linalg.matrix_rank(np.array(masks)) == columns:
            return masks
        masks = draw_masks(slots, n, stable_seed("again", seed, attempt))
    raise UserError(
        f"gate.tasks: {n} tasks do not tell {columns} texts apart, whatever masks are drawn; use more tasks"
    )


def check_columns(tasks: int, chunks: int, candidates: int = 0, budget: int = 0, rounds: int = 1) -> None:
    """Refuse a run one of whose gates could never be fitted: a regression needs more rows than columns.

    A bank of `chunks` grows by at most `candidates` a round, up to `budget`. Raises `UserError`.
    """
    largest = max(chunks, min(budget, chunks + (rounds - 1) * candidates))
    if tasks <= largest + candidates:
        texts = f"{largest} chunks and {candidates} candidates" if candidates else f"{largest} chunks"
        remedy = "raise gate.tasks, or lower gate.candidates or gate.budget" if candidates else "raise gate.tasks"
        raise UserError(f"gate.tasks is {tasks}, too few to tell {texts} apart; {remedy}")


def _slot_mask(slot: Sequence[str], row: int, seed: int) -> Mask:
    states = len(slot) + 1
    state = int(uniform("mask", seed, row, slot[0]) * states)  # 0 = absent
    return tuple(int(state == number) for number in range(1, states))
