"""What the shopper sees: the canonical `observation_state`, the one public truth about a page.

The state is plain JSON: which page, what can be clicked, what is chosen, what became of the last action. Texts are
renderings of it (`rendering.py`). Gold information has no way in: what is here sees public listings, never a task.
Every state is a fresh object; a caller may change it without changing the shop.
"""

from __future__ import annotations

from typing import Any

from shopsimulator import OBSERVATION_VERSION
from shopsimulator.pages import (
    Feedback,
    Item,
    Page,
    Rules,
    Summary,
    page_asins,
    page_count,
    product_actions,
    result_actions,
    selected_price,
    selection_state,
)
from shopsimulator.text import normalize_query
from shopsimulator.wording import Words

_LISTED_VALUES = 100  # of one axis


def observe(page: Page, rules: Rules, last_action: dict[str, Any] | None) -> dict[str, Any]:
    """The canonical state of `page`; `last_action` is the feedback on the action before, None at the start."""
    state: dict[str, Any] = {
        "observation_version": OBSERVATION_VERSION,
        "page_type": page.type,
        "search_available": page.type == "search_home",
        "actions": [],
    }
    if last_action is not None:
        state["last_action"] = dict(last_action)
    if page.type == "search_results":
        _add_results(state, page, rules)
    elif page.item is not None:
        _add_product(state, page, page.item, rules)
    return state


def feedback_record(action: str, feedback: Feedback, words: Words) -> dict[str, Any]:
    """The public answer to an action: what it was, whether it took effect, and why."""
    executed = feedback.reason == "executed"
    value = words.axis_separator.join(feedback.missing) if feedback.missing else feedback.value
    message = words.messages[feedback.message]
    record = {
        "action": action,
        "valid": executed,
        "reason": feedback.reason,
        "message": message if executed else message.replace("{value}", value),
    }
    if feedback.missing:
        record["missing_option_axes"] = list(feedback.missing)
    return record


def _add_results(state: dict[str, Any], page: Page, rules: Rules) -> None:
    asins = page_asins(page, rules)
    first = (page.number - 1) * rules.page_size
    state["actions"] = result_actions(page, asins, rules)
    state["search_text"] = page.query
    state["normalized_search_text"] = normalize_query(page.query)
    state["page"] = page.number
    state["total_pages"] = page_count(page, rules)
    state["total_results"] = len(page.hits)
    state["rank_start"] = first + 1 if asins else 0
    state["rank_end"] = first + len(asins)
    state["products"] = products = [_copy(summary) for summary in map(rules.summary, asins)]
    for rank, product in enumerate(products, first + 1):
        product["rank"] = rank


def _add_product(state: dict[str, Any], page: Page, item: Item, rules: Rules) -> None:
    selection = selection_state(item.axes, page.selected)
    state["actions"] = product_actions(page, item, selection["options_complete"], rules)
    state["product"] = _copy(item.summary)
    state["selected_options"] = selection["selected_options"]
    state["available_options"] = {axis: list(values[:_LISTED_VALUES]) for axis, values in item.axes.items()}
    state["missing_option_axes"] = selection["missing_option_axes"]
    state["options_complete"] = selection["options_complete"]
    if selection["invalid_selected_options"]:
        state["invalid_selected_options"] = selection["invalid_selected_options"]
    price = selected_price(item, page.selected)
    if price is not None:
        state["selected_price"] = price
    if page.type == "information_subpage":
        state["subpage"] = "Attributes"
        state["content"] = list(item.product.attributes)


def _copy(summary: Summary) -> Summary:
    product = summary.copy()
    product["key_attributes"] = product["key_attributes"][:]
    return product
