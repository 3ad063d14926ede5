"""Finding product titles in a text, whole, misspelt, or in part.

Titles are found by their letter triples: an inverted index counts, for each title, how many of its triples the text
holds; the few titles of which it holds most are then compared letter by letter with the text's windows of the same
length. So a catalog of tens of thousands of titles is searched in milliseconds. Besides, four words in a row of a
longer title give it away (Chinese: five characters).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher

import numpy as np
from shopsimulator.text import has_cjk

from intraskill.core.words import plain, squeezed, words

_TRIPLES_SHARED = 0.6
_LETTERS_SHARED = 0.85
_RUN = 4  # tokens
_LONG, _LONG_CHINESE = 10, 5  # characters from which a title counts without its spaces


class TitleIndex:
    """All titles of a catalog; one-word titles are left out, they are ordinary nouns."""

    def __init__(self, titles: Iterable[str]) -> None:
        tokens_of = {title: words(title) for title in map(plain, titles)}
        self._titles = sorted(title for title, tokens in tokens_of.items() if len(tokens) > 1)
        self._squeezed = [word for word in map(squeezed, self._titles) if len(word) >= _least(word)]
        self._runs = {run for title in self._titles for run in _runs(tokens_of[title])}
        postings: dict[str, list[int]] = {}
        for row, title in enumerate(self._titles):
            for triple in _triples(title):
                postings.setdefault(triple, []).append(row)
        self._postings = {triple: np.array(rows) for triple, rows in postings.items()}
        self._sizes = np.array([len(_triples(title)) for title in self._titles])

    def find(self, text: str) -> Iterator[tuple[str, str]]:
        """(`title` or `title_fragment`, the passage) of at most one title of each kind in a plain text."""
        if passage := next(self._passages(text), None):
            yield "title", passage
        if fragment := next((run for run in _runs(words(text)) if run in self._runs), None):
            yield "title_fragment", " ".join(fragment)

    def spelt_out(self, whole: str) -> tuple[str, str] | None:
        """A title that stands in a squeezed text."""
        return next((("title", title) for title in self._squeezed if title in whole), None)

    def _passages(self, text: str) -> Iterator[str]:
        found = [self._postings[triple] for triple in _triples(text) if triple in self._postings]
        if not found:
            return
        shared = np.bincount(np.concatenate(found), minlength=len(self._titles)) / self._sizes
        for row in np.flatnonzero(shared >= _TRIPLES_SHARED):
            if passage := _similar_passage(text, self._titles[row]):
                yield passage


def _least(word: str) -> int:
    return _LONG_CHINESE if has_cjk(word) else _LONG


def _triples(text: str) -> set[str]:
    return {text[i : i + 3] for i in range(len(text) - 2)} or {text}


def _runs(tokens: list[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(tokens[i : i + _RUN]) for i in range(len(tokens) - _RUN + 1))


def _similar_passage(text: str, title: str) -> str | None:
    """The window of the text, of about the title's length, that reads like the title."""
    starts = [0, *(i + 1 for i, character in enumerate(text) if character == " " or not character.isascii())]
    matcher = SequenceMatcher(autojunk=False, b=title)
    for start in starts:
        for length in (len(title), len(title) + 1, len(title) - 1):
            window = text[start : start + length]
            matcher.set_seq1(window)
            if matcher.quick_ratio() >= _LETTERS_SHARED and matcher.ratio() >= _LETTERS_SHARED:
                return window
    return None
