"""Which chunks each validation task sees in a gate.

A **mask** is one row of zeros and ones, a column for every text the gate compares. All slots are independent, and each
state of a slot (absent, old text, new text, ...) is equally likely; so two versions of one chunk never meet and a plain
chunk is present half of the time. The draw hashes its own coordinates, like a curriculum's: a slot's column does not
move when another slot joins or leaves the pool.
"""

from __future__ import annotations

from collections.abc import Sequence

from intraskill.skills.curriculum import uniform

Mask = tuple[int, ...]


def draw_masks(slots: Sequence[Sequence[str]], n: int, seed: int) -> list[Mask]:
    """n rows of 0/1; columns are the slots' versions, in the order given.

    A slot is the ids of a chunk's competing versions, the current one first; that one names the slot's draws.
    A row's slots are independent; a slot of k versions takes each of its k + 1 states with equal probability.
    """
    return [tuple(bit for slot in slots for bit in _slot_mask(slot, row, seed)) for row in range(n)]


def _slot_mask(slot: Sequence[str], row: int, seed: int) -> Mask:
    states = len(slot) + 1
    state = int(uniform("mask", seed, row, slot[0]) * states)  # 0 = absent
    return tuple(int(state == number) for number in range(1, states))
