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
    chosen = {_price_of(product, axis, value) for axis, value in selected.items()} - {None}
    for candidates in (chosen, _constant_prices(product), set(product.pricing)):
        if candidates:
            return candidates.pop() if len(candidates) == 1 else None
    return None


def price_range(product: Product) -> tuple[float, float] | None:
    """Lowest and highest known price over all selections; None when no price is known."""
    changing = price_changing_axes(product)
    if changing:
        prices = [value.price for value in product.options[changing[0]] if value.price is not None]
        return min(prices), max(prices)
    price = variant_price(product, {})
    if price is not None:
        return price, price
    return (product.pricing[0], product.pricing[-1]) if product.pricing else None


def _price_of(product: Product, axis: str, value: str | None) -> float | None:
    return next((option.price for option in product.options.get(axis, ()) if option.value == value), None)


def _constant_prices(product: Product) -> set[float | None]:
    """Prices of the axes all of whose values are printed with one and the same price."""
    per_axis = ({value.price for value in values} for values in product.options.values())
    return {next(iter(prices)) for prices in per_axis if len(prices) == 1} - {None}
