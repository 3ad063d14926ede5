"""The words of a title that say what kind of thing it is.

Two methods, and which one is used is part of an environment's identity, because it moves `r_type`:

- `zh_core_web_sm`: nouns and proper nouns as spaCy's small Chinese model tags them, where that model is installed;
- `lexical`: Latin and number runs, and pairs of neighbouring Han characters. It also stands in where the model finds
  no noun.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, Literal

from shopsimulator.errors import ShopError
from shopsimulator.text import HAN_RUN, LATIN_RUN, bigrams

TitleTerms = Literal["zh_core_web_sm", "lexical"]
_CACHED_TITLES = 65_536
_NOUNS = ("NOUN", "PROPN")


def default_title_terms() -> TitleTerms:
    """The method of this installation."""
    return "zh_core_web_sm" if find_spec("spacy") and find_spec("zh_core_web_sm") else "lexical"


def title_terms(title: str, method: TitleTerms) -> frozenset[str]:
    """Distinct terms of a title. Raises `ShopError` where the method is not installed."""
    return _lexical(title) if method == "lexical" else _nouns(title)


@lru_cache(maxsize=_CACHED_TITLES)
def _lexical(title: str) -> frozenset[str]:
    terms = set(re.findall(LATIN_RUN, title.casefold()))
    for run in re.findall(HAN_RUN, title):
        terms.update(bigrams(run))
    return frozenset(terms)


@lru_cache(maxsize=_CACHED_TITLES)
def _nouns(title: str) -> frozenset[str]:
    tokens = _tagger()(title)
    nouns = {token.text.casefold() for token in tokens if token.pos_ in _NOUNS and token.text.strip()}
    return frozenset(nouns) or _lexical(title)


@cache
def _tagger() -> Callable[[str], Any]:
    try:
        import spacy

        return spacy.load("zh_core_web_sm")
    except (ImportError, OSError) as error:
        raise ShopError(
            "title terms by zh_core_web_sm need spaCy and that model: pip install spacy, then "
            "python -m spacy download zh_core_web_sm; or choose the method `lexical`"
        ) from error
