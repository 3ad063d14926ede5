"""Search: multi-field BM25 over what a customer can see, `shopsimulator-multifield-bm25-v3`.

Each product is one row of an SQLite FTS5 table with a column per field, weighted by how much a hit there says. A
query is the OR of its distinct tokens (`text.search_tokens`); a product's score is FTS5's `bm25`, ties go to the
smaller asin.

BM25 of such a query is a sum over its tokens, and FTS5 takes milliseconds to rank thousands of rows. So the index
asks FTS5 once per token, keeps that token's scores as two arrays, and adds them from then on, in the order of the
query, as FTS5 itself does: the sums, and so the ranks, are the same to the last bit (a test compares them).

An index lives in memory, or in a file that several processes share. A file carries a manifest; one that was built
from another catalog or under other rules is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np

from shopsimulator.catalog import Catalog
from shopsimulator.index_file import FIELDS, IDENTITY, build_in_memory, build_index, open_index, search_text
from shopsimulator.text import normalize_query, search_tokens

__all__ = ["FIELDS", "IDENTITY", "Hit", "SearchIndex", "build_index", "normalize_query", "search_text", "search_tokens"]

_MAX_TOKENS = 256  # of one query; more are ignored, so that a pasted page cannot stall the shop
_CACHED_QUERIES = 4096  # siblings of a group ask the same things
_SELECT = f"SELECT rowid, bm25(products, {', '.join(map(str, FIELDS.values()))}) FROM products WHERE products MATCH ?"


Postings = tuple[np.ndarray, np.ndarray]  # rows holding a token (ascending), their scores


class Hit(NamedTuple):
    """One result. `score` is positive; larger is better."""

    asin: str
    score: float


class Hits(Sequence[str]):
    """The asins of a search, best first. They are looked up where they are asked for: a page shows few of them."""

    __slots__ = ("_asins", "_rows")

    def __init__(self, asins: np.ndarray, rows: np.ndarray) -> None:
        self._asins = asins
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...

    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        if isinstance(place, slice):
            return tuple(self._asins.take(self._rows[place]).tolist())
        return self._asins[self._rows[place]]


class SearchIndex:
    """Search over one catalog; safe to use from several threads."""

    def __init__(self, catalog: Catalog, path: str | Path | None = None) -> None:
        """With a path, the index file there, built first if there is none. Raises `ShopError` if it does not fit."""
        # Row number = rank of the asin, so ties are broken by row. Objects: the texts themselves are handed out.
        self._asins = np.array(sorted(catalog.products), dtype=object)
        self._lock = threading.Lock()  # one connection, one reader at a time
        self._connection = open_index(catalog, Path(path)) if path is not None else build_in_memory(catalog)
        self._postings: dict[str, Postings] = {}
        self._ranked = lru_cache(maxsize=_CACHED_QUERIES)(self._rank)

    def search(self, query: str, limit: int = 150) -> list[Hit]:
        """Best `limit` products for a free-text query; a product without any of its tokens is no hit."""
        rows, scores = self._ranked(query, limit)
        return list(map(Hit, Hits(self._asins, rows)[:], scores.tolist()))

    def asins(self, query: str, limit: int = 150) -> tuple[str, ...]:
        """The products of `search` without their scores."""
        return self.hits(query, limit)[:]

    def hits(self, query: str, limit: int = 150) -> Hits:
        """The same, for callers in a hurry."""
        return Hits(self._asins, self._ranked(query, limit)[0])

    def _rank(self, query: str, limit: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows, best first, with their scores."""
        tokens = search_tokens(query)[:_MAX_TOKENS]
        found = [postings for token in tokens if len((postings := self._lookup(token))[0])]
        if not found or limit < 1:
            return np.empty(0, dtype=np.intp), np.empty(0)
        return _best(*_sums(found, limit, len(self._asins)), limit)

    def _lookup(self, token: str) -> Postings:
        """Rows holding the token with their scores; asked of FTS5 once. A token such as `wh-1000` is a phrase."""
        if (postings := self._postings.get(token)) is not None:
            return postings
        with self._lock:
            found = self._connection.execute(_SELECT, (f'"{token}"',)).fetchall()
        rows = np.array([row for row, _ in found], dtype=np.intp)
        postings = rows, np.array([-score for _, score in found], dtype=np.float64)
        if found:  # words the catalog does not know are not remembered: their number has no bound
            self._postings[token] = postings
        return postings


def _sums(found: list[Postings], limit: int, products: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows, ascending, among which the best `limit` are, with their scores summed in the order of the query."""
    if len(found) == 1:
        return found[0]
    rows, scores = (np.concatenate(parts) for parts in zip(*found))
    totals = np.bincount(rows, scores, products)
    # The `limit`-th best of any subset is no better than that of all. The rows of the rarest token that has as many
    # make a small, good subset: most rows need no sorting then.
    enough = [own for own, _ in found if len(own) >= limit]
    floor = _worst_of(totals.take(min(enough, key=len)), limit) if enough else np.finfo(np.float64).tiny
    kept = np.flatnonzero(totals >= floor)
    return kept, totals.take(kept)


def _best(rows: np.ndarray, scores: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """The best `limit` in order; between equals the smaller row, that is the smaller asin, comes first."""
    if len(rows) > limit:  # many rows may share the last score that gets in: they need no sorting
        worst = _worst_of(scores, limit)
        above, equal = np.flatnonzero(scores > worst), np.flatnonzero(scores == worst)
        kept = np.concatenate((above, equal[: limit - len(above)]))
        rows, scores = rows.take(kept), scores.take(kept)
    order = np.argsort(-scores, kind="stable")
    return rows.take(order), scores.take(order)


def _worst_of(scores: np.ndarray, limit: int) -> float:
    """The `limit`-th best score."""
    ordered, place = scores.copy(), len(scores) - limit
    ordered.partition(place)
    return float(ordered[place])
