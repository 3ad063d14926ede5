"""Renderings: exact texts, since a policy is trained on them."""

from __future__ import annotations

import json

import pytest
from shopsimulator.observation import format_price, render
from shopsimulator.wording import words


def observations(world, task_id: int, *actions: str) -> list[str]:
    session = world.new_session()
    session.reset(task_id)
    return [session.step(action)["observation"] for action in actions]


def test_compact_pages_are_as_short_as_can_be(make_world):
    world = make_world(page_size=2, rendering="compact")
    assert world.new_session().reset(7)["observation"] == "search"
    assert observations(world, 7, "search[shelf norvik]", "click[next]", "click[prev]", "click[1]", "click[blue]") == [
        "1 30 norvik oak shelf\n2 20 tarn pine shelf\nnext",
        "1 21 ulme pine shelf\n2 22 veska pine shelf\nnext prev",
        "1 30 norvik oak shelf\n2 20 tarn pine shelf\nnext",
        "norvik oak shelf\ncolour: red blue\nsize: small 30 large 55\nback",
        "norvik oak shelf\ncolour: red blue*\nsize: small 30 large 55\nback",
    ]


def test_compact_says_when_buying_is_possible_and_when_it_is_over(make_world):
    world = make_world(rendering="compact")
    texts = observations(world, 7, "search[norvik]", "click[1]", "click[red]", "click[large]", "click[buy]")
    assert texts[-2] == "norvik oak shelf\ncolour: red* blue\nsize: small 30 large* 55\nback buy"
    assert texts[-1] == "done"


def test_compact_puts_the_reason_code_before_the_unchanged_page(make_world):
    world = make_world(rendering="compact")
    texts = observations(world, 7, "hm", "search[norvik]", "click[1]", "click[red]", "click[buy]", "click[red]")
    assert texts[0] == "invalid_format\nsearch"
    assert texts[4] == f"incomplete_options size\n{texts[3]}"
    assert texts[5] == f"already_selected\n{texts[3]}"


def test_compact_parts_values_with_blanks_by_commas(make_world):
    texts = observations(make_world(rendering="compact"), 7, "search[mug]", "click[1]")
    assert texts[-1] == "odd mug 9\nprint: back, buy now, 🦊 [rot]\nback"


def test_compact_empty_results(make_world):
    assert observations(make_world(rendering="compact"), 7, "search[zzzz]") == ["nothing"]


def test_full_pages_list_what_can_be_clicked(make_world):
    world = make_world(page_size=2)
    texts = observations(world, 7, "search[shelf norvik]", "click[100000000001]", "click[blue]", "click[small]")
    assert texts[0] == (
        "Results for 'shelf norvik', page 1 of 3, 5 products.\n"
        "[100000000001] norvik oak shelf | 30-55\n"
        "[200000000000] tarn pine shelf | 20\n"
        "clickable: 100000000001 | 200000000000 | next page"
    )
    assert texts[2] == (
        "[100000000001] norvik oak shelf\n"
        "shop: norvik store\n"
        "category: home › storage › shelf\n"
        "price: 30-55\n"
        "colour: red | blue [selected]\n"
        "size: small (30) | large (55)\n"
        "attributes: norvik, oak\n"
        "A shelf of solid oak.\n"
        "still to choose: size\n"
        "clickable: red | small | large | back to results"
    )
    assert "price: 30\n" in texts[3]
    assert texts[3].endswith("clickable: red | large | back to results | buy now")


def test_full_explains_an_invalid_action_first(make_world):
    texts = observations(make_world(), 7, "search[norvik]", "click[the oak one]")
    assert texts[1].splitlines()[0].startswith("[not_clickable] Nothing on this page is called 'the oak one'")
    assert texts[1].split("\n", 1)[1] == texts[0]


def test_chinese_catalogs_speak_chinese(make_world):
    records = [
        {
            "asin": "610000000001",
            "title": "北欧橡木收纳盒",
            "category": "家居用品›收纳›收纳盒",
            "pricing": [69.9],
            "customization_options": {"颜色": [{"value": "红色"}, {"value": "蓝色"}]},
            "instructions": [
                {"task_id": 3, "instruction": "买一个红色收纳盒", "attributes": [], "instruction_options": ["红色"]}
            ],
        }
    ]
    full = observations(make_world(records=records), 3, "search[收纳盒]", "click[610000000001]", "click[红色]")
    assert full[0].startswith("“收纳盒”的结果，第 1 页，共 1 页，1 件商品。")
    assert "颜色: 红色 [已选] | 蓝色" in full[2]
    assert full[2].endswith("可点击: 蓝色 | 返回结果 | 立即购买")
    compact = observations(
        make_world(records=records, rendering="compact"), 3, "search[收纳盒]", "click[1]", "click[红色]", "click[绿色]"
    )
    assert compact[:3] == [
        "1 69.9 北欧橡木收纳盒",
        "北欧橡木收纳盒 69.9\n颜色: 红色 蓝色\n返回结果",
        "北欧橡木收纳盒 69.9\n颜色: 红色* 蓝色\n返回结果 立即购买",
    ]
    assert compact[3].startswith("not_clickable\n")


@pytest.mark.parametrize("rendering", ["full", "compact"])
def test_an_observation_is_a_function_of_its_state(make_world, rendering):
    session = make_world(rendering=rendering, page_size=2).new_session()
    payload = session.reset(7)
    label = "100000000001" if rendering == "full" else "1"
    for action in ["search[norvik]", f"click[{label}]", "click[red]", "click[red]", "oops", "click[small]"]:
        state = json.loads(json.dumps(payload["observation_state"]))
        assert render(state, rendering) == payload["observation"]
        payload = session.step(action)


@pytest.mark.parametrize(
    ("price", "text"), [(30.0, "30"), (29.9, "29.9"), (0.5, "0.5"), (1299.99, "1299.99"), (1e6, "1000000"), (0.0, "0")]
)
def test_prices_carry_no_empty_digits(price, text):
    assert format_price(price) == text


def test_every_language_explains_every_code():
    for rendering in ("full", "compact"):
        assert words("en", rendering).messages.keys() == words("zh", rendering).messages.keys()
