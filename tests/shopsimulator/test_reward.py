"""What a purchase earns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shopsimulator.products import OptionValue, Product, PurchaseTask
from shopsimulator.reward import score_purchase, title_overlap, type_score


def product(asin="1", title="norvik oak shelf", category=("home", "storage", "shelf"), attributes=("norvik", "oak")):
    options = {
        "colour": (OptionValue("red"), OptionValue("Blue")),
        "size": (OptionValue("small", 30.0), OptionValue("large", 55.0)),
    }
    return Product(asin, title, "store", tuple(category), (30.0, 55.0), options, tuple(attributes), "")


def task(attributes=("oak",), options=("blue",), price_upper=40.0, instruction="buy a shelf"):
    return PurchaseTask(1, "1", instruction, instruction, tuple(attributes), tuple(options), price_upper, None)


GOAL = product()
RIGHT = {"colour": "Blue", "size": "small"}


def test_the_right_variant_earns_everything():
    score = score_purchase(GOAL, task(), GOAL, RIGHT)
    assert [score[key] for key in ("r_type", "r_att", "r_option", "r_price", "r_loose", "r_strict", "reward")] == [
        1
    ] * 7
    assert score["r_success"] == 1
    assert score["gold"] is True


def test_another_product_that_fits_earns_as_much_and_is_no_gold():
    score = score_purchase(GOAL, task(), product("2", "oak board", attributes=()), RIGHT)
    assert (score["r_success"], score["reward"], score["gold"]) == (1, 1.0, False)


def test_each_part_fails_on_its_own():
    assert score_purchase(GOAL, task(attributes=("oak", "steel")), GOAL, RIGHT)["r_att"] == 0.5
    assert score_purchase(GOAL, task(), GOAL, RIGHT | {"colour": "red"})["r_option"] == 0
    assert score_purchase(GOAL, task(), GOAL, RIGHT | {"size": "large"})["r_price"] == 0
    other = product("2", "steel lamp", ("home", "light", "lamp"), ("oak",))
    assert score_purchase(GOAL, task(), other, RIGHT)["r_type"] == 0


def test_loose_and_strict_follow_their_formulas():
    score = score_purchase(GOAL, task(attributes=("oak", "steel"), options=("blue", "giant")), GOAL, RIGHT)
    assert score["r_loose"] == pytest.approx((1 + 1 + 1) / 5)
    assert score["r_strict"] == pytest.approx(0.25)
    assert score["r_success"] == 0


def test_nothing_wanted_is_all_granted():
    score = score_purchase(GOAL, task((), (), None), GOAL, RIGHT)
    assert (score["r_att"], score["r_option"], score["r_price"], score["r_loose"]) == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("upper", "selected", "expected"),
    [(30.0, RIGHT, 1), (29.99, RIGHT, 0), (None, RIGHT, 1), (99.0, {"colour": "red"}, 0), (None, {"colour": "red"}, 1)],
)
def test_a_ceiling_is_met_only_by_a_known_price(upper, selected, expected):
    assert score_purchase(GOAL, task(price_upper=upper), GOAL, selected)["r_price"] == expected


def test_a_worded_ceiling_counts_when_none_is_annotated():
    assert score_purchase(GOAL, task(price_upper=None, instruction="under $29"), GOAL, RIGHT)["r_price"] == 0
    assert score_purchase(GOAL, task(price_upper=None, instruction="30元左右"), GOAL, RIGHT)["r_price"] == 1


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
        ("ＯＡＫ Shelf", "oak table", 1.0),
    ],
)
def test_titles_decide_where_categories_do_not(goal, bought, expected):
    assert type_score(product(title=goal, category=("x",)), product(title=bought, category=("x",))) == expected


def test_two_shared_category_nodes_are_enough():
    assert type_score(product(title="a"), product(title="b", category=("Home", "STORAGE", "box"))) == 1
    assert type_score(product(title="a"), product(title="b", category=("home", "light"))) == 0
    assert type_score(product(title="a"), product(title="b", category=("home", "home"))) == 0


def test_words_match_whole_and_chinese_matches_inside():
    bought = product(title="shredder 大容量收纳盒", attributes=("Ｏak wood",))
    for wanted, found in [("oak", 1), ("OAK", 1), ("red", 0), ("容量", 1), ("Blue", 1), ("small", 1), ("large", 0)]:
        assert score_purchase(GOAL, task(attributes=(wanted,)), bought, RIGHT)["r_att"] == found, wanted


def test_option_values_compare_folded():
    assert score_purchase(GOAL, task(options=("ＢＬＵＥ ",)), GOAL, RIGHT)["r_option"] == 1


WORDS = st.lists(st.sampled_from(["oak", "shelf", "收纳盒", "红", "steel", "blue"]), max_size=4)


@given(WORDS, WORDS, WORDS, st.one_of(st.none(), st.floats(1, 99)), st.sampled_from(["small", "large"]))
def test_rewards_are_ordered_and_success_means_all(title, attributes, options, upper, size):
    bought = product("2", " ".join(title) or "x", ("home",), ())
    score = score_purchase(GOAL, task(attributes, options, upper), bought, RIGHT | {"size": size})
    parts = [score[key] for key in ("r_type", "r_att", "r_option", "r_price")]
    assert all(0 <= part <= 1 for part in parts)
    assert 0 <= score["r_strict"] <= score["r_type"]
    assert 0 <= score["r_loose"] <= score["r_type"]
    assert score["r_success"] == (1 if min(parts) == 1 else 0) == (1 if score["r_strict"] == 1 else 0)


@given(st.text(max_size=30), st.text(max_size=30))
def test_overlap_is_a_share_and_full_with_itself(left, right):
    assert 0 <= title_overlap(left, right) <= 1
    assert title_overlap(left, left) in (0, 1)
