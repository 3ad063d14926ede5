"""One raw catalog record -> one `Product` and its tasks, every field checked.

The public data is crawled: prices are numbers, strings or missing, axes are empty, values repeat. What can be read
without guessing is read; anything else raises `RecordProblem`, whose text begins with the path inside the record.
"""

from __future__ import annotations

import re
from typing import Any

from shopsimulator.products import OptionValue, Product, PurchaseTask
from shopsimulator.text import fold

_PRICE_TEXT = re.compile(r"[¥$€£]?\s*([0-9][0-9,]*(?:\.[0-9]+)?)\s*(?:元|rmb|cny)?")


class RecordProblem(Exception):
    """A defect of one record; its text starts with the path inside the record, such as `.pricing[0]: ...`."""


def read_record(record: Any) -> tuple[Product, tuple[PurchaseTask, ...]]:
    if not isinstance(record, dict):
        raise RecordProblem(": expected an object")
    asin = _identifier(record.get("asin"))
    title = _text(record, "title")
    if not title:
        raise RecordProblem(".title: missing or empty")
    product = Product(
        asin=asin,
        title=title,
        shop_name=_text(record, "shop_name"),
        category=_category(record.get("category")),
        pricing=_pricing(record.get("pricing")),
        options=_options(record.get("customization_options")),
        attributes=_strings(record.get("attribute"), ".attribute"),
        description=_description(record),
    )
    return product, _tasks(record, asin)


def _identifier(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise RecordProblem(".asin: missing; give a string of digits")
    return value.strip()


def _text(record: dict[str, Any], key: str, where: str = "") -> str:
    value = record.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RecordProblem(f"{where}.{key}: expected a string, found {type(value).__name__}")
    return value.strip()


def _strings(value: Any, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise RecordProblem(f"{where}: expected a list of strings, found {type(value).__name__}")
    for number, item in enumerate(value):
        if not isinstance(item, str):
            raise RecordProblem(f"{where}[{number}]: expected a string, found {type(item).__name__}")
    return tuple(item.strip() for item in value if item.strip())


def _category(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split("›")
    return _strings(value, ".category")


def _description(record: dict[str, Any]) -> str:
    small = record.get("small_description")
    lines = [small.strip()] if isinstance(small, str) else list(_strings(small, ".small_description"))
    return "\n".join(line for line in (_text(record, "full_description"), *lines) if line)


def _price(value: Any, where: str) -> float | None:
    """A price as a number or a string such as `¥1,299` or `19.9元`; None and an empty string mean unknown."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, str):
        match = _PRICE_TEXT.fullmatch(fold(value))
        price = float(match[1].replace(",", "")) if match else -1.0
    else:
        price = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else -1.0
    if not 0 <= price < float("inf"):
        raise RecordProblem(f"{where}: {value!r} is not a price; give a number, or null if it is not known")
    return price


def _pricing(value: Any) -> tuple[float, ...]:
    if value is None:
        return ()
    items = value if isinstance(value, list) else [value]
    prices = [_price(item, f".pricing[{number}]") for number, item in enumerate(items)]
    known = sorted({price for price in prices if price is not None})
    return (known[0], known[-1]) if len(known) > 1 else tuple(known)


def _options(value: Any) -> dict[str, tuple[OptionValue, ...]]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RecordProblem(f".customization_options: expected an object, found {type(value).__name__}")
    options = {str(axis).strip(): _axis(axis, values) for axis, values in value.items()}
    return {axis: values for axis, values in options.items() if values}  # an axis with no value offers no choice


def _axis(axis: str, values: Any) -> tuple[OptionValue, ...]:
    where = f".customization_options[{axis!r}]"
    if not isinstance(values, list):
        raise RecordProblem(f"{where}: expected a list, found {type(values).__name__}")
    prices: dict[str, float | None] = {}
    for number, item in enumerate(values):
        name = item.get("value") if isinstance(item, dict) else item
        if isinstance(name, (int, float)) and not isinstance(name, bool):
            name = str(name)
        if not isinstance(name, str):
            raise RecordProblem(f"{where}[{number}].value: expected a string, found {type(name).__name__}")
        if not name.strip():  # crawled padding: nothing to click
            continue
        price = _price(item.get("price"), f"{where}[{number}].price") if isinstance(item, dict) else None
        known = prices.setdefault(name.strip(), price)
        if known != price:  # the same value at two prices: which one holds cannot be told
            prices[name.strip()] = None
    return tuple(OptionValue(name, price) for name, price in prices.items())


def _tasks(record: dict[str, Any], asin: str) -> tuple[PurchaseTask, ...]:
    instructions = record.get("instructions")
    if instructions is None:
        return ()
    if not isinstance(instructions, list):
        raise RecordProblem(f".instructions: expected a list, found {type(instructions).__name__}")
    persona = record.get("user_persona")
    if persona is not None and not isinstance(persona, dict):
        raise RecordProblem(f".user_persona: expected an object, found {type(persona).__name__}")
    return tuple(_task(item, f".instructions[{number}]", asin, persona) for number, item in enumerate(instructions))


def _task(item: Any, where: str, asin: str, persona: dict[str, Any] | None) -> PurchaseTask:
    if not isinstance(item, dict):
        raise RecordProblem(f"{where}: expected an object")
    task_id = item.get("task_id")
    if isinstance(task_id, str) and task_id.strip().isdecimal() and len(task_id) < 20:
        task_id = int(task_id)
    if not isinstance(task_id, int) or isinstance(task_id, bool) or not 0 <= task_id < 2**63:
        raise RecordProblem(f"{where}.task_id: expected a whole number below 2^63, found {str(task_id)[:40]!r}")
    instruction = _text(item, "instruction", where)
    simple = _text(item, "instruction_simple", where)
    if not instruction and not simple:
        raise RecordProblem(f"{where}.instruction: missing or empty")
    return PurchaseTask(
        task_id=task_id,
        asin=asin,
        instruction=instruction or simple,
        instruction_simple=simple or instruction,
        attributes=_strings(item.get("attributes"), f"{where}.attributes"),
        instruction_options=_strings(item.get("instruction_options"), f"{where}.instruction_options"),
        price_upper=_price(item.get("price_upper"), f"{where}.price_upper"),
        persona=persona or None,
    )
