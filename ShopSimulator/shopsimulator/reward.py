"""What a purchase is worth.

The customer wants a *kind* of thing with attributes, options and a ceiling; the goal product is one that fits, but
any other that fits as well earns the same. Four parts are judged, each between 0 and 1:

- `r_type`: 1 if the category paths share two nodes or the titles overlap by more than 0.2, else 0, 0.1 or 0.5;
- `r_att`, `r_option`: share of the wanted attributes and option values that the bought variant has;
- `r_price`: 1 if there is no ceiling, or the variant's price is known and not above it.

`r_strict`, the reward, is their product; `r_loose` gives partial credit; `r_success` is 1 only if all four are 1.
A customer who wants no attribute (or option) is content with any: 0 of 0 counts as 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shopsimulator.budget import task_budget
from shopsimulator.catalog import Product, PurchaseTask
from shopsimulator.pricing import variant_price
from shopsimulator.text import contains, fold, query_tokens

_CENT = 1e-6  # prices are floats: 39.9 must meet a ceiling of 39.9


def score_purchase(goal: Product, task: PurchaseTask, bought: Product, selected: Mapping[str, str]) -> dict[str, Any]:
    """Judge buying `bought` with `selected` (axis -> value) for `task`, whose goal product is `goal`."""
    r_type = type_score(goal, bought)
    attributes = matched_attributes(task.attributes, bought, selected.values())
    options = matched_options(task.instruction_options, selected.values())
    r_att = _share(attributes, len(task.attributes))
    r_option = _share(options, len(task.instruction_options))
    r_price = price_score(task_budget(task), variant_price(bought, selected))
    wanted = len(task.attributes) + len(task.instruction_options) + 1
    r_strict = r_type * r_att * r_option * r_price
    return {
        "r_type": r_type,
        "r_att": r_att,
        "r_option": r_option,
        "r_price": r_price,
        "r_loose": r_type * (attributes + options + r_price) / wanted,
        "r_strict": r_strict,
        "r_success": int(r_type == r_att == r_option == r_price == 1.0),
        "reward": r_strict,
        "gold": bought.asin == goal.asin,
    }


def type_score(goal: Product, bought: Product) -> float:
    """Whether it is the kind of thing wanted, by category path and title."""
    shared = {fold(node) for node in goal.category} & {fold(node) for node in bought.category}
    overlap = title_overlap(goal.title, bought.title)
    if len(shared) >= 2 or overlap > 0.2:
        return 1.0
    if overlap == 0:
        return 0.0
    return 0.1 if overlap < 0.1 else 0.5


def title_overlap(goal: str, bought: str) -> float:
    """Share of the goal title's distinct words (Chinese: character pairs) that the other title has."""
    wanted = set(query_tokens(goal))
    return len(wanted & set(query_tokens(bought))) / len(wanted) if wanted else 0.0


def matched_attributes(wanted: Iterable[str], bought: Product, values: Iterable[str]) -> int:
    """How many attributes stand in the bought product's attributes, title or chosen option values."""
    places = [fold(text) for text in (*bought.attributes, bought.title, *values)]
    return sum(any(contains(place, fold(attribute)) for place in places) for attribute in wanted)


def matched_options(wanted: Iterable[str], values: Iterable[str]) -> int:
    """How many option values were chosen."""
    chosen = {fold(value) for value in values}
    return sum(fold(option) in chosen for option in wanted)


def price_score(ceiling: float | None, price: float | None) -> float:
    """1 without a ceiling; with one, only a known price at or below it earns 1."""
    if ceiling is None:
        return 1.0
    return 1.0 if price is not None and price <= ceiling + _CENT else 0.0


def _share(matched: int, wanted: int) -> float:
    return matched / wanted if wanted else 1.0
