"""Which words of a title are compared, and what decides that."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
from shopsimulator import title_terms as module
from shopsimulator.errors import ShopError
from shopsimulator.title_terms import default_title_terms, title_terms


@pytest.fixture
def tagged(monkeypatch):
    """spaCy with a model that calls every other blank-separated word a noun, beginning with the first."""

    def tag(text):
        return [
            SimpleNamespace(text=word, pos_="NOUN" if n % 2 == 0 else "VERB") for n, word in enumerate(text.split(","))
        ]

    spacy = ModuleType("spacy")
    spacy.load = lambda name: {"zh_core_web_sm": tag}[name]
    monkeypatch.setitem(sys.modules, "spacy", spacy)
    module._tagger.cache_clear()
    module._nouns.cache_clear()
    yield
    module._tagger.cache_clear()
    module._nouns.cache_clear()


@pytest.mark.parametrize(
    ("title", "terms"),
    [
        ("白色书桌", {"白色", "色书", "书桌"}),
        ("T恤", {"t", "恤"}),
        ("iPhone15 手机壳", {"iphone15", "手机", "机壳"}),
        ("WH-1000XM5", {"wh-1000xm5"}),
        ("Ａ４", set()),
        ("", set()),
    ],
)
def test_lexical_terms(title, terms):
    assert title_terms(title, "lexical") == terms


def test_the_model_gives_nouns_and_lexical_terms_where_it_finds_none(tagged):
    assert title_terms("Desk,buy,LAMP", "zh_core_web_sm") == {"desk", "lamp"}
    assert title_terms(",", "zh_core_web_sm") == title_terms(",", "lexical")
    assert title_terms(" ,书桌", "zh_core_web_sm") == {"书桌"}


def test_what_is_installed_decides_the_default(monkeypatch):
    model = "zh_core_web_sm"
    for found, expected in (({"spacy", model}, model), ({"spacy"}, "lexical"), (set(), "lexical")):
        monkeypatch.setattr(module, "find_spec", lambda name, found=found: name if name in found else None)
        assert default_title_terms() == expected


def test_a_missing_model_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    module._tagger.cache_clear()
    with pytest.raises(ShopError, match="pip install spacy"):
        title_terms("a title nobody asked for before", "zh_core_web_sm")
