"""What a chosen variant costs: `variant-price-paper-v2`.

An axis *affects* the price if its values carry more than one distinct known price. Products with two such axes are
excluded from catalogs, because no single price can be told for a combination; with one, the price is that of the
chosen value; with none, it is the one price all options agree on. A listed price holds only for a product that has
no axes at all. Anything else is `unverifiable`: no price is ever guessed, and an unknown price meets no budget.

Values are compared without regard to width, case and blanks, and of a value that is repeated the last price holds.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from shopsimulator import PRICE_VERSION
from shopsimulator.products import OptionValue, Product

Axes = Mapping[str, tuple[OptionValue, ...]]
NO_LISTED_PRICE = "100.0"  # what a result without any price shows
_CACHED_PRODUCTS, _CACHED_VALUES = 32_768, 65_536


@dataclass(frozen=True, slots=True)
class PriceResolution:
    """A price and how it was found, or why it was not. `evidence` names the axis or the prices that decided."""

    status: Literal["pass", "unverifiable"]
    price: float | None
    method: str
    evidence: dict[str, Any]
    version: str = PRICE_VERSION

    def as_dict(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "price": self.price,
            "version": self.version,
            "method": self.method,
            "evidence": dict(self.evidence),
        }


def variant_price(product: Product, selected: Mapping[str, str]) -> PriceResolution:
    """Price of the selection (axis -> value), which may still be partial."""
    changing, axes, known = _price_table(product)
    if len(changing) > 1:
        return _unknown("multiple_price_affecting_axes", price_affecting_axes=list(changing))
    if changing:
        return _chosen_price(changing[0], axes[changing[0]], selected)
    if len(known) == 1:
        return PriceResolution("pass", known[0], "constant_option_price", {})
    if not axes and not product.null_axes and len(set(product.pricing)) == 1:
        return PriceResolution("pass", product.pricing[0], "single_listing_price", {})
    return _unknown("price_not_deterministic", candidate_prices=list(known))


def price_changing_axes(options: Axes) -> tuple[str, ...]:
    """Axes whose values carry at least two different known prices."""
    return tuple(axis for axis, values in options.items() if _changes_price(values))


def read_number(value: Any) -> float | None:
    """A price as a finite number of at least 0, given as number or as its digits; anything else is unknown."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        price = float(value)
    except (ValueError, OverflowError):
        return None
    return price if math.isfinite(price) and price >= 0 else None


def price_text(product: Product) -> str:
    """The listed price as results show it: `399.0`, or `1999.0 to 2099.0` in file order."""
    return " to ".join(map(str, product.pricing[:2])) or NO_LISTED_PRICE


@lru_cache(maxsize=_CACHED_VALUES)
def comparable(value: str) -> str:
    """A value as prices compare it."""
    return "".join(unicodedata.normalize("NFKC", value).casefold().replace("/", "|").split())


def _chosen_price(axis: str, prices: Mapping[str, float | None], selected: Mapping[str, str]) -> PriceResolution:
    if axis not in selected:
        return _unknown("price_axis_unselected", price_axis=axis)
    price = prices.get(comparable(selected[axis]))
    if price is None:
        return _unknown("selected_variant_price_missing", price_axis=axis)
    return PriceResolution("pass", price, "selected_price_axis", {"price_axis": axis})


def _unknown(method: str, **evidence: Any) -> PriceResolution:
    return PriceResolution("unverifiable", None, method, evidence)


@lru_cache(maxsize=_CACHED_PRODUCTS)
def _price_table(product: Product) -> tuple[tuple[str, ...], dict[str, dict[str, float | None]], tuple[float, ...]]:
    """Price-affecting axes; prices by axis and comparable value; all distinct known prices, ascending."""
    axes = {axis: _by_value(values) for axis, values in product.options.items()}
    known = {price for prices in axes.values() for price in prices.values() if price is not None}
    return price_changing_axes(product.options), axes, tuple(sorted(known))


def _by_value(values: tuple[OptionValue, ...]) -> dict[str, float | None]:
    return {comparable(option.value): option.price for option in values}


def _changes_price(values: tuple[OptionValue, ...]) -> bool:
    prices = {option.price for option in values if option.price is not None}
    if len(prices) < 2:  # the common case needs no comparable values
        return False
    return len({price for price in _by_value(values).values() if price is not None}) > 1
