"""The frozen reading of a ceiling, rule by rule; its mistakes are part of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shopsimulator.budget_v1 import chinese_value, price_ceiling

RULES = {
    "ten thousands": {"预算1万2以内": 12000, "预算控制在2万5左右": 27500},
    "range, bounded": {"价格在10-20之间": 20, "预算30和40以内": 40, "价格在20到10之间": 20},
    "range, money": {"130-140元": 140, "30元到40块钱": 40, "1万-1.1万元": 11000, "3元~5元左右": 5},
    "ceiling": {"不超过50元": 50, "别超800块": 800, "最高为200元": 200, "不低于45元": 45, "不到100元": 100},
    "floor": {"预算至少200元": None, "价格超过20元": None, "价格50+": None},
    "price word": {
        "预算300，要黑色": 300,
        "价格¥59左右": 59 * 1.1,
        "预算二十来块": 20 * 1.1,
        "总价35元内": 35,
        "价位100到200": 100,
        "预算就在这个很长很长的说法之后300": None,
    },
    "about": {"约80块": 88, "差不多30元": 33},
    "about within": {"50左右元": 55},
    "more than": {"一百多块": 110},
    "about, then the word": {"2000左右的预算": 2200, "50左右的价格": None},
    "Chinese thousands": {"一万左右": 11000, "三千上下": 3300, "三百左右": None},
    "take it": {"100以内拿下": 100, "60左右能搞定": 66},
    "prepared": {"准备了500元": 500, "给到3千块": 3000},
    "money, qualified": {"五元以内": 5, "20元左右": 22, "10块出头": 11, "200块拿下": 200, "100元的价格": 100},
    "teens": {"十几块钱": 19, "三十几元": 39},
    "one digit": {"个位数价格": 9},
    "nothing": {"想买一个柔软枕头": None, "身高170以内": None, "budget under 40": None, "30元": None, "": None},
}


@pytest.mark.parametrize(
    ("rule", "text", "ceiling"),
    [(rule, text, ceiling) for rule, wordings in RULES.items() for text, ceiling in wordings.items()],
)
def test_each_rule_reads_its_wordings(rule, text, ceiling):
    found = price_ceiling(text)
    assert found == (None if ceiling is None else pytest.approx(ceiling, abs=1e-9))


def test_the_first_rule_that_fits_decides_and_commas_do_not_count():
    assert price_ceiling("定金30元，总价不超过500元") == 500
    assert price_ceiling("价格1,299元以内") == price_ceiling("价格1，299元以内") == 1299


def test_the_margin_is_not_rounded():
    assert price_ceiling("3000元左右") == 3000 * 1.1 != 3300


@pytest.mark.parametrize(
    ("numeral", "value"),
    [
        ("七十", 70), ("十五", 15), ("一千八", 1800), ("两百五", 250), ("二三十", 30), ("百", 100), ("二〇二四", 2024),
        ("一万二", 12000), ("十二万", 120000), ("三百零五", 305), ("千", 1000), ("三亿", 3 * 10**8), ("五", 5),
    ],
)  # fmt: skip
def test_numerals_have_their_value(numeral, value):
    assert chinese_value(numeral) == value


PIECES = ["预算", "价格", "不超过", "元", "块", "30", "一千", "十", "万", "8", "左右", "以内", "-", "到", "+", "k", " "]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_mixture_of_price_words_is_read_without_failing(text):
    found = price_ceiling(text)
    assert found is None or found >= 0


@given(st.text(max_size=60))
def test_any_text_is_read_without_failing(text):
    found = price_ceiling(text)
    assert found is None or found >= 0
