"""Which texts each validation task sees in a gate.

A **mask** is one row of zeros and ones, a column for every text the gate compares. Versions of one chunk share a slot
and never meet. A gate follows one of two designs:

- `published`: every task is run bare and under one mask. All slots are independent, and each state of a slot (absent,
  old text, new text, ...) is equally likely, so a plain chunk is present half of the time.
- `foldover`: every task is also run under the mask's **mirror**, which differs from it in every slot: what a plain
  chunk shows in the one it does not in the other, and a slot with several texts takes two of its states, every
  ordered pair equally often. Over the tasks each pair of states is drawn as often as any other, to within one task,
  so the columns of mask minus mirror sum to 0 as nearly as they can.

Nothing here holds a random state: draws hash their own coordinates (the gate's name, the slot, the task), like a
curriculum's. A slot's column does not move when another slot joins or leaves the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from intraskill.core.errors import UserError
from intraskill.core.seeds import stable_seed
from intraskill.skills.curriculum import uniform

DESIGNS = ("published", "foldover")
Mask = tuple[int, ...]
Slots = Sequence[Sequence[str]]
_REDRAWS = 100


@dataclass(frozen=True)
class Masks:
    """A mask for every task, and its mirror where the design has one."""

    masks: tuple[Mask, ...]
    mirrors: tuple[Mask, ...] = ()

    @property
    def contrasts(self) -> np.ndarray:
        """What the regression on these masks has as columns."""
        masks = np.array(self.masks, dtype=np.float64)
        return masks - np.array(self.mirrors) if self.mirrors else masks


def draw_design(design: str, slots: Slots, tasks: Sequence[str], seed: int, name: str) -> Masks:
    """The masks of one gate. `published` masks follow from the seed and a task's position, `foldover` ones from the
    gate's name and the task's own.

    Masks that do not tell the texts apart are drawn again: with few tasks that happens. Raises `UserError` when so few
    tasks can never tell them apart.
    """

    def draw(attempt: int) -> Masks:
        if design == "published":
            again = stable_seed("again", seed, attempt) if attempt else seed
            return Masks(tuple(draw_masks(slots, len(tasks), again)))
        return draw_mirrored(slots, tasks, f"{name}/{attempt}" if attempt else name)

    return _distinguishable(draw, sum(map(len, slots)), len(tasks))


def draw_masks(slots: Slots, n: int, seed: int) -> list[Mask]:
    """n rows of 0/1; columns are the slots' versions, in the order given.

    A slot is the ids of a chunk's competing versions, the current one first; that one names the slot's draws.
    A row's slots are independent; a slot of k versions takes each of its k + 1 states with equal probability.
    """
    return [
        tuple(bit for slot in slots for bit in _bits(int(uniform("mask", seed, row, slot[0]) * (len(slot) + 1)), slot))
        for row in range(n)
    ]


def draw_mirrored(slots: Slots, tasks: Sequence[str], name: str, fixed: Sequence[str] = ()) -> Masks:
    """A mask and its mirror for every task; the order of `tasks` does not matter.

    Slots that begin with one of `fixed` are not contrasted: mask and mirror share a state there.
    """
    drawn = [_state_pairs(slot, tasks, name, slot[0] in fixed) for slot in slots]
    masks, mirrors = (
        tuple(
            tuple(bit for slot, pairs in zip(slots, drawn) for bit in _bits(pairs[i][side], slot))
            for i in range(len(tasks))
        )
        for side in (0, 1)
    )
    return Masks(masks, mirrors)


def check_columns(tasks: int, chunks: int, candidates: int = 0, budget: int = 0, rounds: int = 1) -> None:
    """Refuse a run one of whose gates could never be fitted: a regression needs more rows than columns.

    A bank of `chunks` grows by at most `candidates` a round, up to `budget`. Raises `UserError`.
    """
    largest = max(chunks, min(budget, chunks + (rounds - 1) * candidates))
    if tasks <= largest + candidates:
        texts = f"{largest} chunks and {candidates} candidates" if candidates else f"{largest} chunks"
        remedy = "raise gate.tasks, or lower gate.candidates or gate.budget" if candidates else "raise gate.tasks"
        raise UserError(f"gate.tasks is {tasks}, too few to tell {texts} apart; {remedy}")


def _distinguishable(draw: Callable[[int], Masks], columns: int, tasks: int) -> Masks:
    check_columns(tasks, columns)
    for attempt in range(_REDRAWS):
        drawn = draw(attempt)
        if not columns or np.linalg.matrix_rank(drawn.contrasts) == columns:
            return drawn
    raise UserError(
        f"gate.tasks: {tasks} tasks do not tell {columns} texts apart, whatever masks are drawn; use more tasks"
    )


def _state_pairs(slot: Sequence[str], tasks: Sequence[str], name: str, fixed: bool) -> list[tuple[int, int]]:
    """For every task the slot's state in the mask and in the mirror; 0 is absent."""
    states = range(len(slot) + 1)
    pairs = [(state, state) for state in states] if fixed else list(permutations(states, 2))
    pairs.sort(key=lambda pair: uniform("mirror", name, slot[0], "states", *pair))
    places = sorted(range(len(tasks)), key=lambda i: uniform("mirror", name, slot[0], "task", tasks[i]))
    found = [(0, 0)] * len(tasks)
    for place, i in enumerate(places):
        found[i] = pairs[place % len(pairs)]
    return found


def _bits(state: int, slot: Sequence[str]) -> Mask:
    return tuple(int(state == number) for number in range(1, len(slot) + 1))
