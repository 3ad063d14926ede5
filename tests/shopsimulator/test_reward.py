"""What a purchase earns."""

from __future__ import annotations

from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shopsimulator.products import OptionValue, Product, PurchaseTask
from shopsimulator.reward import (
    MATCH_ABOVE,
    fuzzy_score,
    matched_attributes,
    matched_options,
    resembles,
    score_purchase,
    title_overlap,
    type_score,
    unpurchased_detail,
)

OPTIONS = {
    "colour": (OptionValue("red"), OptionValue("blue")),
    "size": (OptionValue("small", 30.0), OptionValue("large", 55.0)),
}


def product(asin="1", title="norvik oak shelf", category="home›storage›shelf", attributes=("norvik", "oak"), **texts):
    texts = {"full_description": ""} | texts
    return Product(asin, title, "store", category, (30.0, 55.0), OPTIONS, tuple(attributes), **texts)


def task(attributes=("oak",), options=("blue",)):
    return PurchaseTask(1, "1", "buy a shelf", "buy a shelf", tuple(attributes), tuple(options), None, None)


def score(wanted=None, bought=None, selected=None, price_upper=40.0):
    return score_purchase(
        GOAL, wanted or task(), bought or GOAL, selected or RIGHT, price_upper=price_upper, title_terms="lexical"
    )


GOAL = product()
RIGHT = {"colour": "blue", "size": "small"}
PARTS = ("r_type", "r_att", "r_option", "r_price")


def test_the_right_variant_earns_everything():
    detail = score()
    assert [detail[key] for key in (*PARTS, "r_loose", "r_strict")] == [1] * 6
    assert (detail["r_success"], detail["target_asin_match"]) == (1, True)
    assert (detail["num_attr_matches"], detail["num_option_matches"], detail["category_match"]) == (1, 1, True)


def test_the_detail_tells_how_the_price_was_found():
    resolution = {
        "status": "pass",
        "price": 30.0,
        "version": "variant-price-paper-v2",
        "method": "selected_price_axis",
        "evidence": {"price_axis": "size"},
    }
    assert score()["price_resolution"] == resolution
    assert (score()["price_verifiable"], score()["price_upper"]) == (True, 40.0)
    assert score(selected={"colour": "blue"})["price_verifiable"] is False


def test_another_product_that_fits_earns_as_much_and_is_not_the_target():
    detail = score(bought=product("2", "oak board", attributes=()))
    assert (detail["r_success"], detail["r_strict"], detail["target_asin_match"]) == (1, 1.0, False)


def test_each_part_fails_on_its_own():
    assert score(task(attributes=("oak", "steel")))["r_att"] == 0.5
    assert score(selected=RIGHT | {"colour": "red"})["r_option"] == 0
    assert score(selected=RIGHT | {"size": "large"})["r_price"] == 0
    assert score(bought=product("2", "steel lamp", "home›light›lamp", ("oak",)))["r_type"] == 0


def test_loose_and_strict_follow_their_formulas():
    detail = score(task(attributes=("oak", "steel"), options=("blue", "giant")))
    assert detail["r_loose"] == pytest.approx((1 + 1 + 1) / 5)
    assert detail["r_strict"] == pytest.approx(0.25)
    assert detail["r_success"] == 0


def test_nothing_wanted_is_all_granted():
    detail = score(task((), ()), price_upper=None)
    assert [detail[key] for key in (*PARTS, "r_loose")] == [1] * 5


@pytest.mark.parametrize(
    ("upper", "selected", "expected"),
    [(30.0, RIGHT, 1), (29.99, RIGHT, 0), (None, RIGHT, 1), (99.0, {"colour": "red"}, 0), (None, {"colour": "red"}, 1)],
)
def test_a_ceiling_is_met_only_by_a_known_price_without_tolerance(upper, selected, expected):
    assert score(selected=selected, price_upper=upper)["r_price"] == expected


def test_an_episode_without_a_purchase_scores_nothing():
    detail = unpurchased_detail("action_limit")
    assert detail["termination_reason"] == "action_limit"
    assert {detail[key] for key in (*PARTS, "r_loose", "r_strict", "r_success")} == {0}
    assert detail["target_asin_match"] is detail["price_verifiable"] is False


@pytest.mark.parametrize(
    ("goal", "bought", "expected"),
    [
        ("a b c d e f g h i j k", "x y", 0.0),
        ("a b c d e f g h i j k", "a x", 0.1),
        ("a b c d e f", "a x", 0.5),
        ("a b c d e", "a x", 0.5),
        ("a b c d", "a x", 1.0),
        ("实木收纳盒", "陶瓷花瓶", 0.0),
        ("实木收纳盒", "塑料收纳盒", 1.0),
        ("OAK Shelf", "oak table", 1.0),
        ("", "oak table", 0.5),
    ],
)
def test_titles_decide_where_categories_do_not(goal, bought, expected):
    found = type_score(product(title=goal, category="x"), product(title=bought, category="x"), "lexical")
    assert (found["r_type"], found["category_match"]) == (expected, False)


@pytest.mark.parametrize(
    ("category", "expected"),
    [
        ("Home > STORAGE > box", 1),
        ("storage/home", 1),
        ("home\\storage", 1),
        ("home›light", 0),
        ("home›home", 0),
        ("", 0),
    ],
)
def test_two_shared_category_nodes_are_enough_whatever_separates_them(category, expected):
    assert type_score(product(title="a"), product(title="b", category=category), "lexical")["r_type"] == expected


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("OAK", 1),  # an attribute, any case
        ("red", 1),  # inside a word of the title
        ("收纳", 1),  # inside the description
        ("sturdy legs", 1),  # a bullet
        ("norvik oak", 1),  # an attribute whose words are among those wanted
        ("blue", 0),  # an option value is no attribute
        ("steel", 0),
    ],
)
def test_attributes_are_met_by_attributes_and_by_the_texts(wanted, found):
    bought = product(
        title="shredder",
        attributes=("norvik", "oak wood"),
        small_description=("sturdy legs",),
        full_description="收纳盒",
    )
    assert matched_attributes([wanted], bought) == found


@pytest.mark.parametrize(
    ("wanted", "chosen", "found"),
    [
        (["white"], ["white (new)"], 1),
        (["XL "], ["xl"], 1),
        (["blue", "blue"], ["blue"], 2),
        (["black", "large"], ["black"], 1),
        (["128g"], ["256g"], 0),
        ([], ["blue"], 0),
    ],
)
def test_option_values_need_only_resemble_what_is_wanted(wanted, chosen, found):
    assert matched_options(wanted, chosen) == found


@pytest.mark.parametrize(
    ("left", "right", "points"),
    [
        ("大容量收纳", "大容量收纳盒", 91),
        ("主动降噪", "降噪", 67),
        ("防水 防汗", "防汗", 100),
        ("black-large", "Black/large", 100),
        ("!!", "??", 100),
        ("oak", "", 0),
        ("ａｂｃ", "abc", 0),  # width is not folded
    ],
)
def test_the_token_set_ratio(left, right, points):
    assert fuzzy_score(left, right) == points
    assert resembles(left, right) == (points > MATCH_ABOVE)


WORDS = st.lists(st.sampled_from(["oak", "shelf", "收纳盒", "收纳箱", "红", "steel", "blue", "steels"]), max_size=4)
TEXTS = WORDS.map(" ".join)


@given(TEXTS, TEXTS)
def test_the_quick_answer_is_that_of_the_full_ratio(left, right):
    assert resembles(left, right) == (fuzzy_score(left, right) > MATCH_ABOVE)


@given(st.text("ab 木", max_size=12), st.text("ab 木", max_size=12))
def test_texts_without_a_common_word_are_compared_as_a_whole(left, right):
    own, other = (" ".join(sorted(set(text.split()))) for text in (left, right))
    if not set(own.split()) & set(other.split()):
        assert fuzzy_score(left, right) == round(100 * SequenceMatcher(None, own, other).ratio())


@given(WORDS, WORDS, WORDS, st.one_of(st.none(), st.floats(1, 99)), st.sampled_from(["small", "large"]))
def test_rewards_are_ordered_and_success_means_all(title, attributes, options, upper, size):
    bought = product("2", " ".join(title) or "x", "home", ())
    detail = score(task(attributes, options), bought, RIGHT | {"size": size}, upper)
    parts = [detail[key] for key in PARTS]
    assert all(0 <= part <= 1 for part in parts)
    assert 0 <= detail["r_strict"] <= detail["r_type"]
    assert 0 <= detail["r_loose"] <= detail["r_type"]
    assert detail["r_success"] == (1 if min(parts) == 1 else 0) == (1 if detail["r_strict"] == 1 else 0)


@given(st.text(max_size=30), st.text(max_size=30))
def test_overlap_is_a_share_and_full_with_itself(left, right):
    assert 0 <= title_overlap(left, right, "lexical") <= 1
    assert title_overlap(left, left, "lexical") in (0.2, 1)
