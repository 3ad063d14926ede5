"""What is sold and what is wanted: products, their option axes, and purchase tasks.

Plain frozen data. `catalog.py` reads them from a file, `schema.py` from one raw record. Option values are the ones
an action names (`axis=value`): stripped, `/` written as ` | `, lower-cased. Axis names stay as they are in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class OptionValue:
    """One clickable value of an axis. `price` is the variant's whole price, None when it is not known.

    `raw` is the value as the file writes it (several, joined by blanks, where they read alike): search indexes that.
    """

    value: str
    price: float | None = None
    raw: str = ""


@dataclass(frozen=True, slots=True)
class PurchaseTask:
    """One thing to buy. The goal (`asin`, `attributes`, `instruction_options`, `price_upper`) is private.

    `price_upper` is the annotated ceiling; `budget.task_budget` reads the wording where it is None.
    """

    task_id: int
    asin: str
    instruction: str
    instruction_simple: str
    attributes: tuple[str, ...]
    instruction_options: tuple[str, ...]
    price_upper: float | None
    persona: dict[str, Any] | None
    task_uid: Any = None
    source_product_index: Any = None
    price_constraint: Any = None
    reason_key: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """One product. `pricing` lists the known prices in file order; `options` maps axis name to its values.

    An axis without values stays: nothing can be chosen there, so the product cannot be bought. `null_axes` are only
    named in the file: they offer no choice, but a product that has any axis is not sold at its listed price. Two
    products are equal only if they are one object, which makes them keys of caches.
    """

    asin: str
    title: str
    shop_name: str
    category: str
    pricing: tuple[float, ...]
    options: dict[str, tuple[OptionValue, ...]]
    attributes: tuple[str, ...]
    full_description: str
    small_description: tuple[str, ...] = ()
    product_category: str = ""
    instruction_text: str = ""
    null_axes: tuple[str, ...] = ()


def public_value(raw: str) -> str:
    """An option value as actions write it."""
    return raw.strip().replace("/", " | ").lower()
