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
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from shopsimulator.errors import ShopError
from shopsimulator.files import write_atomic
from shopsimulator.products import OptionValue, Product, PurchaseTask, price_changing_axes
from shopsimulator.schema import RecordProblem, read_record
from shopsimulator.text import has_cjk

__all__ = [
    "Catalog",
    "Exclusion",
    "Inspection",
    "OptionValue",
    "Product",
    "PurchaseTask",
    "inspect_catalog",
    "inspect_records",
    "price_changing_axes",
    "read_catalog",
    "write_catalog",
]

MANY_PRICED_AXES = "several price-changing axes"


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
    data = orjson.dumps(list(records))
    write_atomic(path, gzip.compress(data, compresslevel=6, mtime=0) if Path(path).suffix == ".gz" else data)


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
            product, own_tasks = read_record(record)
            _refuse_repetition(product, own_tasks, seen_asins, seen_tasks)
        except RecordProblem as problem:
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


def _refuse_repetition(product: Product, tasks: Sequence[PurchaseTask], asins: set[str], task_ids: set[int]) -> None:
    if product.asin in asins:
        raise RecordProblem(f".asin: {product.asin} appears twice; asins must be unique")
    own: set[int] = set()
    for number, task in enumerate(tasks):
        if task.task_id in task_ids or task.task_id in own:
            raise RecordProblem(
                f".instructions[{number}].task_id: {task.task_id} appears twice; task ids must be unique"
            )
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
