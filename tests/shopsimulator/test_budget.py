"""A task's ceiling under either version of the rules."""

from __future__ import annotations

import pytest
from shopsimulator.budget import BUDGET_VERSIONS, instruction_budget, task_budget
from shopsimulator.errors import ShopError
from shopsimulator.products import PurchaseTask

V1, V2 = BUDGET_VERSIONS


def task(simple: str, full: str, annotated: float | None = None) -> PurchaseTask:
    return PurchaseTask(1, "1", full, simple, (), (), annotated, None)


@pytest.mark.parametrize("version", BUDGET_VERSIONS)
def test_an_annotation_beats_the_simple_instruction_and_that_the_full_one(version):
    assert task_budget(task("50元以内", "80元以内", 30.0), version) == 30
    assert task_budget(task("50元以内", "80元以内", 0.0), version) == 0
    assert task_budget(task("50元以内", "80元以内"), version) == 50
    assert task_budget(task("一个杯子", "一个杯子，80元以内"), version) == 80
    assert task_budget(task("一个杯子", "一个杯子"), version) is None


@pytest.mark.parametrize(
    ("text", "frozen", "meant"),
    [
        ("每件价格20元以内", 20, None),
        ("价格不低于45元", 45, None),
        ("价位100到200", 100, 200),
        ("预算4千4百元以内", 4000, 4400),
        ("运费10元以内", 10, None),
        ("￥100以内", None, 100),
        ("六百元左右预算就能买到3瓶", 3, 660),
        ("预算100元以内", 100, 100),
    ],
)
def test_where_the_versions_differ(text, frozen, meant):
    assert instruction_budget(text, V1) == frozen
    assert instruction_budget(text, V2) == meant


def test_english_says_nothing_to_the_frozen_rules_but_an_english_task_has_a_budget():
    assert instruction_budget("a shelf under 40", V1) is None
    assert task_budget(task("a shelf", "a shelf under 40"), V1) == task_budget(task("a shelf under 40", ""), V2) == 40


def test_an_unknown_version_is_refused():
    with pytest.raises(ShopError, match="instruction-budget-v1, instruction-budget-v2"):
        instruction_budget("50元", "v3")
