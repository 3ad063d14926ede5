"""What a task asks for, and where a shopper could have read it.

A **need** is one requirement of the private goal (an attribute, an option, the ceiling on the price) together with its
evidence: the place in the instruction or the persona that tells it. The place decides the mechanism: a brand that the
persona likes most is `brand`, a keyword among the recent searches is `recent`, and so on. A requirement that stands
nowhere in public is *unobservable*: no procedure can help with it, so nothing is proposed for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, Literal

from shopsimulator.products import Product, PurchaseTask
from shopsimulator.reward import matched_attributes, matched_options
from shopsimulator.text import contains, fold, search_tokens

_SELECTIONS = 4096  # combinations of options looked through, of one product
_PREFERENCES = ("材质", "风格", "功能", "尺码偏好")

Score = Callable[[Product, Mapping[str, str]], Mapping[str, Any]]  # what buying this variant for the task is worth


@dataclass(frozen=True, slots=True)
class Need:
    """One requirement. `mechanism` is None where no public evidence tells it."""

    kind: Literal["attribute", "option", "price"]
    value: str
    mechanism: str | None


def task_needs(
    task: PurchaseTask, ceiling: float | None, instruction: str, persona: Mapping[str, Any] | None
) -> tuple[Need, ...]:
    """The needs of a task as the episode showed it, attributes first."""
    shown = fold(instruction)
    needs = [Need("attribute", value, _evidence(value, shown, persona or {})) for value in task.attributes]
    needs += [Need("option", value, _evidence(value, shown, persona or {})) for value in task.instruction_options]
    if ceiling is not None:
        needs.append(Need("price", f"{ceiling:g}", "budget"))
    return tuple(needs)


def unmet_needs(needs: tuple[Need, ...], score: Score, bought: Product, reference: Mapping[str, str]) -> list[Need]:
    """Needs that no selection of the product meets; if one selection meets all, those the reference leaves unmet."""
    selections = [reference] if fitting_selection(score, bought, reference) else list(_selections(bought))
    return [need for need in needs if not any(_met(need, score, bought, selected) for selected in selections)]


def fitting_selection(score: Score, bought: Product, reference: Mapping[str, str]) -> dict[str, str] | None:
    """The selection that succeeds and differs least from the reference; between equals the first as listed."""
    found = [selected for selected in _selections(bought) if _succeeds(score, bought, selected)]
    return min(found, key=lambda selected: _changes(selected, reference), default=None)


def can_succeed(score: Score, bought: Product) -> bool:
    """Whether some selection of the product is a success."""
    return any(_succeeds(score, bought, selected) for selected in _selections(bought))


def lacks_word(query: str, value: str) -> bool:
    """Whether a search leaves out a word of the value."""
    return not set(search_tokens(value)) <= set(search_tokens(query))


def _evidence(value: str, instruction: str, persona: Mapping[str, Any]) -> str | None:
    """The mechanism that finds the value: where the shopper can read it."""
    wanted = fold(value)
    if contains(instruction, wanted):
        return "stated"
    interests = _mapping(persona.get("兴趣偏好"))
    properties = _mapping(interests.get("商品属性偏好"))
    brands = interests.get("品牌偏好") or []
    places: list[tuple[str, Any]] = [
        ("brand", [_mapping(entry).get("品牌名称") for entry in brands if isinstance(brands, list)]),
        ("recent", _mapping(persona.get("行为特征")).get("最近14天搜索关键词")),
        ("colour", properties.get("颜色")),
        *(("preference", properties.get(name)) for name in _PREFERENCES),
        ("preference", persona.get("用户标签")),
    ]
    return next((name for name, place in places if any(contains(fold(text), wanted) for text in _texts(place))), None)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _selections(bought: Product) -> Iterator[dict[str, str]]:
    axes = [[(axis, option.value) for option in options] for axis, options in bought.options.items()]
    return (dict(combination) for combination in islice(product(*axes), _SELECTIONS))


def _succeeds(score: Score, bought: Product, selected: Mapping[str, str]) -> bool:
    return bool(score(bought, selected)["r_success"] == 1)


def _changes(selected: Mapping[str, str], reference: Mapping[str, str]) -> int:
    """How many axes that the reference has chosen are chosen otherwise."""
    return sum(selected.get(axis) != value for axis, value in reference.items())


def _met(need: Need, score: Score, bought: Product, selected: Mapping[str, str]) -> bool:
    if need.kind == "attribute":
        return matched_attributes((need.value,), bought) == 1
    if need.kind == "option":
        return matched_options((need.value,), selected.values()) == 1
    return bool(score(bought, selected)["r_price"] == 1.0)
