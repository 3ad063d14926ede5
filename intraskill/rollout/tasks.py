"""The endless, reproducible stream of training tasks.

Each epoch is one permutation of the split, drawn from (seed, epoch) alone. Tasks handed back (their groups were
aborted before they finished) are the next to be served, so no task is ever lost. The whole position fits in a small
dict that is saved with the run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from intraskill.core.records import task_order


class TaskStream:
    """Serves task ids; `state()` and `restored()` make it survive a kill."""

    def __init__(self, task_ids: Sequence[str], seed: int) -> None:
        if not task_ids:
            raise ValueError("a task stream needs at least one task")
        self.task_ids = tuple(sorted(task_ids, key=task_order))
        self.seed = seed
        self.epoch = 0
        self.position = 0
        self.returned: list[str] = []

    def take(self, count: int) -> list[str]:
        """The next `count` task ids."""
        return [self._next() for _ in range(count)]

    def give_back(self, task_ids: Sequence[str]) -> None:
        """Put the tasks of aborted groups back at the head, in their order."""
        self.returned = [*task_ids, *self.returned]

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "position": self.position, "returned": list(self.returned)}

    def restore(self, state: dict[str, Any]) -> None:
        self.epoch, self.position, self.returned = state["epoch"], state["position"], list(map(str, state["returned"]))

    def _next(self) -> str:
        if self.returned:
            return self.returned.pop(0)
        order = self._order(self.epoch)
        task_id = order[self.position]
        self.position += 1
        if self.position == len(order):
            self.epoch, self.position = self.epoch + 1, 0
        return task_id

    def _order(self, epoch: int) -> list[str]:
        order = list(self.task_ids)
        random.Random(f"intraskill-tasks:{self.seed}:{epoch}").shuffle(order)
        return order
