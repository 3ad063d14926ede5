"""The page state machine: search home → results → product → done, as plain values and one pure transition.

A `Page` is all there is to know about where a shopper stands. `advance` takes a page and one action string and
gives the next page with a reason code; `ok` means the action took effect, any other code leaves the page as it was.

Option values are clicked by their value. Two axes may offer the same value ("standard"): a click then fills the
first axis that is still open, else replaces the first axis that holds something else; so every combination can be
reached. An option that happens to be called like a navigation word wins while it is not selected, for the same reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from shopsimulator.catalog import Product
from shopsimulator.wording import Rendering, Words

PageKind = Literal["search", "results", "product", "done"]
_ACTION = re.compile(r"\s*(search|click)\[(.*)\]\s*", re.DOTALL)
_SECOND_ACTION = re.compile(r"\]\s*(search|click)\[")


@dataclass(frozen=True, slots=True)
class Page:
    """Where the shopper stands.

    `hits` (asins) and `index` (results page) survive a visit to a product, so that going back finds them again.
    """

    kind: PageKind = "search"
    query: str = ""
    hits: tuple[str, ...] = ()
    index: int = 0
    product: Product | None = None
    selected: Mapping[str, str] = field(default_factory=dict)

    @property
    def missing_axes(self) -> list[str]:
        """Axes of the open product without a choice, in the product's order."""
        if self.product is None:
            return []
        return [axis for axis in self.product.options if axis not in self.selected]


@dataclass(frozen=True, slots=True)
class Rules:
    """What pages depend on besides the shopper: the shop's products and index, the page size, the words on buttons."""

    products: Mapping[str, Product]
    search: Callable[[str], tuple[str, ...]]
    price_range: Callable[[Product], tuple[float | None, float | None]]
    page_size: int
    rendering: Rendering
    words: Words


def parse_action(action: str) -> tuple[str, str] | None:
    """(`search` or `click`, argument), or None when the text is not one action; an argument may hold brackets."""
    match = _ACTION.fullmatch(action)
    if match is None or _SECOND_ACTION.search(match.group(2)):
        return None
    argument = match.group(2).strip()
    return (match.group(1), argument) if argument else None


def advance(page: Page, action: str, rules: Rules) -> tuple[Page, str]:
    """The page after `action` and the reason code."""
    parsed = parse_action(action)
    if parsed is None:
        return page, "invalid_format"
    verb, value = parsed
    if verb == "search":
        if page.kind not in ("search", "results"):
            return page, "search_unavailable"
        return Page("results", query=value, hits=rules.search(value)), "ok"
    if page.kind == "results":
        return _click_results(page, value, rules)
    if page.kind == "product":
        return _click_product(page, value, rules.words)
    return page, "not_clickable"


def page_count(page: Page, page_size: int) -> int:
    return max(1, -(-len(page.hits) // page_size))


def visible_results(page: Page, rules: Rules) -> dict[str, Product]:
    """The current results page by label: the asin, or in the compact rendering the ordinal (from 1) on the page."""
    first = page.index * rules.page_size
    asins = page.hits[first : first + rules.page_size]
    labels = asins if rules.rendering == "full" else map(str, range(1, len(asins) + 1))
    return {label: rules.products[asin] for label, asin in zip(labels, asins)}


def clickable(page: Page, rules: Rules) -> list[str]:
    """Exactly the values that `click[...]` accepts here, in the order they are shown, each once."""
    if page.kind == "results":
        values = list(visible_results(page, rules))
        if page.index + 1 < page_count(page, rules.page_size):
            values.append(rules.words.next)
        if page.index > 0:
            values.append(rules.words.previous)
        return values
    if page.kind != "product" or page.product is None:
        return []
    selected = page.selected
    values = [
        option.value
        for axis, options in page.product.options.items()
        for option in options
        if selected.get(axis) != option.value
    ]
    values.append(rules.words.back)
    if len(selected) == len(page.product.options):
        values.append(rules.words.buy)
    return list(dict.fromkeys(values))


def _click_results(page: Page, value: str, rules: Rules) -> tuple[Page, str]:
    product = visible_results(page, rules).get(value)
    if product is not None:
        return replace(page, kind="product", product=product, selected={}), "ok"
    if value == rules.words.next and page.index + 1 < page_count(page, rules.page_size):
        return replace(page, index=page.index + 1), "ok"
    if value == rules.words.previous and page.index > 0:
        return replace(page, index=page.index - 1), "ok"
    return page, "not_clickable"


def _click_product(page: Page, value: str, words: Words) -> tuple[Page, str]:
    assert page.product is not None
    axis = _axis_to_set(page.product, page.selected, value)
    if axis is not None:
        return replace(page, selected={**page.selected, axis: value}), "ok"
    if value == words.back:
        return replace(page, kind="results", product=None, selected={}), "ok"
    if value == words.buy:
        if page.missing_axes:
            return page, "incomplete_options"
        return replace(page, kind="done"), "ok"
    return page, "already_selected" if value in page.selected.values() else "not_clickable"


def _axis_to_set(product: Product, selected: Mapping[str, str], value: str) -> str | None:
    """The axis a click on `value` sets: an open one before one that holds another value; None when there is none."""
    replaceable = None
    for axis, options in product.options.items():
        if selected.get(axis) == value or not any(option.value == value for option in options):
            continue
        if axis not in selected:
            return axis
        replaceable = replaceable or axis
    return replaceable
