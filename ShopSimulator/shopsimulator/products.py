"""What is sold and what is wanted: products, their option axes, and purchase tasks.

Plain frozen data. `catalog.py` reads them from a file, `schema.py` from one raw record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class OptionValue:
    """One clickable value of an axis. `price` is the variant's whole price, None when the value has none."""

    value: str
    price: float | None = None


@dataclass(frozen=True, slots=True)
class PurchaseTask:
    """One thing to buy. The goal (`asin`, `attributes`, `instruction_options`, `price_upper`) is private."""

    task_id: int
    asin: str
    instruction: str
    instruction_simple: str
    attributes: tuple[str, ...]
    instruction_options: tuple[str, ...]
    price_upper: float | None
    persona: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Product:
    """One product. `pricing` is (), (price,) or (low, high) as listed; `options` maps axis name to its values."""

    asin: str
    title: str
    shop_name: str
    category: tuple[str, ...]
    pricing: tuple[float, ...]
    options: dict[str, tuple[OptionValue, ...]]
    attributes: tuple[str, ...]
    description: str


def price_changing_axes(product: Product) -> tuple[str, ...]:
    """Axes whose values carry at least two different known prices."""
    return tuple(
        axis
        for axis, values in product.options.items()
        if len({value.price for value in values if value.price is not None}) > 1
    )
