"""What the shopper sees: the canonical `observation_state` and its deterministic renderings.

The state is plain JSON and the only public truth: which page, what can be clicked, what is selected, what the last
action did. A rendering is a pure function of it. `full` is for language models that read sentences. `compact` is as
short as it can be, for a policy of a few million parameters. Gold information has no way in: the functions here
see the catalog's public product fields only, never a task.
"""

from __future__ import annotations

from typing import Any

from shopsimulator.catalog import Product
from shopsimulator.pages import Page, Rules, clickable, page_count, visible_results
from shopsimulator.pricing import variant_price
from shopsimulator.wording import Rendering, Words, words


def observe(page: Page, rules: Rules, language: str, step: int, last: dict[str, Any] | None) -> dict[str, Any]:
    """The canonical state of `page` after `step` actions, the last of which is described by `last`."""
    product = page.product if page.kind == "product" else None
    missing = page.missing_axes if product else []
    return {
        "page": page.kind,
        "language": language,
        "search_available": page.kind in ("search", "results"),
        "actions": clickable(page, rules),
        "selected_options": dict(page.selected) if product else {},
        "missing_option_axes": missing,
        "options_complete": product is not None and not missing,
        "last_action": last,
        "step": step,
        "query": page.query,
        "page_index": page.index,
        "page_count": page_count(page, rules.page_size),
        "total_results": len(page.hits),
        "results": _result_rows(page, rules) if page.kind == "results" else [],
        "product": _public_product(product, rules) if product else None,
        "price": variant_price(product, dict(page.selected)) if product else None,
    }


def _result_rows(page: Page, rules: Rules) -> list[dict[str, Any]]:
    """The current hits with their listed prices; what a choice really costs only the product page tells."""
    rows = []
    for label, product in visible_results(page, rules).items():
        low, high = (product.pricing[0], product.pricing[-1]) if product.pricing else rules.price_range(product)
        rows.append({"asin": product.asin, "title": product.title, "price": low, "price_high": high, "label": label})
    return rows


def _public_product(product: Product, rules: Rules) -> dict[str, Any]:
    low, high = rules.price_range(product)
    return {
        "asin": product.asin,
        "title": product.title,
        "shop_name": product.shop_name,
        "category": list(product.category),
        "price": low,
        "price_high": high,
        "options": {
            axis: [{"value": option.value, "price": option.price} for option in options]
            for axis, options in product.options.items()
        },
        "attributes": list(product.attributes),
        "description": product.description,
    }


def feedback_message(code: str, value: str, missing: list[str], language: str) -> str:
    """The sentence that goes with a reason code."""
    return words(language, "full").messages[code].format(value=value, missing=", ".join(missing))


def render(state: dict[str, Any], rendering: Rendering) -> str:
    """The text a policy reads; depends on nothing but its arguments."""
    vocabulary = words(state["language"], rendering)
    body = _compact_page(state, vocabulary) if rendering == "compact" else _full_page(state, vocabulary)
    last = state["last_action"]
    if last is None or last["valid"]:
        return body
    return f"{_complaint(state, last, rendering)}\n{body}"


def _complaint(state: dict[str, Any], last: dict[str, Any], rendering: Rendering) -> str:
    """One line about an invalid action, its reason code first."""
    code, missing = last["code"], state["missing_option_axes"]
    if rendering == "compact":
        return f"{code} {' '.join(missing)}" if code == "incomplete_options" else code
    _, _, argument = last["action"].partition("[")
    value = argument.rstrip().removesuffix("]").strip()
    return f"[{code}] {feedback_message(code, value, missing, state['language'])}"


def format_price(price: float) -> str:
    """30.0 → `30`, 29.9 → `29.9`: no digits that say nothing."""
    return str(int(price)) if price == int(price) else f"{price:.2f}".rstrip("0")


def _format_range(item: dict[str, Any], vocabulary: Words) -> str:
    low, high = item["price"], item["price_high"]
    if low is None:
        return vocabulary.unknown_price
    return format_price(low) if low == high else f"{format_price(low)}-{format_price(high)}"


def _compact_page(state: dict[str, Any], vocabulary: Words) -> str:
    page = state["page"]
    if page == "results":
        lines = [f"{row['label']} {_compact_price(row, vocabulary)} {row['title']}" for row in state["results"]]
        navigation = state["actions"][len(lines) :]
        return "\n".join([*(lines or [vocabulary.nothing]), *([" ".join(navigation)] if navigation else [])])
    if page == "product":
        product = state["product"]
        priced = any(option["price"] is not None for options in product["options"].values() for option in options)
        lines = [product["title"] if priced else f"{product['title']} {_compact_price(product, vocabulary)}"]
        for axis, options in product["options"].items():
            lines.append(f"{axis}: {_compact_options(options, state['selected_options'].get(axis))}")
        buy = f" {vocabulary.buy}" if state["options_complete"] else ""
        return "\n".join([*lines, f"{vocabulary.back}{buy}"])
    return vocabulary.search if page == "search" else vocabulary.done


def _compact_price(item: dict[str, Any], vocabulary: Words) -> str:
    """The lowest price alone: what the options cost is read on the product's page."""
    return vocabulary.unknown_price if item["price"] is None else format_price(item["price"])


def _compact_options(options: list[dict[str, Any]], selected: str | None) -> str:
    """`red blue*` or `small 30 large* 55`; commas part the values as soon as one of them holds a blank."""
    parts = []
    for option in options:
        mark = "*" if option["value"] == selected else ""
        price = f" {format_price(option['price'])}" if option["price"] is not None else ""
        parts.append(f"{option['value']}{mark}{price}")
    return (", " if any(" " in option["value"] for option in options) else " ").join(parts)


def _full_page(state: dict[str, Any], vocabulary: Words) -> str:
    page = state["page"]
    if page == "search":
        return vocabulary.search
    if page == "done":
        return vocabulary.done
    lines = _full_results(state, vocabulary) if page == "results" else _full_product(state, vocabulary)
    if state["actions"]:
        lines.append(f"{vocabulary.clickable}: {' | '.join(state['actions'])}")
    return "\n".join(lines)


def _full_results(state: dict[str, Any], vocabulary: Words) -> list[str]:
    if not state["results"]:
        return [vocabulary.nothing.format(query=state["query"])]
    head = vocabulary.results.format(
        query=state["query"], page=state["page_index"] + 1, pages=state["page_count"], total=state["total_results"]
    )
    rows = [f"[{row['label']}] {row['title']} | {_format_range(row, vocabulary)}" for row in state["results"]]
    return [head, *rows]


def _full_product(state: dict[str, Any], vocabulary: Words) -> list[str]:
    product = state["product"]
    lines = [f"[{product['asin']}] {product['title']}"]
    if product["shop_name"]:
        lines.append(f"{vocabulary.shop}: {product['shop_name']}")
    if product["category"]:
        lines.append(f"{vocabulary.category}: {' › '.join(product['category'])}")
    chosen = state["price"]
    shown = _format_range(product, vocabulary) if chosen is None else format_price(chosen)
    lines.append(f"{vocabulary.price}: {shown}")
    for axis, options in product["options"].items():
        lines.append(f"{axis}: {_full_options(options, state['selected_options'].get(axis), vocabulary)}")
    if product["attributes"]:
        lines.append(f"{vocabulary.attributes}: {', '.join(product['attributes'])}")
    if product["description"] and product["description"] != product["title"]:
        lines.append(product["description"])
    if state["missing_option_axes"]:
        lines.append(f"{vocabulary.missing}: {', '.join(state['missing_option_axes'])}")
    return lines


def _full_options(options: list[dict[str, Any]], selected: str | None, vocabulary: Words) -> str:
    parts = []
    for option in options:
        price = f" ({format_price(option['price'])})" if option["price"] is not None else ""
        mark = f" [{vocabulary.selected}]" if option["value"] == selected else ""
        parts.append(f"{option['value']}{price}{mark}")
    return " | ".join(parts)
