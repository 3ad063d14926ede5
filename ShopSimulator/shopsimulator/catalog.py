"""The catalog: products, their option axes, and the purchase tasks that want them.

A catalog file is a JSON array of records (or `{"products": [...]}`), plain or gzipped, in the schema of the
public ShopSimulator data. Reading it does three things. What is odd in a record is *found* and listed with its
place: the value, the task or, at worst, the record is left out, never the file. Products with two or more
price-affecting axes are *excluded*, because no single price can be told for a combination, and their tasks go with
them (filter `single-price-axis-v1`). And the content is hashed, so that a run can name exactly what it was trained
on, however the file was compressed or spaced.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from shopsimulator.errors import ShopError
from shopsimulator.files import write_atomic
from shopsimulator.pricing import price_changing_axes
from shopsimulator.products import OptionValue, Product, PurchaseTask
from shopsimulator.schema import RecordSkipped, read_product, read_tasks
from shopsimulator.text import has_cjk

__all__ = [
    "Catalog",
    "Exclusion",
    "Finding",
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

MANY_PRICED_AXES = "multiple_price_affecting_axes"
_LANGUAGE_SAMPLE = 1000  # titles that decide a catalog's language


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A product left out by the price filter, for the audit list."""

    source_product_index: Any
    asin: str
    task_ids: tuple[int, ...]
    reason: str
    price_affecting_axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something odd: where, and what was done about it and why."""

    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """All products by asin and all tasks by id, in file order.

    `sha256` covers the content of the whole file and is what names the catalog; `file_sha256` its bytes.
    """

    products: Mapping[str, Product]
    tasks: Mapping[int, PurchaseTask]
    excluded: tuple[Exclusion, ...]
    sha256: str
    language: str
    file_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What reading found. `skipped` records hold no product; what `findings` tell of the others was lived with."""

    catalog: Catalog
    skipped: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    records: int

    @property
    def excluded_tasks(self) -> int:
        return sum(len(item.task_ids) for item in self.catalog.excluded)


def read_catalog(path: str | Path) -> Catalog:
    """Read a catalog file. Raises `ShopError` if it holds no product that can be used."""
    inspection = inspect_catalog(path)
    if not inspection.catalog.products:
        skipped = inspection.skipped
        why = f"; {len(skipped)} were skipped, the first: {skipped[0].place}: {skipped[0].text}" if skipped else ""
        raise ShopError(f"{path}: none of its {inspection.records} records is a usable product{why}")
    return inspection.catalog


def inspect_catalog(path: str | Path) -> Inspection:
    """Read a catalog file and collect everything odd. Raises `ShopError` if it is no catalog at all."""
    data = _read(Path(path))
    content = _parse(Path(path), data)
    records = content.get("products") if isinstance(content, dict) else content
    if not isinstance(records, list):
        raise ShopError(f'{path}: expected a JSON array of products or {{"products": [...]}}')
    inspection = inspect_records(records)
    digest = hashlib.sha256(data).hexdigest()
    return replace(inspection, catalog=replace(inspection.catalog, file_sha256=digest))


def write_catalog(path: str | Path, records: Sequence[dict[str, Any]]) -> None:
    """Write records as one JSON array, gzipped if the name ends in `.gz`; the same records give the same bytes."""
    data = orjson.dumps(list(records))
    write_atomic(path, gzip.compress(data, compresslevel=6, mtime=0) if Path(path).suffix == ".gz" else data)


def inspect_records(records: Sequence[Any]) -> Inspection:
    """Read raw records; the pure core of `inspect_catalog`."""
    products: dict[str, Product] = {}
    tasks: dict[int, PurchaseTask] = {}
    seen: set[str] = set()
    excluded: list[Exclusion] = []
    skipped: list[Finding] = []
    findings: list[Finding] = []
    for number, record in enumerate(records):
        remark = _remark_on(findings, f"products[{number}]")
        try:
            product = read_product(record, remark)
            if product.asin in seen:
                raise RecordSkipped(f".asin: {product.asin} was met before; the first record holds")
        except RecordSkipped as problem:
            place, _, text = str(problem).partition(": ")
            skipped.append(Finding(f"products[{number}]{place}", text))
            continue
        seen.add(product.asin)
        own_tasks = read_tasks(record, product.asin, len(tasks), remark)
        axes = price_changing_axes(product.options)
        if len(axes) > 1:
            ids = tuple(task.task_id for task in own_tasks)
            index = record.get("source_product_index", number)
            excluded.append(Exclusion(index, product.asin, ids, MANY_PRICED_AXES, axes))
            continue
        products[product.asin] = product
        for task in own_tasks:
            if tasks.setdefault(task.task_id, task) is not task:
                remark(".instructions", f"task skipped: task_id {task.task_id} was met before")
    digest = hashlib.sha256(orjson.dumps(list(records))).hexdigest()
    catalog = Catalog(products, tasks, tuple(excluded), digest, _language(products.values()))
    return Inspection(catalog, tuple(skipped), tuple(findings), len(records))


def _remark_on(findings: list[Finding], place: str) -> Callable[[str, str], None]:
    return lambda where, text: findings.append(Finding(place + where, text))


def _language(products: Iterable[Product]) -> str:
    titles = [product.title for product in islice(products, _LANGUAGE_SAMPLE)]
    return "zh" if 2 * sum(has_cjk(title) for title in titles) > len(titles) else "en"


def file_sha256(path: str | Path) -> str:
    """SHA-256 of a catalog file's bytes. Raises `ShopError`."""
    return hashlib.sha256(_read(Path(path))).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ShopError(f"{path}: cannot read the catalog: {error.strerror or error}") from error


def _parse(path: Path, data: bytes) -> Any:
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except (EOFError, OSError, zlib.error) as error:  # gzip says OSError too
        raise ShopError(f"{path}: the gzip data is damaged or cut short; copy the file again") from error
    except orjson.JSONDecodeError as error:
        raise ShopError(f"{path}: not JSON in UTF-8: {error}") from error
