"""One raw catalog record -> one `Product` and its tasks.

The public data is crawled: prices are numbers, strings or missing, axes are null, values repeat, asins are `nan`.
What can be read without guessing is read as the upstream loader reads it; what cannot is left out, never invented,
and *remarked* on with its place and reason (`catalog.Finding`). So one odd record costs itself, not the whole file.
A price that could mean two things (`1,29`) is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from shopsimulator.pricing import read_number
from shopsimulator.products import OptionValue, Product, PurchaseTask, public_value

Remark = Callable[[str, str], None]  # place inside the record, what was done and why

LONGEST_ASIN = 20
REASONING = "__reasoning__"  # how a persona was made up; never shown to anybody
_MANY_VALUES = 100  # a page lists no more of one axis
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|&(?:[a-z]+|#[0-9]+);")


class RecordSkipped(Exception):
    """A record or task that cannot be used; its text starts with the place inside the record."""


def read_product(record: Any, remark: Remark) -> Product:
    """Raises `RecordSkipped`."""
    if not isinstance(record, dict):
        raise RecordSkipped(f": expected an object, found {type(record).__name__}")
    asin = _asin(record.get("asin"))
    instructions = record.get("instructions")
    options = record.get("customization_options")
    first = instructions[0] if isinstance(instructions, list) and instructions else None
    return Product(
        asin=asin,
        title=_line(record, "title", remark, needed=True),
        shop_name=_line(record, "shop_name", remark),
        category=_category(record, remark),
        pricing=_pricing(record.get("pricing"), remark),
        options=_options(options, remark),
        attributes=_strings(record.get("attribute"), ".attribute", remark),
        full_description=_text(record.get("full_description")),
        small_description=_strings(record.get("small_description"), ".small_description", remark),
        product_category=_text(record.get("product_category")),
        instruction_text=_text(first.get("instruction")) if isinstance(first, dict) else "",
        null_axes=_null_axes(options),
    )


def read_tasks(record: dict[str, Any], asin: str, first_id: int, remark: Remark) -> list[PurchaseTask]:
    """The tasks of a record; one without an id is given the next number from `first_id`, its place in the corpus."""
    instructions = record.get("instructions") or []
    if not isinstance(instructions, list):
        remark(".instructions", f"ignored: expected a list, found {type(instructions).__name__}")
        return []
    persona = _persona(record.get("user_persona"), remark)
    tasks: list[PurchaseTask] = []
    for number, item in enumerate(instructions):
        try:
            tasks.append(_task(item, record, f".instructions[{number}]", asin, persona, first_id + len(tasks), remark))
        except RecordSkipped as problem:
            place, _, reason = str(problem).partition(": ")
            remark(place, f"task skipped: {reason}")
    return tasks


def _asin(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip() or value == "nan":
        raise RecordSkipped(".asin: missing; give a string of digits")
    if len(value) > LONGEST_ASIN:
        raise RecordSkipped(f".asin: longer than {LONGEST_ASIN} characters")
    return value.strip()


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else str(value)


def _line(record: dict[str, Any], key: str, remark: Remark, needed: bool = False) -> str:
    """A text shown on one line of a page."""
    text = _text(record.get(key))
    if needed and not text.strip():
        remark(f".{key}", "noted: missing or empty")
    if not text.isprintable() and _CONTROL.search(text):
        remark(f".{key}", "repaired: line breaks read as blanks")
        text = _CONTROL.sub(" ", text)
    if ("<" in text or "&" in text) and _MARKUP.search(text):
        remark(f".{key}", "noted: holds markup, kept as plain text")
    return text


def _category(record: dict[str, Any], remark: Remark) -> str:
    value = record.get("category")
    if isinstance(value, list):
        remark(".category", "repaired: list joined with ›")
        return "›".join(map(_text, value))
    return _line(record, "category", remark)


def _strings(value: Any, where: str, remark: Remark) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if not isinstance(value, list):
        if not isinstance(value, str):
            remark(where, f"repaired: {type(value).__name__} read as one text")
        return (_text(value),)
    return tuple(_text(item) for item in value if item is not None and item != "")


def _pricing(value: Any, remark: Remark) -> tuple[float, ...]:
    if value is None or value == "":
        return ()
    items = value if isinstance(value, list) else [value]
    prices = (_price(item, f".pricing[{number}]", remark) for number, item in enumerate(items))
    return tuple(price for price in prices if price is not None)


def _price(value: Any, where: str, remark: Remark) -> float | None:
    price = read_number(value)
    if price is None and value is not None and value != "":
        remark(where, f"price unknown: {str(value)[:40]!r} is not a number of at least 0")
    return price


def _options(value: Any, remark: Remark) -> dict[str, tuple[OptionValue, ...]]:
    if not value:
        return {}
    if not isinstance(value, dict):
        remark(".customization_options", f"ignored: expected an object, found {type(value).__name__}")
        return {}
    options: dict[str, tuple[OptionValue, ...]] = {}
    for axis, values in value.items():
        where = f".customization_options[{axis!r}]"
        if not isinstance(values, list):
            remark(where, f"axis skipped: expected a list, found {type(values).__name__}")
            continue
        options[str(axis)] = _axis(where, values, remark)
        if not options[str(axis)]:
            remark(where, "noted: the axis has no value, so the product cannot be bought")
    return options


def _null_axes(value: Any) -> tuple[str, ...]:
    return tuple(str(axis) for axis in value if value[axis] is None) if isinstance(value, dict) else ()


def _axis(where: str, values: list[Any], remark: Remark) -> tuple[OptionValue, ...]:
    """Values that read alike become one, which keeps the last price and every raw spelling."""
    found: dict[str, OptionValue] = {}
    for number, item in enumerate(values):
        raw = _text(item.get("value") if isinstance(item, dict) else item)
        value = public_value(raw)
        if not value:
            remark(f"{where}[{number}]", "value skipped: empty")
            continue
        if not value.isprintable() and _CONTROL.search(value):
            remark(f"{where}[{number}]", "repaired: line breaks read as blanks")
            value = _CONTROL.sub(" ", value)
        price = _price(item.get("price"), f"{where}[{number}].price", remark) if isinstance(item, dict) else None
        known = found.get(value)
        if known is not None and known.price != price:
            remark(f"{where}[{number}]", f"repaired: {value[:40]!r} is listed at two prices, the last one holds")
        found[value] = OptionValue(value, price, f"{known.raw} {raw}" if known else raw)
    if len(found) > _MANY_VALUES:
        remark(where, f"noted: {len(found)} values; a page lists the first {_MANY_VALUES}")
    return tuple(found.values())


def _persona(value: Any, remark: Remark) -> dict[str, Any] | None:
    if value is None or value == "":
        return None
    if not isinstance(value, dict):
        remark(".user_persona", f"ignored: expected an object, found {type(value).__name__}")
        return None
    return public_persona(value) or None


def public_persona(value: Any) -> Any:
    """The persona without the notes of whoever made it up, at any depth."""
    if isinstance(value, dict):
        return {key: public_persona(item) for key, item in value.items() if key != REASONING}
    return [public_persona(item) for item in value] if isinstance(value, list) else value


def _task(
    item: Any,
    record: dict[str, Any],
    where: str,
    asin: str,
    persona: dict[str, Any] | None,
    default_id: int,
    remark: Remark,
) -> PurchaseTask:
    if not isinstance(item, dict):
        raise RecordSkipped(f"{where}: expected an object")
    instruction, simple = _text(item.get("instruction")), _text(item.get("instruction_simple"))
    if not instruction.strip() and not simple.strip():
        raise RecordSkipped(f"{where}.instruction: missing or empty")
    attributes = _strings(item.get("attributes"), f"{where}.attributes", remark)
    if not attributes:
        raise RecordSkipped(f"{where}.attributes: none, so there is nothing to judge")
    return PurchaseTask(
        task_id=_task_id(default_id if item.get("task_id") is None else item["task_id"], where),
        asin=asin,
        instruction=instruction or simple,
        instruction_simple=simple or instruction,
        attributes=attributes,
        instruction_options=option_values(item.get("instruction_options")),
        price_upper=_ceiling(item.get("price_upper"), where),
        persona=persona,
        task_uid=item.get("task_uid"),
        source_product_index=record.get("source_product_index"),
        price_constraint=item.get("price_constraint"),
        reason_key=record.get("reason_key"),
    )


def _task_id(value: Any, where: str) -> int:
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise RecordSkipped(f"{where}.task_id: expected a whole number below 2^63, found {str(value)[:40]!r}")
    return value


def _ceiling(value: Any, where: str) -> float | None:
    if value is None or value == "":
        return None
    ceiling = read_number(value)
    if ceiling is None:
        raise RecordSkipped(f"{where}.price_upper: {str(value)[:40]!r} is not a number of at least 0")
    return ceiling


def option_values(value: Any) -> tuple[str, ...]:
    """Wanted option values, given as a list, as one text or as an object from axis to value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return tuple(_text(item) for item in value)
    return () if value is None or value == "" else (_text(value),)
