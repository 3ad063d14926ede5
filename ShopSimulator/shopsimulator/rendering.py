"""Texts of an `observation_state`: functions of it alone, so that a recorded state renders as it did when it was new.

`full` is the published page text, made of labelled lines. `compact` is for a policy of a few million parameters, which
reads and writes every word token by token: no labels, one line a product, and each thing that can be clicked once, as
it must be written.

`render` takes a state from anywhere and refuses one that holds an answer, or products that cannot be clicked: a text
nobody could trust must not be trained on. A shop renders its own states through `Texts`, which keeps what it wrote
about each product, since a product is shown thousands of times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from shopsimulator import OBSERVATION_VERSION
from shopsimulator.actions import NAVIGATION, option_action
from shopsimulator.errors import ObservationError
from shopsimulator.wording import Rendering, Words, words

_PRIVATE = frozenset(("goal", "reward", "reward_detail", "target_asin", "answer"))
_KEPT_PIECES = 65_536
State = Mapping[str, Any]


def render(state: State, rendering: Rendering = "full", language: str = "zh") -> str:
    """The text a policy reads. Raises `ObservationError` for a state that must not be shown."""
    version, page = state.get("observation_version"), state.get("page_type")
    if version != OBSERVATION_VERSION:
        raise ObservationError(f"observation_version is {version!r}, not {OBSERVATION_VERSION}")
    if not _PRIVATE.isdisjoint(state):
        raise ObservationError(f"the state holds private fields: {', '.join(sorted(_PRIVATE.intersection(state)))}")
    if page not in ("search_home", "search_results", "product_detail", "information_subpage", "terminal"):
        raise ObservationError(f"page_type {page!r} is unknown")
    if page == "search_results":
        if not isinstance(state.get("products"), list):
            raise ObservationError("a page of results needs its products")
        if {product["asin"].lower() for product in state["products"]} != {*state["actions"]} - NAVIGATION:
            raise ObservationError("the products shown are not the products that can be clicked")
    return Texts(rendering, language).page(state)


class Texts:
    """The texts of one shop, in which an asin always stands for the same product."""

    def __init__(self, rendering: Rendering, language: str) -> None:
        self._words = words(language)
        self._compact = rendering == "compact"
        self._pieces: dict[Hashable, str] = {}

    def page(self, state: State) -> str:
        """The text of one of the shop's own states."""
        if len(self._pieces) > _KEPT_PIECES:
            self._pieces.clear()
        return self._compact_page(state) if self._compact else self._full_page(state)

    def _kept(self, key: Hashable, write: Callable[..., str], *arguments: Any) -> str:
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._pieces[key] = write(*arguments, self._words)
        return piece

    def _full_page(self, state: State) -> str:
        page, vocabulary = state["page_type"], self._words
        if page == "search_home":
            lines = [vocabulary.home]
        elif page == "search_results":
            lines = self._full_results(state)
        elif page == "terminal":
            lines = list(vocabulary.terminal)
        else:
            lines = self._full_product(state)
        lines += _last_action(state, vocabulary)
        lines += _clickable(state, vocabulary)
        return "\n".join(lines) + "\n"

    def _full_results(self, state: State) -> list[str]:
        vocabulary, pieces = self._words, self._pieces
        query = _line(state["search_text"]) or vocabulary.missing_value
        hits = vocabulary.hits.format_map(state)
        lines = [vocabulary.results, f"{vocabulary.query}{query}", hits, "", vocabulary.products]
        for product in state["products"]:
            if product["asin"] not in pieces:
                self._kept(product["asin"], _result, product)
        lines += [str(product["rank"]) + pieces[product["asin"]] for product in state["products"]]
        if not state["products"]:
            lines.append(vocabulary.no_products)
        return lines

    def _full_product(self, state: State) -> list[str]:
        vocabulary, product, selected = self._words, state["product"], state["selected_options"]
        subpage = state["page_type"] == "information_subpage"
        asin, price = product["asin"], str(state.get("selected_price", product["price"]))
        lines = [vocabulary.subpage if subpage else vocabulary.product, vocabulary.item]
        lines += [self._kept((asin, price), _item, product, price), "", vocabulary.options]
        for axis, values in state["available_options"].items():
            chosen = selected.get(axis)
            lines.append(self._kept((asin, axis, chosen), _axis, axis, chosen, values))
        if not state["available_options"]:
            lines.append(f"- {vocabulary.no_options}")
        if missing := state["missing_option_axes"]:
            lines.append(vocabulary.to_choose + vocabulary.axis_separator.join(_lines(missing)))
        elif state["options_complete"]:
            lines.append(vocabulary.complete)
        if invalid := state.get("invalid_selected_options"):
            lines.append(vocabulary.invalid_options + json.dumps(invalid, ensure_ascii=False, sort_keys=True))
        if subpage:
            content = json.dumps(state["content"], ensure_ascii=False) if state["content"] else ""
            lines += ["", vocabulary.subpage_name + state["subpage"]]
            lines.append(vocabulary.content + (content or vocabulary.missing_value))
        return lines

    def _compact_page(self, state: State) -> str:
        page = state["page_type"]
        lines = _complaint(state)
        if page == "search_home":
            lines.append(self._words.compact_home)
        elif page == "terminal":
            lines.append(self._words.compact_terminal)
        elif page == "search_results":
            products, actions = state["products"], state["actions"]
            lines += [self._kept(product["asin"], _compact_result, product) for product in products]
            if not products:
                lines.append(self._words.compact_empty)
            lines += actions[: len(actions) - len(products)]
        else:
            product = state["product"]
            price = str(state.get("selected_price", product["price"]))
            lines.append(self._kept((product["asin"], price), _compact_item, product, price))
            lines += [f"{option_action(axis, value)} *" for axis, value in state["selected_options"].items()]
            lines += state["actions"]
        return "\n".join(lines)


def _result(product: State, vocabulary: Words) -> str:
    """A product of a results page, from the point after its rank on."""
    lines = _described(product, product["price"], "   ", vocabulary)
    return ". " + "\n".join([_line(product["title"]) or vocabulary.unnamed, *lines])


def _item(product: State, price: str, vocabulary: Words) -> str:
    """The head of a product page."""
    title = f"- {vocabulary.title}{_line(product['title']) or vocabulary.unnamed}"
    return "\n".join([title, *_described(product, price, "- ", vocabulary)])


def _described(product: State, price: str, mark: str, vocabulary: Words) -> list[str]:
    missing = vocabulary.missing_value
    lines = [
        f"{mark}{vocabulary.asin}{_line(product['asin'])}",
        f"{mark}{vocabulary.price}{_line(price) or missing}",
        f"{mark}{vocabulary.brand}{_line(product['brand']) or missing}",
        f"{mark}{vocabulary.category}{_line(product['category']) or missing}",
    ]
    if product["key_attributes"]:
        attributes = vocabulary.attribute_separator.join(_lines(product["key_attributes"]))
        lines.append(f"{mark}{vocabulary.attributes}{attributes}")
    return lines


def _axis(axis: str, chosen: str | None, values: list[str], vocabulary: Words) -> str:
    status = vocabulary.chosen + _line(chosen) if chosen else vocabulary.unchosen
    line = f"- {_line(axis)}{status}"
    return f"{line}\n  {vocabulary.values}{' / '.join(_lines(values))}" if values else line


def _last_action(state: State, vocabulary: Words) -> list[str]:
    last = state.get("last_action")
    if last is None:
        return []
    outcome = vocabulary.valid if last["valid"] else vocabulary.invalid
    lines = ["", vocabulary.last_action, f"- {vocabulary.outcome}{outcome}"]
    lines.append(f"- {vocabulary.note}{last['message'] if last['valid'] else _line(last['message'])}")
    if last["reason"] != "executed":
        lines.append(f"- {vocabulary.reason}{last['reason']}")
    return lines


def _clickable(state: State, vocabulary: Words) -> list[str]:
    lines: list[str] = []
    if state["search_available"]:
        lines += ["", vocabulary.abilities, f"- {vocabulary.can_search}"]
    if state["actions"]:
        lines += ["", vocabulary.clickable, "- " + "\n- ".join(_lines(state["actions"]))]
    return lines or ["", vocabulary.nothing_clickable]


def _complaint(state: State) -> list[str]:
    """One line about an action without effect: its reason code, and the open axes where they are the reason."""
    last = state.get("last_action")
    if last is None or last["valid"]:
        return []
    return [" ".join([last["reason"], *last.get("missing_option_axes", ())])]


def _compact_result(product: State, vocabulary: Words) -> str:
    return f"{product['asin'].lower()} {_compact_name(product, product['price'])}"


def _compact_item(product: State, price: str, vocabulary: Words) -> str:
    """Title, price and shop; the attributes on a line of their own."""
    attributes = ", ".join(_lines(product["key_attributes"]))
    return "\n".join(filter(None, (_compact_name(product, price), attributes)))


def _compact_name(product: State, price: str) -> str:
    """Title, price and shop; a shop that the title names already is not named again."""
    title, brand = _line(product["title"]), _line(product["brand"])
    return " ".join(filter(None, (title, short_price(price), "" if brand in title else brand)))


def short_price(text: str) -> str:
    """`399.0` → `399`, `1999.0 to 2099.0` → `1999-2099`: no digits that say nothing."""
    return "-".join(part.removesuffix(".0") for part in text.split(" to "))


def _lines(texts: Sequence[str]) -> Iterable[str]:
    """Each on one line. Nearly always they are, and one look at all of them tells."""
    together = " ".join(texts)
    if together.isprintable() and "  " not in together and together == together.strip():
        return texts
    return map(_line, texts)


def _line(text: str) -> str:
    """On one line, whatever a crawler brought."""
    return " ".join(text.split())
