"""What a query finds, in which order, and that the order is the same everywhere."""

from __future__ import annotations

import random
import sqlite3
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shopsimulator.catalog import Catalog, inspect_records
from shopsimulator.search import FIELDS, SearchIndex, normalize_query, search_text, search_tokens
from shopsimulator.text import contains, fold


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
        "small_description": ["bulletword"],
        "full_description": "longword",
    }
    index = SearchIndex(inspect_records([record, {"asin": "2", "title": "lamp"}]).catalog)
    words = "title rx580 brandname drawer attrword axisname optionword bulletword"
    for query in words.split(" "):
        assert [hit.asin for hit in index.search(query)] == ["1"], query
    assert index.search("longword") == []  # the description is not


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


def test_a_title_hit_beats_a_hit_in_a_bullet():
    record = {"asin": "1", "title": "lamp", "small_description": ["fits an oak shelf"]}
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


@pytest.mark.parametrize("query", ["收纳", "收纳盒", "实木收纳盒", "ＲＸ580", "红木收纳"])
def test_chinese_is_found_by_character_pairs(query):
    index = SearchIndex(catalog("实木收纳盒 rx580", "蓝色花瓶", *FILLERS))
    assert asins(index, query) == [0]


@pytest.mark.parametrize("query", ["盒", "红盒", "rx"])
def test_a_lone_character_and_an_unknown_pair_find_nothing(query):
    assert asins(SearchIndex(catalog("红色收纳盒 rx580", *FILLERS)), query) == []


@pytest.mark.parametrize(
    ("title", "query", "found"),
    [
        ("box ４０ＣＭ", "40cm", True),
        ("cable 1.5m", "1.5m", True),
        ("CAFÉ chair", "chair", True),
        ("T-Shirt", "t-shirt", True),
        ("T-Shirt", "shirt", True),  # the index reads `t-shirt` as a phrase of two words
        ("T Shirt", "t-shirt", True),
        ("T x Shirt", "t-shirt", False),
        ("box 40cm", "40 cm", False),
    ],
)
def test_widths_and_cases_are_folded_and_joined_words_are_phrases(title, query, found):
    assert asins(SearchIndex(catalog(title, *FILLERS)), query) == ([0] if found else [])


@pytest.mark.parametrize(
    ("text", "normal", "tokens"),
    [
        ("  迷你，冰箱 100 CNY ", "迷你 冰箱 100元", ["迷你", "冰箱", "元", "100"]),
        ("１００块钱以内", "100元以内", ["元以", "以内", "100"]),
        ("茶|茶、茶", "茶 茶 茶", ["茶"]),
        ("カメラ相机 WH-1000XM5", "カメラ相机 wh-1000xm5", ["相机", "wh-1000xm5"]),
        ("100 cnya", "100 cnya", ["100", "cnya"]),
        ("!?", "", []),
    ],
)
def test_a_query_is_normalised_and_cut_into_distinct_tokens(text, normal, tokens):
    assert (normalize_query(text), search_tokens(text)) == (normal, tokens)


@pytest.mark.parametrize(
    ("title", "model"),
    [
        ("华为 MatePad11.5 平板 2023款", "matepad11.5"),
        ("RX580 rx580 8G", "rx580 8g"),
        ("abc--12", "abc"),
        ("oak 12", ""),
    ],
)
def test_model_words_mix_letters_and_digits(title, model):
    (product,) = catalog(title).products.values()
    assert search_text(product)["model"] == model


def test_options_are_indexed_as_the_file_writes_them_axes_sorted_and_nothing_else_of_them():
    options = {"b": [{"value": " S/M ", "price": 12, "image": "secret.jpg"}, {"value": "s / m"}], "a": [{"value": "X"}]}
    (product,) = catalog("shirt", customization_options=options).products.values()
    assert search_text(product)["options"] == "a X b S/M s / m"


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
    index = SearchIndex(catalog(*["oak shelf"] * 30, "oak shelf oak", "shelf", *["lamp"] * 40))
    full = asins(index, "oak shelf")
    assert len(full) == 32
    assert full[-1] == 31
    for limit in (1, 5, 30, 31):
        assert asins(index, "oak shelf", limit) == full[:limit]


THINGS = ["oak shelf", "pine box", "oak box rx580", "红色收纳盒", "收纳盒 oak", "wh-1000xm5 box"]
TITLES = [
    f"{brand} {thing} {n % 3}" for n, brand in enumerate(("norvik", "tarn", "ulme", "木语") * 5) for thing in THINGS
]


@pytest.mark.parametrize("limit", [1, 7, 40, 150])
@pytest.mark.parametrize(
    "query", ["norvik oak box", "box", "红色收纳盒 oak", "wh-1000xm5", "0 tarn 收纳 box oak rx580", "木语 shelf 2 0"]
)
def test_ranks_and_scores_are_those_of_fts5_to_the_last_bit(query, limit):
    shop = catalog(*TITLES, shop_name="oak store", attribute=["box"])
    reference = sqlite3.connect(":memory:")
    columns = ", ".join(FIELDS)
    reference.execute(
        f"CREATE VIRTUAL TABLE p USING fts5(asin UNINDEXED, {columns}, tokenize='unicode61 remove_diacritics 2')"
    )
    for asin, product in shop.products.items():
        texts = [" ".join(search_tokens(text)) for text in search_text(product).values()]
        reference.execute("INSERT INTO p VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (asin, *texts))
    match = " OR ".join(f'"{token}"' for token in search_tokens(query))
    rows = reference.execute(
        f"SELECT asin, -bm25(p, 0.0, {', '.join(map(str, FIELDS.values()))}) AS score FROM p WHERE p MATCH ? "
        "ORDER BY score DESC, asin LIMIT ?",
        (match, limit),
    ).fetchall()
    assert [tuple(hit) for hit in SearchIndex(shop).search(query, limit)] == rows


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
    assert hits == SMALL.search(normalize_query(query), limit)


@given(st.text(max_size=30))
def test_folding_a_text_twice_changes_nothing(text):
    assert fold(fold(text)) == fold(text)


@given(st.text("ab 红", max_size=6), st.text("ab 红", max_size=6))
def test_containment_of_whole_words(left, right):
    text = fold(f"{left} oak {right}")
    assert contains(text, "oak")
    assert not contains(fold(f"{left} soak {right}"), "oak")
