"""The shop as an analyst sees it: everything in the catalog, what any purchase is worth, and sessions to try things."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shopsimulator.catalog import Catalog
from shopsimulator.engine import ShopWorld
from shopsimulator.products import Product, PurchaseTask

from intraskill.core.protocol import Environment


@dataclass(frozen=True)
class AnalystWorld:
    """One shop; sessions are in process, whatever the run itself acts in."""

    shop: ShopWorld
    new_environment: Callable[[], Environment]

    @property
    def catalog(self) -> Catalog:
        return self.shop.catalog

    @property
    def max_steps(self) -> int:
        return self.shop.settings.max_steps

    def task(self, task_id: str) -> PurchaseTask:
        return self.catalog.tasks[int(task_id)]

    def goal(self, task_id: str) -> Product:
        return self.catalog.products[self.task(task_id).asin]
