"""The shop as an analyst sees it: everything in the catalog, and fresh sessions to try things in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from shopsimulator.catalog import Catalog, Product, PurchaseTask
from shopsimulator.wording import Rendering, Words, words

from intraskill.core.protocol import Environment


@dataclass(frozen=True)
class AnalystWorld:
    """One shop; sessions are in process, whatever the run itself acts in."""

    catalog: Catalog
    new_environment: Callable[[], Environment]
    max_steps: int

    def task(self, task_id: str) -> PurchaseTask:
        return self.catalog.tasks[int(task_id)]

    def goal(self, task_id: str) -> Product:
        return self.catalog.products[self.task(task_id).asin]

    @cached_property
    def words(self) -> Words:
        """The words on the pages' buttons."""
        identity = self.new_environment().identity()
        rendering: Rendering = "compact" if identity.get("rendering") == "compact" else "full"
        return words(self.catalog.language, rendering)
