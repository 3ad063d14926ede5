"""The catalog: products, their option axes, and the purchase tasks that want them.

A catalog file is a JSON array of records (or `{"products": [...]}`), plain or gzipped, in the schema of the
public ShopSimulator data. Reading it does three things: every record is checked and every problem is named by
its place; products with two or more price-changing axes are *excluded*, because no single price can be told
for a combination, and their tasks go with them (the audit list says which and why); and the content is hashed,
so that a run can name exactly what it was trained on, however the file was compressed or spaced.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from shopsimulator.errors import ShopError
from shopsimulator.text import has_cjk

MANY_PRICED_AXES = "several price-changing axes"


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


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A product left out at preparation, for the audit list."""

    asin: str
    reason: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """All products by asin and all tasks by id, in file order. `sha256` covers the content of the whole file."""

    products: dict[str, Product]
    tasks: dict[int, PurchaseTask]
    excluded: tuple[Exclusion, ...]
    sha256: str
    language: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """What reading found: the catalog of all sound records, and one line for each unsound one."""

    catalog: Catalog
    errors: tuple[str, ...]
    records: int
    excluded_tasks: int


def read_catalog(path: str | Path) -> Catalog:
    """Read and check a catalog file. Raises `ShopError` naming the first problem."""
    inspection = inspect_catalog(path)
    if inspection.errors:
        more = (
            f" (and {len(inspection.errors) - 1} more; see `shopsimulator validate`)" if inspection.errors[1:] else ""
        )
        raise ShopError(f"{path}: {inspection.errors[0]}{more}")
    return inspection.catalog


def inspect_catalog(path: str | Path) -> Inspection:
    """Read a catalog file and collect every problem in its records. Raises `ShopError` if it is no catalog at all."""
    content = _load(Path(path))
    records = content.get("products") if isinstance(content, dict) else content
    if not isinstance(records, list):
        raise ShopError(f'{path}: expected a JSON array of products or {{"products": [...]}}')
    return inspect_records(records)


def write_catalog(path: str | Path, records: Sequence[dict[str, Any]]) -> None:
    """Write records as one JSON array, gzipped if the name ends in `.gz`; the same records give the same bytes."""
    target = Path(path)
    data = orjson.dumps(list(records))
    if target.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ShopError(f"{path}: cannot write the catalog: {error.strerror or error}") from error


def inspect_records(records: Sequence[Any]) -> Inspection:
    """Check raw records; the pure core of `inspect_catalog`."""
    products: dict[str, Product] = {}
    tasks: dict[int, PurchaseTask] = {}
    excluded: list[Exclusion] = []
    errors: list[str] = []
    seen_asins: set[str] = set()
    seen_tasks: set[int] = set()
    excluded_tasks = 0
    for number, record in enumerate(records):
        try:
            product, own_tasks = _read_record(record)
            _refuse_repetition(product, own_tasks, seen_asins, seen_tasks)
        except _Problem as problem:
            errors.append(f"products[{number}]{problem}")
            continue
        seen_asins.add(product.asin)
        seen_tasks.update(task.task_id for task in own_tasks)
        if len(price_changing_axes(product)) > 1:
            excluded.append(Exclusion(product.asin, MANY_PRICED_AXES))
            excluded_tasks += len(own_tasks)
            continue
        products[product.asin] = product
        tasks.update((task.task_id, task) for task in own_tasks)
    if not products and not errors:
        errors.append("the catalog holds no product that can be bought")
    digest = hashlib.sha256(orjson.dumps(list(records))).hexdigest()
    catalog = Catalog(products, tasks, tuple(excluded), digest, _language(products.values()))
    return Inspection(catalog, tuple(errors), len(records), excluded_tasks)


def price_changing_axes(product: Product) -> tuple[str, ...]:
    """Axes whose values carry at least two different known prices."""
    return tuple(
        axis
        for axis, values in product.options.items()
        if len({value.price for value in values if value.price is not None}) > 1
    )


def _refuse_repetition(product: Product, tasks: Sequence[PurchaseTask], asins: set[str], task_ids: set[int]) -> None:
    if product.asin in asins:
        raise _Problem(f".asin: {product.asin} appears twice; asins must be unique")
    own: set[int] = set()
    for number, task in enumerate(tasks):
        if task.task_id in task_ids or task.task_id in own:
            raise _Problem(f".instructions[{number}].task_id: {task.task_id} appears twice; task ids must be unique")
        own.add(task.task_id)


def _language(products: Any) -> str:
    titles = [product.title for product in products]
    return "zh" if 2 * sum(has_cjk(title) for title in titles) > len(titles) else "en"


def _load(path: Path) -> Any:
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except OSError as error:  # gzip's "not a gzip file" has no strerror
        raise ShopError(f"{path}: cannot read the catalog: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise ShopError(f"{path}: the gzip data is damaged or cut short; copy the file again") from error
    except orjson.JSONDecodeError as error:
        raise ShopError(f"{path}: not JSON in UTF-8: {error}") from error


# --- one record ------------------------------------------------------------------------------------------------


class _Problem(Exception):
    """A defect of one record; its text starts with the path inside the record, such as `.pricing[0]: ...`."""


def _read_record(record: Any) -> tuple[Product, tuple[PurchaseTask, ...]]:
    if not isinstance(record, dict):
        raise _Problem(": expected an object")
    asin = _identifier(record.get("asin"))
    title = _text(record, "title")
    if not title:
        raise _Problem(".title: missing or empty")
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
        raise _Problem(".asin: missing; give a string of digits")
    return value.strip()


def _text(record: dict[str, Any], key: str, where: str = "") -> str:
    value = record.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _Problem(f"{where}.{key}: expected a string, found {type(value).__name__}")
    return value.strip()


def _strings(value: Any, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _Problem(f"{where}: expected a list of strings, found {type(value).__name__}")
    for number, item in enumerate(value):
        if not isinstance(item, str):
            raise _Problem(f"{where}[{number}]: expected a string, found {type(item).__name__}")
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
    """A price as number or string; None, an empty string and a value that is not there mean unknown."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        if isinstance(value, bool):
            raise ValueError
        price = float(value.strip().lstrip("¥￥$").replace(",", "")) if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        raise _Problem(f"{where}: {value!r} is not a price") from None
    if not 0 <= price < float("inf"):
        raise _Problem(f"{where}: {value!r} is not a price")
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
        raise _Problem(f".customization_options: expected an object, found {type(value).__name__}")
    options = {str(axis).strip(): _axis(axis, values) for axis, values in value.items()}
    return {axis: values for axis, values in options.items() if values}  # an axis with no value offers no choice


def _axis(axis: str, values: Any) -> tuple[OptionValue, ...]:
    where = f".customization_options[{axis!r}]"
    if not isinstance(values, list):
        raise _Problem(f"{where}: expected a list, found {type(values).__name__}")
    prices: dict[str, float | None] = {}
    for number, item in enumerate(values):
        name = item.get("value") if isinstance(item, dict) else item
        if not isinstance(name, str) or not name.strip():
            raise _Problem(f"{where}[{number}].value: missing or no string")
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
        raise _Problem(f".instructions: expected a list, found {type(instructions).__name__}")
    persona = record.get("user_persona")
    if persona is not None and not isinstance(persona, dict):
        raise _Problem(f".user_persona: expected an object, found {type(persona).__name__}")
    return tuple(_task(item, f".instructions[{number}]", asin, persona) for number, item in enumerate(instructions))


def _task(item: Any, where: str, asin: str, persona: dict[str, Any] | None) -> PurchaseTask:
    if not isinstance(item, dict):
        raise _Problem(f"{where}: expected an object")
    task_id = item.get("task_id")
    if isinstance(task_id, str) and task_id.strip().isdecimal():
        task_id = int(task_id)
    if not isinstance(task_id, int) or isinstance(task_id, bool) or task_id < 0:
        raise _Problem(f"{where}.task_id: expected a whole number, found {task_id!r}")
    instruction = _text(item, "instruction", where)
    simple = _text(item, "instruction_simple", where)
    if not instruction and not simple:
        raise _Problem(f"{where}.instruction: missing or empty")
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
