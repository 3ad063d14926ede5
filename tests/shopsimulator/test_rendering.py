"""Texts of a page: exact, since a policy is trained on them; and states that must not be shown."""

from __future__ import annotations

import json

import pytest
from shopsimulator.errors import ObservationError
from shopsimulator.rendering import render, short_price
from shopsimulator.wording import words

HOME = {
    "observation_version": "shopping-observation-v7",
    "page_type": "search_home",
    "search_available": True,
    "actions": [],
}


def observations(world, task_id: int, *actions: str) -> list[str]:
    session = world.new_session()
    session.reset(task_id)
    return [session.step(action)["observation"] for action in actions]


def test_the_full_text_of_a_results_page(make_world):
    text = observations(make_world(page_size=2), 7, "search[shelf  norvik]")[0]
    assert text == (
        "Page: search results\n"
        "Search text: shelf norvik\n"
        "Results: page 1/3, 5 products, showing ranks 1-2\n"
        "\n"
        "Products:\n"
        "1. norvik oak shelf\n"
        "   ASIN: 100000000001\n"
        "   Price: 30.0 to 55.0\n"
        "   Brand: norvik store\n"
        "   Category: home›storage›shelf\n"
        "   Key attributes: norvik; oak\n"
        "2. tarn pine shelf\n"
        "   ASIN: 200000000000\n"
        "   Price: 20.0\n"
        "   Brand: tarn\n"
        "   Category: home›storage›shelf\n"
        "\n"
        "Last interaction:\n"
        "- Result: success\n"
        "- Note: Search done\n"
        "\n"
        "Clickable elements:\n"
        "- back to search\n"
        "- next >\n"
        "- 100000000001\n"
        "- 200000000000\n"
    )


def test_the_full_text_of_a_product_after_an_invalid_action(make_world):
    opening = ("search[norvik]", "click[100000000001]", "click[colour=blue]")
    text = observations(make_world(), 7, *opening, "click[buy now]")[-1]
    assert text == (
        "Page: product details\n"
        "Product:\n"
        "- Title: norvik oak shelf\n"
        "- ASIN: 100000000001\n"
        "- Price: 30.0 to 55.0\n"
        "- Brand: norvik store\n"
        "- Category: home›storage›shelf\n"
        "- Key attributes: norvik; oak\n"
        "\n"
        "Options:\n"
        "- colour: chosen blue\n"
        "  Values: red / blue\n"
        "- size: not chosen yet\n"
        "  Values: small / large\n"
        "Still to choose: size\n"
        "\n"
        "Last interaction:\n"
        "- Result: invalid\n"
        "- Note: Choose these options before buying: size\n"
        "- Reason code: incomplete_options\n"
        "\n"
        "Clickable elements:\n"
        "- back to search\n"
        "- < prev\n"
        "- colour=red\n"
        "- size=small\n"
        "- size=large\n"
    )


def test_the_price_of_a_choice_replaces_the_listed_one(make_world):
    opening = ("search[norvik]", "click[100000000001]", "click[size=large]")
    assert "- Price: 55.0\n" in observations(make_world(), 7, *opening)[-1]


def test_what_a_product_lacks_is_said(make_world):
    text = observations(make_world(), 7, "search[lamp]", "click[300000000001]")[-1]
    assert "- Brand: not given\n" in text
    assert "Key attributes" not in text


def test_compact_pages_hold_each_thing_once(make_world):
    world = make_world(page_size=2, rendering="compact")
    assert world.new_session().reset(7)["observation"] == "search"
    opening = ("search[shelf norvik]", "click[next >]", "click[< prev]", "click[100000000001]", "click[colour=blue]")
    assert observations(world, 7, *opening, "click[size=small]", "click[buy now]") == [
        "100000000001 norvik oak shelf 30-55 norvik store\n200000000000 tarn pine shelf 20\nback to search\nnext >",
        "200000000001 ulme pine shelf 21\n200000000002 veska pine shelf 22\nback to search\n< prev\nnext >",
        "100000000001 norvik oak shelf 30-55 norvik store\n200000000000 tarn pine shelf 20\nback to search\nnext >",
        "norvik oak shelf 30-55 norvik store\nnorvik, oak\n"
        "back to search\n< prev\ncolour=red\ncolour=blue\nsize=small\nsize=large",
        "norvik oak shelf 30-55 norvik store\nnorvik, oak\ncolour=blue *\n"
        "back to search\n< prev\ncolour=red\nsize=small\nsize=large",
        "norvik oak shelf 30 norvik store\nnorvik, oak\ncolour=blue *\nsize=small *\n"
        "back to search\n< prev\nbuy now\ncolour=red\nsize=large",
        "done",
    ]


def test_compact_puts_the_reason_before_the_unchanged_page(make_world):
    world = make_world(rendering="compact")
    opening = ("hm", "search[norvik]", "click[100000000001]", "click[colour=red]", "click[buy now]")
    texts = observations(world, 7, *opening, "click[colour=red]")
    assert texts[0] == "invalid_format\nsearch"
    assert texts[4] == f"incomplete_options size\n{texts[3]}"
    assert texts[5] == f"already_selected\n{texts[3]}"


def test_compact_empty_results(make_world):
    assert observations(make_world(rendering="compact"), 7, "search[zzzz]") == ["nothing\nback to search"]


def test_chinese_catalogs_speak_chinese_but_for_the_actions(make_world):
    records = [
        {
            "asin": "610000000001",
            "title": "北欧橡木收纳盒",
            "category": "家居用品›收纳›收纳盒",
            "pricing": [69.9],
            "customization_options": {"颜色": [{"value": "红色"}, {"value": "蓝色"}]},
            "instructions": [
                {"task_id": 3, "instruction": "买收纳盒", "attributes": ["北欧"], "instruction_options": ["红色"]}
            ],
        }
    ]
    opening = ("search[收纳盒]", "click[610000000001]", "click[颜色=红色]", "click[颜色=红色]")
    full = observations(make_world(records=records), 3, *opening)
    assert full[0].startswith("页面：搜索结果\n搜索词：收纳盒\n结果：第 1/1 页，共 1 项，当前显示排名 1-1\n")
    assert "   品牌：未提供\n" in full[0]
    assert "- 颜色：已选择 红色\n  可选值：红色 / 蓝色\n规格状态：已选择全部规格，可以购买\n" in full[2]
    assert "- 说明：该规格已经选中：颜色=红色\n- 原因代码：already_selected\n" in full[3]
    assert full[3].endswith("可点击元素：\n- back to search\n- < prev\n- buy now\n- 颜色=蓝色\n")
    compact = observations(make_world(records=records, rendering="compact"), 3, *opening)
    assert compact[2] == "北欧橡木收纳盒 69.9\n颜色=红色 *\nback to search\n< prev\nbuy now\n颜色=蓝色"


@pytest.mark.parametrize("rendering", ["full", "compact"])
def test_an_observation_is_a_function_of_its_state(make_world, rendering):
    session = make_world(rendering=rendering, page_size=2).new_session()
    payload = session.reset(7)
    actions = ["search[norvik]", "click[100000000001]", "click[colour=red]", "oops", "click[size=small]"]
    for action in [*actions, "click[buy now]"]:
        state = json.loads(json.dumps(payload["observation_state"]))
        assert render(state, rendering, "en") == payload["observation"]
        payload = session.step(action)


@pytest.mark.parametrize(
    "change",
    [
        {"observation_version": "v6"},
        {"page_type": "checkout"},
        {"goal": {}},
        {"reward": 0.0},
        {"reward_detail": {}},
        {"target_asin": "1"},
        {"answer": ""},
        {"page_type": "search_results"},
        {"page_type": "search_results", "products": [{"asin": "1"}], "actions": ["back to search", "2"]},
        {"page_type": "search_results", "products": [], "actions": ["back to search", "2"]},
    ],
)
@pytest.mark.parametrize("rendering", ["full", "compact"])
def test_a_state_that_must_not_be_shown_is_refused(change, rendering):
    assert render(HOME, rendering, "en")
    with pytest.raises(ObservationError):
        render(HOME | change, rendering, "en")


def test_choices_that_are_not_there_are_said():
    product = {"asin": "1", "title": "t", "brand": "b", "category": "c", "price": "1.0", "key_attributes": []}
    state = HOME | {
        "page_type": "product_detail",
        "product": product,
        "selected_options": {},
        "available_options": {},
        "missing_option_axes": [],
        "options_complete": False,
        "invalid_selected_options": [{"axis": "a", "value": "b", "reason": "unknown_axis"}],
    }
    text = render(state, "full", "zh")
    assert '无效的历史规格选择：[{"axis": "a", "reason": "unknown_axis", "value": "b"}]\n' in text


@pytest.mark.parametrize(
    ("text", "short"), [("30.0", "30"), ("29.9", "29.9"), ("1999.0 to 2099.5", "1999-2099.5"), ("100", "100")]
)
def test_short_prices_carry_no_empty_digits(text, short):
    assert short_price(text) == short


def test_every_language_has_every_sentence():
    assert words("en").messages.keys() == words("zh").messages.keys()
