"""A task's price ceiling: annotated, or read from its words under a named version of the rules.

Two readings, and which one is used is part of an environment's identity:

- `instruction-budget-v1` (`budget_v1.py`) is frozen: the rules behind published figures, errors included. Chinese only;
- `instruction-budget-v2` (`budget_v2.py`) reads what was meant, in Chinese and English.

They differ where the frozen rules misread:

| wording | v1 | v2 |
|---|---|---|
| `每件价格20元以内` (20 apiece) | 20 | none: no ceiling of the whole |
| `价格不低于45元` (at least 45) | 45 | none |
| `价位100到200` (100 to 200) | 100 | 200 |
| `预算4千4百元以内` (4,400) | 4000 | 4400 |
| `运费10元以内` (postage up to 10) | 10 | none |
| `￥100以内` (up to 100) | none | 100 |

A ceiling is never taken from a product. A text without Chinese says nothing to v1; a task worded so is read by v2
whichever is chosen, so that an English world has budgets at all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, get_args

from shopsimulator import budget_v1, budget_v2
from shopsimulator.errors import ShopError
from shopsimulator.products import PurchaseTask
from shopsimulator.text import has_cjk

BudgetVersion = Literal["instruction-budget-v1", "instruction-budget-v2"]
BUDGET_VERSIONS: tuple[BudgetVersion, ...] = get_args(BudgetVersion)


def instruction_budget(text: str, version: str = "instruction-budget-v1") -> float | None:
    """The ceiling a text states, None if it states none."""
    if version == "instruction-budget-v1":
        return budget_v1.price_ceiling(text)
    if version == "instruction-budget-v2":
        return budget_v2.parse_budget(text).price_upper
    raise ShopError(f"budget version {version!r} is unknown; use one of {', '.join(BUDGET_VERSIONS)}")


def task_budget(task: PurchaseTask, version: str = "instruction-budget-v1") -> float | None:
    """Annotated, else worded in the simple instruction, else in the full one."""
    if task.price_upper is not None:
        return task.price_upper
    return _worded(task.instruction_simple, task.instruction, version)


@lru_cache(maxsize=8192)  # a task is scored in every episode of its group
def _worded(simple: str, full: str, version: str) -> float | None:
    for text in dict.fromkeys((simple, full)):
        ceiling = instruction_budget(text, version if has_cjk(text) else "instruction-budget-v2")
        if ceiling is not None:
            return ceiling
    return None
