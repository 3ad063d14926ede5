"""What a purchase is worth: `shopsimulator-paper-reward-v2`.

The customer wants a *kind* of thing with attributes, options and a ceiling; the goal product is one that fits, but
any other that fits as well earns the same. Four parts are judged, each between 0 and 1:

- `r_type`: 1 if the category paths share two nodes or the titles overlap by more than 0.2, else 0, 0.1 or 0.5;
- `r_att`: share of the wanted attributes that an attribute of the product resembles, or that stand in its texts;
- `r_option`: share of the wanted option values that a chosen value resembles;
- `r_price`: 1 if there is no ceiling, or the variant's price is known and not above it.

`r_strict`, the reward, is their product; `r_loose` gives partial credit; `r_success` is 1 only if all four are 1.
A customer who wants no attribute (or option) is content with any: 0 of 0 counts as 1.

Two texts *resemble* each other if their token-set ratio is above 85. A text whose words are all among those of the
other scores 100, so `white` is met by `white (new)`; `大容量收纳` is met by `大容量收纳盒` (91), but `降噪` is not by
`主动降噪` (67).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from shopsimulator import REWARD_VERSION
from shopsimulator.pricing import PriceResolution, variant_price
from shopsimulator.products import Product, PurchaseTask
from shopsimulator.title_terms import TitleTerms, title_terms

MATCH_ABOVE = 85  # of 100
_NODES = re.compile(r"[›>/\\]")
_NO_WORD = re.compile(r"\W+")
_ROUNDS_ABOVE = MATCH_ABOVE + 0.5
_CACHED_PAIRS, _CACHED_PRODUCTS = 262_144, 32_768


def score_purchase(
    goal: Product,
    task: PurchaseTask,
    bought: Product,
    selected: Mapping[str, str],
    *,
    price_upper: float | None,
    title_terms: TitleTerms,
) -> dict[str, Any]:
    """Judge buying `bought` with `selected` (axis -> value) for `task`, whose goal product is `goal`."""
    price = variant_price(bought, selected)
    kind = type_score(goal, bought, title_terms)
    attributes = matched_attributes(task.attributes, bought)
    options = matched_options(task.instruction_options, selected.values())
    r_type, r_price = kind["r_type"], price_score(price_upper, price)
    r_att = _share(attributes, len(task.attributes))
    r_option = _share(options, len(task.instruction_options))
    wanted = len(task.attributes) + len(task.instruction_options) + 1
    return {
        "reward_version": REWARD_VERSION,
        "termination_reason": "purchase",
        **kind,
        "num_attr_matches": attributes,
        "num_option_matches": options,
        "r_att": r_att,
        "r_option": r_option,
        "r_price": r_price,
        "r_loose": r_type * (attributes + options + r_price) / wanted,
        "r_strict": r_type * r_att * r_option * r_price,
        "r_success": int(r_type == r_att == r_option == r_price == 1.0),
        "target_asin_match": bought.asin == goal.asin,
        "price_verifiable": price.status == "pass",
        "price_upper": price_upper,
        "price_resolution": price.as_dict(),
    }


def unpurchased_detail(reason: str) -> dict[str, Any]:
    """The zero score of an episode that ended without a purchase."""
    parts = dict.fromkeys(("r_loose", "r_strict", "r_success", "r_type", "r_att", "r_option", "r_price"), 0.0)
    return {
        "reward_version": REWARD_VERSION,
        "termination_reason": reason,
        **parts,
        "r_success": 0,
        "target_asin_match": False,
        "price_verifiable": False,
    }


def type_score(goal: Product, bought: Product, method: TitleTerms) -> dict[str, Any]:
    """Whether it is the kind of thing wanted, by category path and title."""
    category_match = len(category_nodes(goal.category) & category_nodes(bought.category)) >= 2
    overlap = title_overlap(goal.title, bought.title, method)
    if category_match or overlap > 0.2:
        r_type = 1.0
    elif overlap == 0:
        r_type = 0.0
    else:
        r_type = 0.1 if overlap < 0.1 else 0.5
    return {"r_type": r_type, "category_match": category_match, "title_score": overlap}


@lru_cache(maxsize=8192)  # a shop has few categories
def category_nodes(category: str) -> frozenset[str]:
    nodes = (node.strip().casefold() for node in _NODES.split(category))
    return frozenset(node for node in nodes if node)


def title_overlap(goal: str, bought: str, method: TitleTerms) -> float:
    """Share of the goal title's distinct terms that the other title has; 0.2, saying nothing, if it has none."""
    wanted = title_terms(goal, method)
    return len(wanted & title_terms(bought, method)) / len(wanted) if wanted else 0.2


def matched_attributes(wanted: Iterable[str], bought: Product) -> int:
    """How many attributes the product has among its attributes, or verbatim in its title, bullets or description."""
    text = _wording(bought)
    return sum(
        attribute.casefold() in text or any(resembles(own, attribute) for own in bought.attributes)
        for attribute in wanted
    )


@lru_cache(maxsize=_CACHED_PRODUCTS)
def _wording(product: Product) -> str:
    texts = (product.title, " ".join(product.small_description), product.full_description)
    return " ".join(texts).casefold()


def matched_options(wanted: Iterable[str], values: Iterable[str]) -> int:
    """How many wanted option values were chosen, or one that resembles them; one choice may meet several."""
    chosen = list(values)
    return sum(any(resembles(value, option) for value in chosen) for option in wanted)


def price_score(ceiling: float | None, price: PriceResolution) -> float:
    """1 without a ceiling; with one, only a known price at or below it earns 1."""
    if ceiling is None:
        return 1.0
    return float(price.status == "pass" and price.price is not None and price.price <= ceiling)


@lru_cache(maxsize=_CACHED_PAIRS)
def resembles(left: str, right: str) -> bool:
    """Whether `fuzzy_score` is above 85; most pairs are told apart by their lengths."""
    own, other = _words(left), _words(right)
    shared = own & other
    if shared:
        if shared in (own, other):
            return True
    else:
        lengths = len(" ".join(own)), len(" ".join(other))
        if 200 * min(lengths) < _ROUNDS_ABOVE * sum(lengths):
            return False
    return _token_set_ratio(own, other) > MATCH_ABOVE


def fuzzy_score(left: str, right: str) -> int:
    """Token-set ratio, 0 to 100: the best of comparing the shared words and either text's words with one another."""
    return _token_set_ratio(_words(left), _words(right))


def _words(text: str) -> frozenset[str]:
    return frozenset(_NO_WORD.sub(" ", text.casefold()).split())


def _token_set_ratio(left: frozenset[str], right: frozenset[str]) -> int:
    shared, own, other = (" ".join(sorted(words)) for words in (left & right, left, right))
    best = _ratio(own, other)
    return max(best, _ratio(shared, own), _ratio(shared, other)) if shared else best


def _ratio(left: str, right: str) -> int:
    return round(100 * SequenceMatcher(None, left, right).ratio())


def _share(matched: int, wanted: int) -> float:
    return matched / wanted if wanted else 1.0
