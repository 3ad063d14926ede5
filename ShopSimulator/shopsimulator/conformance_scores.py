"""Conformance runners for what is scored, searched and read from files; see `conformance.py`.

Title terms are lexical throughout: the cases are derived without spaCy. `annotation` cases hold wordings with the
ceiling a careful reader gave them, so they are read by `instruction-budget-v2`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shopsimulator.budget import instruction_budget, task_budget
from shopsimulator.catalog import Inspection, inspect_records
from shopsimulator.engine import ShopSettings
from shopsimulator.errors import ShopError
from shopsimulator.pricing import price_changing_axes, price_text, variant_price
from shopsimulator.products import Product, PurchaseTask
from shopsimulator.reward import (
    fuzzy_score,
    matched_attributes,
    matched_options,
    resembles,
    score_purchase,
    type_score,
)
from shopsimulator.schema import option_values, read_product, read_tasks
from shopsimulator.search import IDENTITY, SearchIndex, normalize_query, search_text, search_tokens
from shopsimulator.split_files import PUBLISHED_SEED, PUBLISHED_SHA256, PUBLISHED_SIZES, split_ids
from shopsimulator.splits import GROUP_KEYS, HELD_OUT_MAX_GROUP_SIZE, NAMES, linked_components

Input = Mapping[str, Any]
Catalogs = Mapping[str, list[dict[str, Any]]]


def _product(record: Input) -> Product:
    """The record as it stands; the filter against several priced axes is not asked here."""
    return read_product({"asin": "1", **record}, lambda place, text: None)


def _inspection(case: Input) -> Inspection:
    return inspect_records(case["products"])


def _share(matches: int, wanted: Sequence[str]) -> float:
    return matches / len(wanted) if wanted else 1.0


def _reward(case: Input, _: Catalogs) -> dict[str, Any]:
    wanted = case["goal"]
    goal = _product({"asin": wanted["asin"], "title": wanted["name"], "category": wanted["category"]})
    attributes, options = tuple(wanted["attributes"]), option_values(wanted["goal_options"])
    task = PurchaseTask(0, wanted["asin"], "", "", attributes, options, None, None)
    bought = _product(case["product"])
    ceiling = wanted["price_upper"]
    return score_purchase(goal, task, bought, case["selected"], price_upper=ceiling, title_terms="lexical")


def _attribute_reward(case: Input, _: Catalogs) -> dict[str, Any]:
    wanted = [str(attribute) for attribute in case["goal_attributes"]]
    matches = matched_attributes(wanted, _product(case["product"]))
    return {"r_att": _share(matches, wanted), "matches": matches}


def _option_reward(case: Input, _: Catalogs) -> dict[str, Any]:
    wanted = option_values(case["goal_options"])
    matches = matched_options(wanted, option_values(case["selected_values"]))
    return {"r_option": _share(matches, wanted), "matches": matches}


def _type_reward(case: Input, _: Catalogs) -> dict[str, Any]:
    goal, bought = case["goal"], case["bought"]
    wanted = _product({"category": goal["category"], "title": goal["name"]})
    found = type_score(wanted, _product(bought), "lexical")
    return found | {"title_score": round(found["title_score"], 6)}  # as the cases round it


def _fuzzy_ratio(case: Input, _: Catalogs) -> dict[str, Any]:
    left, right = str(case["left"]), str(case["right"])
    return {"score": fuzzy_score(left, right), "match": resembles(left, right)}


def _variant_price(case: Input, _: Catalogs) -> dict[str, Any]:
    product = _product(case["product"])
    axes = price_changing_axes(product.options)
    return variant_price(product, case["selected"]).as_dict() | {"price_affecting_axes": list(axes)}


def _task_budget(case: Input, _: Catalogs) -> dict[str, Any]:
    record = {"instructions": [{"task_id": 0, "attributes": ["x"], **case["instruction"]}]}
    tasks = read_tasks(record, "1", 0, lambda place, text: None)
    return {"price_upper": task_budget(tasks[0])} if tasks else {"error": True}


def _rank(case: Input, catalogs: Catalogs) -> dict[str, Any]:
    records = case["products"] if "products" in case else catalogs[case["catalog"]]
    asins = SearchIndex(inspect_records(records).catalog).asins(case["query"], case["k"])
    return {"asins": list(asins), "first": asins[0] if asins else None, "count": len(asins)}


def _index_identity(case: Input, _: Catalogs) -> dict[str, Any]:
    settings = ShopSettings()
    return {**IDENTITY, "top_k": settings.max_hits, "page_size": settings.page_size}


def _read_split(case: Input, _: Catalogs) -> dict[str, Any]:
    try:
        return {"task_ids": list(split_ids(case["manifest"], case["name"]))}
    except ShopError:
        return {"error": True}


def _split_facts(case: Input, _: Catalogs) -> dict[str, Any]:
    return {
        **dict(zip(NAMES, PUBLISHED_SIZES)),
        "persona_tasks": sum(PUBLISHED_SIZES),
        "seed": PUBLISHED_SEED,
        "group_keys": list(GROUP_KEYS),
        "held_out_max_group_size": HELD_OUT_MAX_GROUP_SIZE,
        "sha256": PUBLISHED_SHA256,
    }


def _linked(case: Input, _: Catalogs) -> dict[str, Any]:
    """Of every record, one that repeats an asin too."""
    tasks: list[PurchaseTask] = []
    for record in case["products"]:
        tasks += read_tasks(record, record["asin"], len(tasks), lambda place, text: None)
    return {"groups": [list(group) for group in linked_components(tasks)]}


def _load(case: Input, _: Catalogs) -> dict[str, Any]:
    catalog = _inspection(case).catalog
    counts = {"tasks": list(catalog.tasks), "products": len(catalog.products), "asins": list(catalog.products)}
    for product in catalog.products.values():  # what is asked of a product is asked of the first
        options = {axis: [value.value for value in values] for axis, values in product.options.items()}
        return counts | {"axes": list(options), "options": options, "price": price_text(product)}
    return counts


def _exclusion(case: Input, _: Catalogs) -> dict[str, Any]:
    catalog = _inspection(case).catalog
    excluded = [
        {
            "asin": item.asin,
            "price_affecting_axes": list(item.price_affecting_axes),
            "task_ids": list(item.task_ids),
            "reason": item.reason,
        }
        for item in catalog.excluded
    ]
    return {"excluded": excluded, "tasks": list(catalog.tasks)}


RUNNERS: dict[str, Callable[[Input, Any], Any]] = {
    "annotation": lambda case, _: {"price_upper": instruction_budget(case["evidence"], "instruction-budget-v2")},
    "attribute_reward": _attribute_reward,
    "budget": lambda case, _: {"price_upper": instruction_budget(case["text"])},
    "exclusion": _exclusion,
    "fuzzy_ratio": _fuzzy_ratio,
    "index_identity": _index_identity,
    "linked": _linked,
    "load": _load,
    "normalize_query": lambda case, _: {"text": normalize_query(case["query"])},
    "option_reward": _option_reward,
    "product_fields": lambda case, _: search_text(_product(case["product"])),
    "rank": _rank,
    "read_split": _read_split,
    "reward": _reward,
    "search_tokens": lambda case, _: {"tokens": search_tokens(case["query"])},
    "split_facts": _split_facts,
    "task_budget": _task_budget,
    "type_reward": _type_reward,
    "variant_price": _variant_price,
}
