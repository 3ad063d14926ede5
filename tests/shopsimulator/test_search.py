"""What a query finds, in which order, and that the order is the same everywhere."""

from __future__ import annotations

import random
import sqlite3
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shopsimulator.catalog import Catalog, inspect_records
from shopsimulator.search import FIELDS, SearchIndex
from shopsimulator.text import contains, fold, index_tokens, query_tokens


def catalog(*titles: str, **shared) -> Catalog:
    records = [{"asin": f"{number:010d}", "title": title} | shared for number, title in enumerate(titles)]
    return inspect_records(records).catalog


def asins(index: SearchIndex, query: str, limit: int = 150) -> list[int]:
    return [int(hit.asin) for hit in index.search(query, limit)]


FILLERS = [f"filler {chr(97 + number)}" for number in range(10)]


def test_more_of_the_wish_comes_first():
    index = SearchIndex(catalog("oak shelf", "norvik oak shelf", "norvik lamp", *FILLERS))
    assert asins(index, "norvik oak shelf") == [1, 0, 2]


def test_a_rarer_word_weighs_more():
    index = SearchIndex(catalog("oak table", "oak chair", "oak bed", "zebra lamp", *FILLERS))
    assert asins(index, "oak zebra")[0] == 3


def test_nothing_found_is_an_empty_list():
    index = SearchIndex(catalog("oak shelf"))
    for query in ("", "   ", "steel", "?!", "\x00", "盒"):
        assert index.search(query) == []
    assert index.search("oak", 0) == []


def test_every_public_field_is_searched():
    record = {
        "asin": "1",
        "title": "title rx580",
        "shop_name": "brandname store",
        "category": "home›bedroom›drawer",
        "attribute": ["attrword"],
        "customization_options": {"axisname": [{"value": "optionword"}]},
        "full_description": "bulletword",
    }
    index = SearchIndex(inspect_records([record, {"asin": "2", "title": "lamp"}]).catalog)
    words = "title rx580 rx brandname drawer attrword axisname optionword bulletword"
    for query in words.split(" "):
        assert [hit.asin for hit in index.search(query)] == ["1"], query


def test_private_task_fields_are_not_searched():
    task = {
        "task_id": 1,
        "instruction": "secretword",
        "attributes": ["secretattr"],
        "instruction_options": ["secretopt"],
    }
    persona = {"用户ID": "secretuser"}
    record = {"asin": "1", "title": "shelf", "instructions": [task], "user_persona": persona}
    index = SearchIndex(inspect_records([record]).catalog)
    for query in ("secretword", "secretattr", "secretopt", "secretuser"):
        assert index.search(query) == []


def test_a_title_hit_beats_a_hit_in_the_description():
    record = {"asin": "1", "title": "lamp", "full_description": "fits an oak shelf"}
    records = [record, {"asin": "2", "title": "oak shelf"}, *({"asin": f"9{n}", "title": "x"} for n in range(9))]
    assert [hit.asin for hit in SearchIndex(inspect_records(records).catalog).search("oak")] == ["2", "1"]


def test_ties_go_to_the_smaller_asin_whatever_the_file_order():
    records = [{"asin": asin, "title": "oak shelf"} for asin in ("30", "4", "100", "20")]
    records += [{"asin": f"9{number}", "title": "lamp"} for number in range(9)]
    for seed in range(3):
        random.Random(seed).shuffle(records)
        hits = SearchIndex(inspect_records(records).catalog).search("oak")
        assert [hit.asin for hit in hits] == ["100", "20", "30", "4"]
        assert len({hit.score for hit in hits}) == 1


@pytest.mark.parametrize("query", ["盒", "木", "收纳", "收纳盒", "实木收纳盒", "ＲＸ", "红木收纳"])
def test_chinese_is_found_by_character_pair_and_phrase(query):
    index = SearchIndex(catalog("实木收纳盒 rx580", "蓝色花瓶", *FILLERS))
    assert asins(index, query)[:1] == [0]


def test_an_unknown_pair_is_read_as_its_characters():
    index = SearchIndex(catalog("红色花瓶", "收纳盒", *FILLERS))
    assert asins(index, "红盒") == [0, 1] or asins(index, "红盒") == [1, 0]


@pytest.mark.parametrize(
    ("title", "query"),
    [
        ("桌子 1,299元", "1299"),
        ("桌子 1299元", "1,299元"),
        ("box 40cm", "40 cm"),
        ("box ４０ＣＭ", "40cm"),
        ("cable 1.5m", "1.5"),
        ("CAFÉ chair", "café"),
        ("T-Shirt", "t shirt"),
    ],
)
def test_widths_cases_and_numbers_are_folded(title, query):
    assert asins(SearchIndex(catalog(title, *FILLERS)), query)[:1] == [0]


@pytest.mark.parametrize(
    "query",
    [
        'oak" OR "x',
        "oak AND NOT",
        "oak*",
        "title:oak",
        "NEAR(oak shelf)",
        "^oak",
        "oak -shelf",
        "(oak",
        "oak;--",
        "{oak}",
    ],
)
def test_operators_in_a_query_are_plain_text(query):
    index = SearchIndex(catalog("oak board", *FILLERS))
    assert asins(index, query) == [0]


def test_the_limit_keeps_the_best():
    index = SearchIndex(catalog(*["oak shelf"] * 30, "oak oak shelf shelf", *["lamp"] * 40))
    full = asins(index, "oak shelf")
    assert len(full) == 31
    assert asins(index, "oak shelf", 5) == full[:5]
    assert full[0] == 30


def test_scores_are_those_of_fts5():
    titles = [
        f"{brand} {thing}" for brand in ("norvik", "tarn", "ulme") for thing in ("oak shelf", "pine box", "oak box")
    ]
    index = SearchIndex(catalog(*titles))
    reference = sqlite3.connect(":memory:")
    reference.execute(f"CREATE VIRTUAL TABLE p USING fts5({', '.join(FIELDS)})")
    for row, title in enumerate(titles):
        reference.execute("INSERT INTO p(rowid, title, brand) VALUES (?, ?, '')", (row, title))
    weights = ", ".join(map(str, FIELDS.values()))
    rows = reference.execute(
        f"SELECT rowid, -bm25(p, {weights}) FROM p WHERE p MATCH 'norvik OR oak OR box'"
    ).fetchall()
    expected = {f"{row:010d}": pytest.approx(score, abs=1e-8) for row, score in rows}
    assert {hit.asin: hit.score for hit in index.search("norvik oak box")} == expected


def test_many_threads_get_the_answers_of_one():
    words = ["oak", "pine", "steel", "shelf", "lamp", "box"]
    titles = [f"{a} {b} {n}" for a in words for b in words for n in range(5)]
    queries = [f"{a} {b}" for a in words for b in words]
    expected = {query: SearchIndex(catalog(*titles)).search(query) for query in queries}
    shared, wrong = SearchIndex(catalog(*titles)), []

    def ask(seed: int) -> None:
        for query in random.Random(seed).sample(queries, len(queries)):
            if shared.search(query) != expected[query]:
                wrong.append(query)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_returned_list_is_the_callers_own():
    index = SearchIndex(catalog("oak shelf", *FILLERS))
    index.search("oak").clear()
    assert asins(index, "oak") == [0]


QUERIES = st.text(st.sampled_from("oak sh收纳盒红1.,\"'()*:-^ＡaéÅ"), max_size=20)
SMALL = SearchIndex(catalog("oak shelf", "红色收纳盒 1.5", "åse a", "oak 红", *FILLERS))


@given(QUERIES, st.integers(1, 20))
def test_any_query_is_answered_ranked_and_repeatably(query, limit):
    hits = SMALL.search(query, limit)
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.asin))
    assert len(hits) <= limit
    assert len({hit.asin for hit in hits}) == len(hits)
    assert all(hit.score > 0 for hit in hits)
    assert hits == SMALL.search(fold(query), limit)


@given(st.text(max_size=30))
def test_a_title_is_found_by_its_own_text(title):
    assert set(query_tokens(title)) <= set(index_tokens(title))
    assert fold(fold(title)) == fold(title)


@given(st.text("ab 红", max_size=6), st.text("ab 红", max_size=6))
def test_containment_of_whole_words(left, right):
    text = fold(f"{left} oak {right}")
    assert contains(text, "oak")
    assert not contains(fold(f"{left} soak {right}"), "oak")
