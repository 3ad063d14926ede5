"""A tiny hand-written shop in the public schema, as records and as a world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from shopsimulator.catalog import inspect_records
from shopsimulator.engine import ShopSettings, ShopWorld


def _values(*items: Any) -> list[dict[str, Any]]:
    return [{"value": item[0], "price": item[1]} if isinstance(item, tuple) else {"value": item} for item in items]


@pytest.fixture
def shop_records() -> list[dict[str, Any]]:
    """Five shelves, one of them the goal of a persona task, and three products with awkward option values."""
    shelf = {"shop_name": "norvik store", "category": "home›storage›shelf", "attribute": ["norvik", "oak"]}
    goal = {
        "task_id": 7,
        "instruction": "a norvik oak shelf in blue under 40",
        "instruction_simple": "a shelf in my colour under 40",
        "attributes": ["norvik"],
        "instruction_options": ["blue"],
        "price_upper": 40,
    }
    fillers = [
        {
            "asin": f"20000000000{n}",
            "title": f"{brand} pine shelf",
            "pricing": [20.0 + n],
            "category": "home›storage›shelf",
            "shop_name": brand,
        }
        for n, brand in enumerate(["tarn", "ulme", "veska", "wolt"])
    ]
    fillers[0]["instructions"] = [
        {"task_id": 8, "instruction": "a tarn pine shelf", "attributes": ["pine"], "instruction_options": []}
    ]
    return [
        {
            **shelf,
            "asin": "100000000001",
            "title": "norvik oak shelf",
            "pricing": [30.0, 55.0],
            "customization_options": {"colour": _values("red", "blue"), "size": _values(("small", 30), ("large", 55))},
            "full_description": "A shelf of solid oak.",
            "instructions": [goal],
            "user_persona": {"用户ID": "U1", "用户标签": ["blue"], "__reasoning__": "made up for task 7"},
        },
        *fillers,
        {
            "asin": "300000000001",
            "title": "twin lamp",
            "pricing": [12.5],
            "category": "home›light›lamp",
            "customization_options": {"base": _values("plain", "gold"), "shade": _values("plain", "white")},
        },
        {
            "asin": "300000000002",
            "title": "odd mug",
            "pricing": [9.0],
            "category": "home›kitchen›mug",
            "customization_options": {"Print": _values("back", "Buy Now", "🦊 [rot]", "S/M")},
        },
        {
            "asin": "300000000003",
            "title": "empty vase",
            "pricing": [5.0],
            "category": "home›kitchen›vase",
            "customization_options": {"size": _values("tall"), "finish": []},
        },
    ]


@pytest.fixture
def make_world(shop_records: list[dict[str, Any]]) -> Callable[..., ShopWorld]:
    """`make_world(page_size=2, rendering="compact", ..., records=...)`."""

    def make(records: list[dict[str, Any]] | None = None, **settings: Any) -> ShopWorld:
        inspection = inspect_records(records or shop_records)
        assert not inspection.skipped
        return ShopWorld(inspection.catalog, ShopSettings(**settings))

    return make
