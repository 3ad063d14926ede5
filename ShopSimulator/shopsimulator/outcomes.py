"""What the end of an episode tells: the goal that was private until then, and the purchase if there was one.

Both are records for audits of a local trace. `goal` is also what `reset` gives away on request of a client that judges
episodes itself (`include_private_goal`); a policy must never be shown any of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shopsimulator.products import Product, PurchaseTask


def goal_record(task: PurchaseTask, wanted: Product, price_upper: float | None) -> dict[str, Any]:
    """The task as it is judged; `price_upper` is the ceiling in force, annotated or read from the wording."""
    return {
        "task_id": task.task_id,
        "task_uid": task.task_uid,
        "source_product_index": task.source_product_index,
        "asin": task.asin,
        "category": wanted.category,
        "name": wanted.title,
        "instruction_text": task.instruction,
        "instruction_simple": task.instruction_simple,
        "attributes": list(task.attributes),
        "price_upper": price_upper,
        "price_constraint": task.price_constraint,
        "goal_options": list(task.instruction_options),
        "user_persona": dict(task.persona or {}),
        "reason_key": task.reason_key,
        "weight": 1,
    }


def private_record(task: PurchaseTask) -> dict[str, Any]:
    """What a reset adds for a client that asks for the private goal."""
    return {
        "private_task_instruction": task.instruction,
        "goal_options": list(task.instruction_options),
        "reason_key": task.reason_key,
    }


def purchase_record(bought: Product, selected: Mapping[str, str], price: float | None) -> dict[str, Any]:
    """What was bought, in which variant, at which price (None where it cannot be told)."""
    return {
        "asin": bought.asin,
        "category": bought.category,
        "name": bought.title,
        "product_category": bought.product_category,
        "instruction_text": bought.instruction_text,
        "attributes": list(bought.attributes),
        "price": price,
        "options": dict(selected),
    }
