"""The page state machine: search home → results → product → terminal, as plain values and one pure transition.

A `Page` is all there is to know about where a shopper stands. `advance` takes a page and one action and gives the
next page with `Feedback`: a public reason code and the key of its sentence. Only `executed` moves the shopper; any
other reason leaves the page as it was. The checks come in a fixed order, so that one text has one reason.

A search is possible on the home page only; `back to search` leads there from anywhere and forgets the results.
`< prev` on a product leads back to the same results page and drops the choices made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any, Literal, NamedTuple

from shopsimulator.actions import ATTRIBUTES, BACK, BUY, NEXT, PREVIOUS, NotAnAction, option_action, parse_action
from shopsimulator.pricing import price_changing_axes, price_text, variant_price
from shopsimulator.products import Product

PageType = Literal["search_home", "search_results", "product_detail", "information_subpage", "terminal"]
Summary = dict[str, Any]  # the public face of a product, on results and on its own page
_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Item:
    """What the pages need of one product that was opened, worked out once."""

    product: Product
    summary: Summary
    axes: Mapping[str, tuple[str, ...]]
    choices: Mapping[str, tuple[str, str]]  # axis and value by action
    price_axis: str | None  # the one axis whose choice decides the price
    prices: dict[str | None, float | None]  # by value of that axis; filled as choices are made


class Page(NamedTuple):
    """Where the shopper stands. `hits` and `number` (from 1) survive a visit to a product, `selected` does not."""

    type: PageType = "search_home"
    query: str = ""
    hits: Sequence[str] = ()
    number: int = 1
    item: Item | None = None
    selected: Mapping[str, str] = _NOTHING


class Feedback(NamedTuple):
    """What became of an action. `value` fills the sentence; `missing` are the axes still open."""

    reason: str
    message: str
    value: str = ""
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """What pages depend on besides the shopper: the shop's products and index, and the size of a page."""

    summary: Callable[[str], Summary]
    item: Callable[[str], Item]
    search: Callable[[str], Sequence[str]]
    page_size: int
    show_attributes: bool = False


_SEARCHED = Feedback("executed", "searched")
_CLICKED = Feedback("executed", "clicked")
_BOUGHT = Feedback("executed", "bought")


def make_summary(product: Product) -> Summary:
    """Texts that products have in common are one object: a page of results touches less memory."""
    return {
        "asin": product.asin,
        "title": product.title,
        "brand": intern(product.shop_name),
        "category": intern(product.category),
        "price": intern(price_text(product)),
        "key_attributes": [intern(text) for text in product.attributes[:10] if text.strip()],
    }


def make_item(product: Product, summary: Summary) -> Item:
    """Values repeat in crawled data: each is clickable once, blank ones never."""
    axes = {
        axis: tuple([option.value for option in options if option.value.strip()])
        for axis, options in product.options.items()
    }
    choices = {option_action(axis, value): (axis, value) for axis, values in axes.items() if axis for value in values}
    return Item(product, summary, axes, choices, next(iter(price_changing_axes(product.options)), None), {})


def selected_price(item: Item, selected: Mapping[str, str]) -> float | None:
    """What the choices cost; None while that cannot be told."""
    value = selected.get(item.price_axis) if item.price_axis is not None else None
    if value not in item.prices:
        item.prices[value] = variant_price(item.product, selected).price
    return item.prices[value]


def advance(page: Page, action: str, rules: Rules) -> tuple[Page, Feedback]:
    """The page after `action`, and what became of it."""
    try:
        verb, argument = parse_action(action)
    except NotAnAction as problem:
        return page, Feedback(problem.reason, problem.message)
    verb = verb.casefold()
    empty = argument is None or not argument.strip()
    if verb == "search":
        if empty:
            return page, Feedback("empty_argument", "empty_search")
        if page.type != "search_home":
            return page, Feedback("search_unavailable", "search_unavailable")
        return Page("search_results", argument, rules.search(argument)), _SEARCHED  # type: ignore[arg-type]
    if verb == "click":
        if empty:
            return page, Feedback("empty_argument", "empty_click")
        return _click(page, argument, rules)  # type: ignore[arg-type]
    return page, Feedback("invalid_format", "other_verb")


def _click(page: Page, value: str, rules: Rules) -> tuple[Page, Feedback]:
    if page.item is not None:
        return _click_product(page, page.item, value, rules)
    if page.type == "search_results":
        if value == BACK:
            return Page(), _CLICKED
        if value == NEXT and page.number < page_count(page, rules):
            return page._replace(number=page.number + 1), _CLICKED
        if value == PREVIOUS and page.number > 1:
            return page._replace(number=page.number - 1), _CLICKED
        for asin in page_asins(page, rules):
            if asin.lower() == value:
                return Page("product_detail", page.query, page.hits, page.number, rules.item(asin)), _CLICKED
    return page, Feedback("unavailable_action", "unavailable_action", value)


def _click_product(page: Page, item: Item, value: str, rules: Rules) -> tuple[Page, Feedback]:
    on_product = page.type == "product_detail"
    choice = item.choices.get(value)
    if choice is not None and page.selected.get(choice[0]) == choice[1]:
        return page, Feedback("already_selected", "already_selected", value)
    if choice is not None and on_product:
        return page._replace(selected={**page.selected, choice[0]: choice[1]}), _CLICKED
    if value == BUY:
        missing = tuple(axis for axis in item.axes if axis not in page.selected)
        if missing:
            return page, Feedback("incomplete_options", "incomplete_options", missing=missing)
        if not on_product:
            return page, Feedback("unavailable_action", "no_buy_button")
        return Page("terminal"), _BOUGHT
    if value == BACK:
        return Page(), _CLICKED
    if value == PREVIOUS:
        if on_product:
            return Page("search_results", page.query, page.hits, page.number), _CLICKED
        return page._replace(type="product_detail"), _CLICKED
    if value == ATTRIBUTES and on_product and rules.show_attributes:
        return page._replace(type="information_subpage"), _CLICKED
    return page, Feedback("unavailable_action", "unavailable_action", value)


def page_count(page: Page, rules: Rules) -> int:
    return max(1, -(-len(page.hits) // rules.page_size))


def page_asins(page: Page, rules: Rules) -> Sequence[str]:
    """The products on the current page of results."""
    first = (page.number - 1) * rules.page_size
    return page.hits[first : first + rules.page_size]


def result_actions(page: Page, asins: Sequence[str], rules: Rules) -> list[str]:
    """What can be clicked on a page of results, in its order."""
    actions = [BACK]
    if page.number > 1:
        actions.append(PREVIOUS)
    if page.number < page_count(page, rules):
        actions.append(NEXT)
    actions += [asin.lower() for asin in asins]
    return actions


def product_actions(page: Page, item: Item, complete: bool, rules: Rules) -> list[str]:
    """What can be clicked on a product, in its order: of the options only what is not chosen already."""
    actions = [BACK, PREVIOUS]
    if page.type == "information_subpage":
        return actions
    if rules.show_attributes:
        actions.append(ATTRIBUTES)
    if complete:
        actions.append(BUY)
    selected = page.selected
    actions += [action for action, (axis, value) in item.choices.items() if selected.get(axis) != value]
    return actions


def selection_state(axes: Mapping[str, Collection[str]], selected: Mapping[str, str]) -> dict[str, Any]:
    """Which choices hold, which axes are open, and which choices name something that is not there."""
    valid: dict[str, str] = {}
    invalid: list[dict[str, str]] = []
    for axis, value in selected.items():
        if value in axes.get(axis, ()):
            valid[axis] = value
        else:
            reason = "unknown_value" if axis in axes else "unknown_axis"
            invalid.append({"axis": axis, "value": value, "reason": reason})
    missing = [axis for axis in axes if axis not in valid]
    return {
        "selected_options": valid,
        "missing_option_axes": missing,
        "invalid_selected_options": invalid,
        "options_complete": not missing and not invalid,
    }
