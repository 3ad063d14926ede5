"""What a chosen variant costs.

At most one axis of a product changes its price (others are excluded from the catalog), so the price of a
selection is the price printed at the chosen value of that axis. Where no axis changes it, a price is known when
the chosen values, the axes or the listed price agree on a single one. Anything else is unknown: None, never a
guess, and an unknown price meets no budget.
"""

from __future__ import annotations

from collections.abc import Mapping

from shopsimulator.catalog import Product, price_changing_axes


def variant_price(product: Product, selected: Mapping[str, str]) -> float | None:
    """Price of the selection (axis -> value), which may still be partial; None when it is not known."""
    changing = price_changing_axes(product)
    if len(changing) > 1:
        return None
    if changing:
        return _price_of(product, changing[0], selected.get(changing[0]))
    chosen = {price for axis, value in selected.items() if (price := _price_of(product, axis, value)) is not None}
    for candidates in (chosen, _constant_prices(product), set(product.pricing)):
        if candidates:
            return candidates.pop() if len(candidates) == 1 else None
    return None


def price_range(product: Product) -> tuple[float, float] | None:
    """Lowest and highest price that is known of the product; None when no price is known."""
    changing = price_changing_axes(product)
    if changing:
        prices = [value.price for value in product.options[changing[0]] if value.price is not None]
        return min(prices), max(prices)
    constant = _constant_prices(product)
    if len(constant) == 1:
        (price,) = constant
        return price, price
    printed = {value.price for values in product.options.values() for value in values if value.price is not None}
    known = sorted(printed | set(product.pricing))
    return (known[0], known[-1]) if known else None


def _price_of(product: Product, axis: str, value: str | None) -> float | None:
    return next((option.price for option in product.options.get(axis, ()) if option.value == value), None)


def _constant_prices(product: Product) -> set[float]:
    """Prices of the axes all of whose values are printed with one and the same price."""
    per_axis = ({value.price for value in values} for values in product.options.values())
    return {price for prices in per_axis if len(prices) == 1 for price in prices if price is not None}
