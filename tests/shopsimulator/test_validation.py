"""What a catalog's report warns of."""

from __future__ import annotations

import pytest
from shopsimulator.catalog import inspect_records
from shopsimulator.validation import report

SIZES = [{"value": "S", "price": 30}, {"value": "L", "price": 55}, {"value": "XL"}]
COLOURS = [{"value": "red"}, {"value": "blue (new)"}]


def shelf(asin="1", options=None, persona=None, **task):
    wanted = {"task_id": int(asin), "instruction": "a shelf", "attributes": ["oak"]} | task
    return {
        "asin": asin,
        "title": "oak shelf",
        "customization_options": {"size": SIZES, "colour": COLOURS} if options is None else options,
        "instructions": [wanted],
        "user_persona": persona,
    }


def problems(*records):
    found = report(inspect_records(records), "instruction-budget-v1")["unsatisfiable_tasks"]
    return {item["task_id"]: item["reason"] for item in found}


@pytest.mark.parametrize(
    "fine",
    [
        {},
        {"instruction_options": ["blue"]},
        {"instruction_options": ["s", "blue"], "price_upper": 30},
        {"instruction_options": ["L"], "price_upper": 55},
        {"instruction_options": ["XL"]},
        {"instruction": "oak shelf 40元以内"},
        {"instruction_options": ["blue", "new"]},  # one value may meet two wishes
    ],
)
def test_a_task_that_its_own_product_satisfies_is_no_problem(fine):
    assert problems(shelf(**fine)) == {}


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ({"attributes": ["oak", "steel"]}, "the product has no attribute like steel"),
        ({"instruction_options": ["green"]}, "no selection has all of green"),
        ({"instruction_options": ["s", "L"]}, "no selection has all of s, L"),
        ({"price_upper": 29}, "no selection so wanted has a known price of at most 29"),
        ({"instruction_options": ["L"], "price_upper": 40}, "no selection so wanted has a known price of at most 40"),
        ({"instruction_options": ["XL"], "price_upper": 99}, "no selection so wanted has a known price of at most 99"),
        ({"instruction": "oak shelf 20元以内"}, "no selection so wanted has a known price of at most 20"),
    ],
)
def test_a_task_that_its_own_product_cannot_satisfy_is_listed_with_the_reason(task, reason):
    assert problems(shelf(**task), shelf("2")) == {1: reason}


def test_prices_without_an_axis_are_weighed_too():
    assert problems(shelf(options={"colour": COLOURS}, price_upper=50)) == {
        1: "no selection so wanted has a known price of at most 50"
    }
    assert problems(shelf(options={"colour": [{"value": "red", "price": 50}]}, price_upper=50)) == {}
    assert "no value" in problems(shelf(options={"colour": []}))[1]


def test_persona_and_standard_tasks_missing_fields_and_findings_are_counted():
    odd = shelf("3", options={"size": [{"value": "s", "price": "面议"}, {"value": ""}]})
    records = [shelf("1", persona={"用户ID": "U"}), shelf("2"), odd, "no record"]
    found = report(inspect_records(records), "instruction-budget-v1")
    counts = {key: found[key] for key in ("records", "products", "tasks", "persona_tasks", "standard_tasks")}
    assert counts == {"records": 4, "products": 3, "tasks": 3, "persona_tasks": 1, "standard_tasks": 2}
    assert found["missing_fields"] == {
        "shop_name": 3, "category": 3, "pricing": 3, "attributes": 3, "full_description": 3,
    }  # fmt: skip
    assert found["findings"] == {"price unknown": 1, "value skipped": 1}
    assert found["found"][0].startswith("products[2].customization_options['size'][0].price: price unknown: '面议'")
    assert (found["skipped_records"], found["skipped"]) == (1, ["products[3]: expected an object, found str"])


def test_the_budget_version_decides_what_a_task_asks_for():
    inspection = inspect_records([shelf(instruction="每件价格20元以内的架子")])
    assert report(inspection, "instruction-budget-v1")["unsatisfiable_tasks"]
    assert not report(inspection, "instruction-budget-v2")["unsatisfiable_tasks"]
