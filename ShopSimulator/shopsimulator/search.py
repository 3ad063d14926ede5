"""Search: multi-field BM25 over what a customer can see.

Each product is one row of an in-memory SQLite FTS5 table with a column per field, weighted by how much a hit
there says. A query is a bag of tokens (`text.py`); a product's score is the sum of FTS5's BM25 over the tokens it
holds, so that products meeting more of the wish come first.

BM25 of a bag is a sum over tokens, and FTS5 takes milliseconds to rank thousands of rows. So the index asks FTS5
once per token, keeps that token's scores as two arrays, and adds arrays from then on. Scores are rounded to whole
billionths before they are added: sums of integers do not depend on order or machine, and equal means equal; ties
go to the smaller asin.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from shopsimulator.catalog import Catalog, Product
from shopsimulator.text import fold, index_tokens, model_tokens, query_tokens

# Weights act before BM25's saturation: beyond about 5 a single hit counts as full.
FIELDS = {
    "title": 4.0,
    "brand": 3.0,
    "category": 2.0,
    "model": 3.0,
    "attributes": 3.0,
    "options": 2.0,
    "bullets": 0.5,
}
_UNIT = 1e-9  # one step of the integer scores
_MAX_TOKENS = 64  # of one query; more are ignored, so that a pasted page cannot stall the shop
_CACHED_QUERIES = 4096  # siblings of a group ask the same things

Postings = tuple[np.ndarray, np.ndarray]  # rows holding a token (int64), their scores (int64, units of _UNIT)


class Hit(NamedTuple):
    """One result. `score` is positive; larger is better."""

    asin: str
    score: float


class SearchIndex:
    """Search over one catalog; safe to use from several threads."""

    def __init__(self, catalog: Catalog) -> None:
        # Row number = rank of the asin, so ties are broken by row. Objects: the texts themselves are handed out.
        self._asins = np.array(sorted(catalog.products), dtype=object)
        self._lock = threading.Lock()  # one connection, one reader at a time
        self._connection = _build(catalog.products[asin] for asin in self._asins)
        self._postings: dict[str, Postings] = {}
        self._ranked = lru_cache(maxsize=_CACHED_QUERIES)(self._rank)

    def search(self, query: str, limit: int = 150) -> list[Hit]:
        """Best `limit` products for a free-text query; a product without any of its tokens is no hit."""
        asins, scores = self._ranked(query, limit)
        return list(map(Hit, asins, np.round(scores * _UNIT, 9).tolist()))

    def asins(self, query: str, limit: int = 150) -> tuple[str, ...]:
        """The products of `search` without their scores, for callers in a hurry."""
        return self._ranked(query, limit)[0]

    def _rank(self, query: str, limit: int) -> tuple[tuple[str, ...], np.ndarray]:
        """Asins, best first, with their integer scores."""
        found = [postings for token in self._tokens(query) if len((postings := self._lookup(token))[0])]
        scores = np.zeros(len(self._asins), dtype=np.int64)
        if not found or limit < 1:
            return (), scores[:0]
        for rows, values in found:
            scores[rows] += values
        hits = np.flatnonzero(scores >= _floor(found, scores, limit))
        # One integer per hit that sorts by score, then by asin.
        keys = scores[hits] * len(self._asins) + (len(self._asins) - 1 - hits)
        ordered = hits[np.argsort(-keys)][:limit]
        return tuple(self._asins[ordered].tolist()), scores[ordered]

    def _tokens(self, query: str) -> list[str]:
        """Distinct tokens of the query; a bigram the catalog does not know is read as its characters."""
        tokens: dict[str, None] = {}
        for token in query_tokens(query):
            known = token.isascii() or len(token) == 1 or len(self._lookup(token)[0])
            tokens.update(dict.fromkeys([token] if known else token))
            if len(tokens) >= _MAX_TOKENS:
                break
        return list(tokens)

    def _lookup(self, token: str) -> Postings:
        """Rows holding the token with their scores; asked of FTS5 once."""
        if (postings := self._postings.get(token)) is not None:
            return postings
        with self._lock:
            rows = self._connection.execute(_SELECT, (f'"{token}"',)).fetchall()
        numbers = np.array([row for row, _ in rows], dtype=np.int64)
        scores = np.array([-score for _, score in rows], dtype=np.float64)
        postings = (numbers, np.maximum(np.round(scores / _UNIT), 1).astype(np.int64))
        if rows:  # words the catalog does not know are not remembered: their number has no bound
            self._postings[token] = postings
        return postings


def _floor(found: list[Postings], scores: np.ndarray, limit: int) -> int:
    """A score that none of the best `limit` products falls below: most rows need no sorting then.

    The `limit`-th best of any subset is one; the rows of the rarest token that has as many make a small, good subset.
    """
    enough = [rows for rows, _ in found if len(rows) >= limit]
    if not enough:
        return 1  # every score is at least 1
    reached = scores[min(enough, key=len)]
    return int(np.partition(reached, len(reached) - limit)[len(reached) - limit])


_SELECT = f"SELECT rowid, bm25(products, {', '.join(map(str, FIELDS.values()))}) FROM products WHERE products MATCH ?"


def _build(products: Iterable[Product]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    # Text arrives as tokens separated by spaces: the plainest tokenizer leaves them alone on every SQLite version.
    connection.execute(
        f"CREATE VIRTUAL TABLE products USING fts5({', '.join(FIELDS)}, content='', tokenize=\"ascii tokenchars '.'\")"
    )
    insert = f"INSERT INTO products(rowid, {', '.join(FIELDS)}) VALUES ({', '.join('?' * (len(FIELDS) + 1))})"
    rows = ((row, *(" ".join(tokens) for tokens in _fields(product))) for row, product in enumerate(products))
    with connection:
        connection.executemany(insert, rows)
        connection.execute("INSERT INTO products(products) VALUES ('optimize')")
    return connection


def _fields(product: Product) -> tuple[list[str], ...]:
    """Tokens of each field, in the order of `FIELDS`; of options only the public names and values."""
    options = " ".join(" ".join((axis, *(value.value for value in values))) for axis, values in product.options.items())
    bullets = product.description if fold(product.description) != fold(product.title) else ""
    return (
        index_tokens(product.title),
        index_tokens(product.shop_name),
        index_tokens(" ".join(product.category)),
        model_tokens(product.title),
        index_tokens(" ".join(product.attributes)),
        index_tokens(options),
        index_tokens(bullets),
    )
