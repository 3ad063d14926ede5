"""What is searched, as an SQLite FTS5 table; and the index file, from which a large shop opens at once.

An index lives in memory, or in a file that several processes share. The file also holds the catalog it was built from,
as it was read: `open_catalog` then neither parses nor checks a record until it is looked at, and a shop of 200,000
products opens in about a second. A file carries a manifest; one of another catalog or other rules is refused.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from shopsimulator import SEARCH_VERSION
from shopsimulator.catalog import Catalog, file_sha256, read_catalog
from shopsimulator.errors import ShopError
from shopsimulator.products import Product
from shopsimulator.stored import read_stored, write_stored
from shopsimulator.text import model_words, search_tokens

# Weights act before BM25's saturation: beyond about 5 a single hit counts as full.
FIELDS = {
    "title": 3.0,
    "brand": 2.0,
    "category": 2.0,
    "model": 2.5,
    "attributes": 1.5,
    "options": 1.2,
    "bullets": 0.8,
}
IDENTITY: dict[str, Any] = {
    "version": SEARCH_VERSION,
    "field_weights": FIELDS,
    "fts_columns": list(FIELDS),
    "option_document_version": "public-axis-value-v1",
    "query_normalizer": "nfkc-casefold-basic-punctuation-v1",
    "tokenizer": "han-bigram-latin-number-v1",
    "tie_breaker": "asin-ascending",
}
_LAYOUT = 1  # of the tables beside the searched one
_COLUMNS = ", ".join(FIELDS)


def search_text(product: Product) -> dict[str, str]:
    """The indexed text of each field; of options only the public names and values, as the file writes them."""
    options = [
        part
        for axis in sorted(product.options)
        for part in (axis, *(value.raw or value.value for value in product.options[axis]))
    ]
    return {
        "title": product.title,
        "brand": product.shop_name,
        "category": product.category,
        "model": " ".join(model_words(product.title)),
        "attributes": " ".join(product.attributes),
        "options": " ".join(part for part in map(str.strip, options) if part),
        "bullets": " ".join(product.small_description),
    }


def build_in_memory(catalog: Catalog) -> sqlite3.Connection:
    """The searched table `products`; its row numbers are the ranks of the asins."""
    connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    _fill(connection, catalog)
    return connection


def build_index(catalog: Catalog, path: str | Path) -> dict[str, Any]:
    """Write the index file, replacing what was there, and return its manifest. Raises `ShopError`."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    manifest = _manifest(catalog)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        connection = sqlite3.connect(temporary, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=OFF")
            connection.execute("PRAGMA synchronous=OFF")
            _fill(connection, catalog)
            write_stored(connection, catalog)
            connection.execute("CREATE TABLE manifest(payload BLOB NOT NULL)")
            connection.execute("INSERT INTO manifest VALUES (?)", (orjson.dumps(manifest),))
        finally:
            connection.close()
        temporary.replace(target)
    except (OSError, sqlite3.Error) as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ShopError(f"{path}: cannot write the search index: {error}") from error
    return manifest


def open_index(catalog: Catalog, path: Path) -> sqlite3.Connection:
    """The index file of this catalog, built first if there is none. Raises `ShopError` if it is of another one."""
    if not path.exists():
        build_index(catalog, path)
    connection, found = _open(path)
    wrong = [key for key, value in _manifest(catalog).items() if found.get(key) != value and key != "file_sha256"]
    if wrong:
        connection.close()
        raise ShopError(
            f"{path}: built from another catalog or by other rules ({', '.join(wrong)}); run `shopsimulator index`"
        )
    return connection


def open_catalog(path: str | Path, index: str | Path | None = None) -> Catalog:
    """The catalog file, taken from its index file where that was built from the very same bytes. Raises `ShopError`."""
    if index is not None and Path(index).exists():
        connection, found = _open(Path(index))
        if found.get("file_sha256") == file_sha256(path) and found.get("layout") == _LAYOUT:
            return read_stored(connection)
        connection.close()
    return read_catalog(path)


def _manifest(catalog: Catalog) -> dict[str, Any]:
    return {
        **IDENTITY,
        "layout": _LAYOUT,
        "product_sha256": catalog.sha256,
        "product_count": len(catalog.products),
        "file_sha256": catalog.file_sha256,
    }


def _open(path: Path) -> tuple[sqlite3.Connection, dict[str, Any]]:
    source = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(source, uri=True, check_same_thread=False)
        manifest = orjson.loads(connection.execute("SELECT payload FROM manifest").fetchone()[0])
    except (sqlite3.Error, TypeError, ValueError) as error:
        raise ShopError(f"{path}: not a search index ({error}); delete it, or give another path") from error
    return connection, manifest


def _fill(connection: sqlite3.Connection, catalog: Catalog) -> None:
    connection.execute("BEGIN")
    connection.execute(
        f"CREATE VIRTUAL TABLE products USING fts5({_COLUMNS}, content='', tokenize='unicode61 remove_diacritics 2')"
    )
    insert = f"INSERT INTO products(rowid, {_COLUMNS}) VALUES ({', '.join('?' * (len(FIELDS) + 1))})"
    connection.executemany(insert, _rows(catalog.products[asin] for asin in sorted(catalog.products)))
    connection.execute("INSERT INTO products(products) VALUES ('optimize')")
    connection.execute("COMMIT")


def _rows(products: Iterable[Product]) -> Iterator[tuple[int | str, ...]]:
    for row, product in enumerate(products):
        yield (row, *(" ".join(search_tokens(text)) for text in search_text(product).values()))
