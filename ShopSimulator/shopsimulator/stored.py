"""A catalog kept in the tables of an index file, each product and task decoded when it is first looked at."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import orjson

from shopsimulator.catalog import Catalog, Exclusion
from shopsimulator.products import OptionValue, Product, PurchaseTask

Key = TypeVar("Key", str, int)
Value = TypeVar("Value")


class Stored(Mapping[Key, Value], Generic[Key, Value]):
    """A mapping in file order; what was looked at stays in memory. Safe to use from several threads."""

    def __init__(
        self, connection: sqlite3.Connection, lock: threading.Lock, table: str, decode: Callable[[Any], Value]
    ) -> None:
        self._connection = connection
        self._lock = lock
        self._select = f"SELECT content FROM {table} WHERE key = ?"
        self._decode = decode
        rows = connection.execute(f"SELECT key FROM {table} ORDER BY place")
        self._known: dict[Key, Value | None] = dict.fromkeys(key for (key,) in rows)

    def __getitem__(self, key: Key) -> Value:
        value = self._known[key]
        if value is None:
            with self._lock:
                (content,) = self._connection.execute(self._select, (key,)).fetchone()
            value = self._known[key] = self._decode(orjson.loads(content))
        return value

    def __iter__(self) -> Iterator[Key]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, key: object) -> bool:
        return key in self._known


def write_stored(connection: sqlite3.Connection, catalog: Catalog) -> None:
    connection.execute("BEGIN")
    for table, entries in (("stored_products", catalog.products), ("stored_tasks", catalog.tasks)):
        connection.execute(f"CREATE TABLE {table}(key PRIMARY KEY, place INTEGER, content BLOB) WITHOUT ROWID")
        rows = ((key, place, orjson.dumps(entry)) for place, (key, entry) in enumerate(entries.items()))
        connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
    rest = {
        "sha256": catalog.sha256,
        "language": catalog.language,
        "file_sha256": catalog.file_sha256,
        "excluded": catalog.excluded,
    }
    connection.execute("CREATE TABLE stored_rest(content BLOB)")
    connection.execute("INSERT INTO stored_rest VALUES (?)", (orjson.dumps(rest),))
    connection.execute("COMMIT")


def read_stored(connection: sqlite3.Connection) -> Catalog:
    lock = threading.Lock()
    rest = orjson.loads(connection.execute("SELECT content FROM stored_rest").fetchone()[0])
    excluded = (
        Exclusion(**item | {key: tuple(item[key]) for key in ("task_ids", "price_affecting_axes")})
        for item in rest.pop("excluded")
    )
    products: Stored[str, Product] = Stored(connection, lock, "stored_products", _product)
    tasks: Stored[int, PurchaseTask] = Stored(connection, lock, "stored_tasks", _task)
    return Catalog(products, tasks, tuple(excluded), **rest)


def _product(content: dict[str, Any]) -> Product:
    for name in ("pricing", "attributes", "small_description", "null_axes"):
        content[name] = tuple(content[name])
    content["options"] = {
        axis: tuple(OptionValue(**value) for value in values) for axis, values in content["options"].items()
    }
    return Product(**content)


def _task(content: dict[str, Any]) -> PurchaseTask:
    for name in ("attributes", "instruction_options"):
        content[name] = tuple(content[name])
    return PurchaseTask(**content)
