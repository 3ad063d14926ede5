"""What a catalog is worth before anybody trains on it: the report of `shopsimulator validate`.

Besides counting, it asks of every task whether buying its own product can succeed at all: whether the product has the
wanted attributes, some selection has the wanted options, and that selection's price is known and within the ceiling.
A task that fails here can still be won with another product, or by nobody; it is a warning, not an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from shopsimulator.budget import task_budget
from shopsimulator.catalog import Catalog, Finding, Inspection
from shopsimulator.pricing import price_changing_axes, variant_price
from shopsimulator.products import OptionValue, Product, PurchaseTask
from shopsimulator.reward import matched_attributes, resembles

_FIELDS = ("title", "shop_name", "category", "pricing", "attributes", "full_description")


def report(inspection: Inspection, budget_version: str) -> dict[str, Any]:
    """Counts, exclusions and warnings, as plain data."""
    catalog = inspection.catalog
    tasks = catalog.tasks.values()
    return {
        "sha256": catalog.sha256,
        "language": catalog.language,
        "records": inspection.records,
        "products": len(catalog.products),
        "tasks": len(tasks),
        "persona_tasks": sum(task.persona is not None for task in tasks),
        "standard_tasks": sum(task.persona is None for task in tasks),
        "skipped_records": len(inspection.skipped),
        "excluded_products": len(catalog.excluded),
        "excluded_tasks": inspection.excluded_tasks,
        "missing_fields": _missing_fields(catalog.products.values()),
        "unsatisfiable_tasks": _unsatisfiable(catalog, budget_version),
        "findings": dict(Counter(finding.text.partition(":")[0] for finding in inspection.findings).most_common()),
        "skipped": [_line(finding) for finding in inspection.skipped],
        "found": [_line(finding) for finding in inspection.findings],
        "excluded": [
            {
                "asin": item.asin,
                "reason": item.reason,
                "price_affecting_axes": list(item.price_affecting_axes),
                "task_ids": list(item.task_ids),
            }
            for item in catalog.excluded
        ],
    }


def task_problem(task: PurchaseTask, product: Product, ceiling: float | None) -> str | None:
    """Why buying the task's own product cannot succeed; None if it can."""
    if any(not values for values in product.options.values()):
        return "an axis of the product has no value, so it cannot be bought"
    if matched_attributes(task.attributes, product) < len(task.attributes):
        unmet = [attribute for attribute in task.attributes if not matched_attributes([attribute], product)]
        return f"the product has no attribute like {', '.join(unmet)}"
    outcomes = _outcomes(task, product, ceiling)
    everything = frozenset(range(len(task.instruction_options)))
    if not any(met == everything for met, _ in outcomes):
        return f"no selection has all of {', '.join(task.instruction_options)}"
    if (everything, True) not in outcomes:
        return f"no selection so wanted has a known price of at most {ceiling:g}"
    return None


def _outcomes(task: PurchaseTask, product: Product, ceiling: float | None) -> set[tuple[frozenset[int], bool]]:
    """What selections can reach: the wanted options they have, and whether their price is right."""
    changing = price_changing_axes(product.options)
    fixed = not changing and _affordable(variant_price(product, {}).price, ceiling)
    reached = {(frozenset[int](), ceiling is None or fixed)}
    for axis, values in product.options.items():
        choices = {(_met(task, value), axis in changing and _affordable(value.price, ceiling)) for value in values}
        reached = {(met | more, right or now) for met, right in reached for more, now in choices}
    return reached


def _met(task: PurchaseTask, value: OptionValue) -> frozenset[int]:
    wanted = enumerate(task.instruction_options)
    return frozenset(number for number, option in wanted if resembles(value.value, option))


def _affordable(price: float | None, ceiling: float | None) -> bool:
    return ceiling is None or (price is not None and price <= ceiling)


def _unsatisfiable(catalog: Catalog, budget_version: str) -> list[dict[str, Any]]:
    problems = (
        (task.task_id, task_problem(task, catalog.products[task.asin], task_budget(task, budget_version)))
        for task in catalog.tasks.values()
    )
    return [{"task_id": task_id, "reason": problem} for task_id, problem in problems if problem is not None]


def _missing_fields(products: Iterable[Product]) -> dict[str, int]:
    """How many products lack a field that a shopper reads."""
    missing = Counter(field for product in products for field in _FIELDS if not getattr(product, field))
    return {field: missing[field] for field in _FIELDS if missing[field]}


def _line(finding: Finding) -> str:
    return f"{finding.place}: {finding.text}"
