"""What customers say about money, and what they say about other things: `instruction-budget-v2`.

The tables are the specification: Chinese and English wordings with the ceiling each sets.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shopsimulator.budget_v2 import parse_budget
from shopsimulator.numerals import chinese_value

CEILINGS = {
    "under fifty dollars": 50,
    "no more than twenty-five bucks": 25,
    "under a hundred and twenty dollars": 120,
    "between thirty and forty dollars": 40,
    "under two hundred": 200,
    "1,299元以内": 1299,
    "预算1,299元": 1299,
    "１２９９元以内": 1299,
    "１，２９９元以内": 1299,
    "七十块钱以内": 70,
    "七十块钱的杯子": 70,
    "一千八以内": 1800,
    "1万2以内": 12000,
    "预算4k": 4000,
    "4k以内的显示器": 4000,
    "130-140元之间": 140,
    "30元到40元之间": 40,
    "价格在30到40元": 40,
    "不超过50元": 50,
    "不高于50": 50,
    "别超过五十块": 50,
    "不要超过50块": 50,
    "价格不能超过3000元的笔记本": 3000,
    "50块以内": 50,
    "9块9包邮": 9.9,
    "一百零五元以内": 105,
    "一百二十块以下": 120,
    "三四十块钱": 40,
    "1千2百元以内": 1200,
    "超过20元但不超过50元": 50,
    "20元以上50元以下": 50,
    "每平方米30元，总价不超过500元": 500,
    "帮我找一款iPhone15手机壳，30元以内": 30,
    "预算在200元以内，大小2个": 200,
    "十块钱以内": 10,
    "5元": 5,
    "预算100，200个": 100,
    "1.5万以内": 15000,
    "100元内": 100,
    "under $40": 40,
    "a shelf under 40": 40,
    "below 1,299 dollars": 1299,
    "at most €30": 30,
    "no more than 25 euros": 25,
    "up to 1.2k": 1200,
    "less than ¥300": 300,
    "within 40 dollars": 40,
    "between $30 and $40": 40,
    "between 30 and 40 dollars": 40,
    "budget of 50": 50,
    "my budget is $50": 50,
    "I don't want to spend more than $60": 60,
    "not over 60 dollars": 60,
    "over $20 but under $50": 50,
    "at least 4 stars, under $50": 50,
    "$30-$40": 40,
    "30-40 dollars": 40,
    "from $30 to $40": 40,
    "$40 or less": 40,
    "$40 max": 40,
    "an oak shelf under 40 in my colour": 40,
    "price cap 80": 80,
    "costs no more than 35": 35,
    "must not exceed $90": 90,
    "I want something for $45": 45,
    "spend at most 45 on it": 45,
    "40元左右，最多不超过50元": 50,
    "大概50元以内": 50,
    "预算是三百五": 350,
    "¥99以下": 99,
    "￥1,299.50以内": 1299.5,
    "价格不超过一百块钱的": 100,
    "千元以内": 1000,
    "花不到100块": 100,
    "价格低于60元": 60,
    "最多80": 80,
    "under 1,200": 1200,
    "under 40.": 40,
    "under 39.99": 39.99,
    "180天质保，价格200以内": 200,
    "买三个，一共不超过90元": 90,
    "价格区间100~200": 200,
    "100至200元": 200,
    "$1.2k": 1200,
    "买一个50元以内的杯子": 50,
    "一双100元以下的鞋": 100,
    "想要一件不超过200元的外套": 200,
    "a set under $40": 40,
    "a pair of shoes under $40": 40,
    "a pair of shoes under 40": 40,
    "预算100-200": 200,
    "USD40 or less": 40,
    "US$1,299": 1299,
    "不滿50塊": 50,
    "兩百塊以內": 200,
    "不满50元": 50,
    "省钱，50元内": 50,
    "I can't go over 80 dollars": 80,
    "don't exceed $80": 80,
    "not to exceed 80 dollars": 80,
    "it shouldn't cost more than 80": 80,
    "预算10w以内": 100000,
    "从30元到40元": 40,
    "30~40块": 40,
    "30—40元": 40,
    "五六十块钱": 60,
    "五块钱": 5,
    "两块五": 2.5,
    "预算：200": 200,
    "¥1.2k": 1200,
    "预算为人民币300元": 300,
    "50rmb以内": 50,
    "40 bucks max": 40,
    "$1,000.50 tops": 1000.5,
    "cheaper than 60 euros": 60,
    "max 40 dollars": 40,
    "maximum of $40": 40,
    "40 dollars at most": 40,
    "limit is $40": 40,
    "$3 per metre, total under $60": 60,
    "尺码38的鞋子，两百以内": 200,
    "2024款，500g，3个，不超过二十五元": 25,
    "价格在一百到两百之间": 200,
    "一百到两百之间": 200,
    "一两百块": 200,
    "价格别高过88": 88,
    "88以内": 88,
    "价格大于50元小于80元": 80,
    "3k-5k预算": 5000,
    "under ￥50": 50,
    "less than 50元": 50,
    "price no more than 50 yuan": 50,
    "budget: $30–$45": 45,
    "第3款50元以内": 50,
    "二次元手办 50元以内": 50,
    "30元": 30,
    "三十元": 30,
    "百元以内": 100,
    "五十元以內": 50,
    "1万以内": 10000,
    "1万2千以内": 12000,
    "两千零五十元以内": 2050,
    "一千零八十元以内": 1080,
    "三百零五以内": 305,
    "30-40元左右": 40,
    "around 30 to 40 dollars": 40,
    "价格大概2k到2.1k": 2100,
    "价格在30和40元之间": 40,
    "30元和40元之间": 40,
    "在100和200之间": 200,
    "200块拿下": 200,
    "200能拿下": 200,
}
APPROXIMATE = {
    "around a thousand euros": 1100,
    "三千左右": 3300,
    "两百五左右": 275,
    "三十来块钱": 33,
    "百来块": 110,
    "50元上下": 55,
    "50元差不多": 55,
    "差不多50块": 55,
    "价格五百左右的椅子": 550,
    "around $40": 44,
    "about 40 bucks": 44,
    "roughly $1,000": 1100,
    "一万二左右": 13200,
    "控制在80元左右": 88,
    "a budget of around 40": 44,
    "十几块钱": 20,
    "100多块": 200,
    "二十块左右的": 22,
    "价格大约在60块": 66,
    "不过50元左右就行": 55,
    "千把块钱": 1100,
    "50元左右一双的鞋": 55,
    "七八百元左右": 880,
    "价格200元上下浮动": 220,
    "2千左右": 2200,
    "3千5左右": 3850,
    "a lamp that costs around 40": 44,
    "１００元左右": 110,
    "一万二千三左右": 13530,
}
PER_UNIT = (
    "每平方米30元以内",
    "30元/米",
    "单片每个不超过30元",
    "$30 per metre",
    "under $30 per square metre",
    "单价30元以内",
    "80元一斤",
    "$5 each",
    "per metre under $30",
    "每个不超过30元",
    "per person under $40",
    "一平米30元以内",
    "30块一平",
    "每米不超过20元的布",
    "20元每米",
    "$20/m",
)
FLOORS = (
    "要超过20元",
    "20元以上",
    "不低于100元",
    "over $20",
    "more than 20 dollars",
    "at least $20",
    "$20 or more",
    "no less than $30",
    "价格要在80元以上",
    "nothing under $30",
    "no cheaper than $30",
    "最低20元",
    "起码100块",
    "100元起",
    "不能低于100元",
    "超过一千",
)
NO_PRICE = (
    "the one with ten drawers",
    "at most two, please",
    "4k显示器",
    "想买一个收纳盒",
    "买2个40cm的500ml杯子",
    "2024年新款",
    "3块香皂",
    "尺寸不超过40cm",
    "尺寸不超过40",
    "满200元减20元",
    "size under 40 cm",
    "a 500ml bottle",
    "for kids under 12",
    "under 40 cm",
    "a table under 40 inches",
    "within 3 days",
    "pack of 2",
    "$5 off coupon",
    "iPhone 15 case",
    "RTX3060 card",
    "a 2024 calendar",
    "一双鞋",
    "一米八的床",
    "1米5长的桌布",
    "rated above 4.5",
    "less than 2 kg",
    "up to 10 people",
    "容量500以上",
    "我要一块毛巾",
    "優惠",
    "about 40 by 60 rug",
    "between 30 and 40 cm",
    "for teens under 18",
    "60W以内的充电器",
    "买两千克大米",
    "十分钟",
    "千万不要红色",
    "一个三百毫升的杯子",
    "三千到五千",
    "up to ten people",
    "单元",
    "元",
    "块",
    "$",
)


@pytest.mark.parametrize(("text", "upper"), CEILINGS.items())
def test_a_ceiling_is_read(text, upper):
    found = parse_budget(text)
    assert (found.kind, found.price_upper) == ("hard_upper", upper)


@pytest.mark.parametrize(("text", "upper"), APPROXIMATE.items())
def test_an_approximate_price_allows_ten_percent_more(text, upper):
    found = parse_budget(text)
    assert (found.kind, found.price_upper) == ("approximate_upper", upper)


@pytest.mark.parametrize("text", PER_UNIT)
def test_a_price_per_unit_is_no_ceiling(text):
    found = parse_budget(text)
    assert (found.kind, found.price_upper) == ("non_total_price", None)


@pytest.mark.parametrize("text", FLOORS)
def test_a_lower_bound_is_no_ceiling(text):
    found = parse_budget(text)
    assert (found.kind, found.price_upper) == ("lower_bound", None)


@pytest.mark.parametrize("text", NO_PRICE)
def test_other_numbers_are_no_budget(text):
    found = parse_budget(text)
    assert (found.kind, found.price_upper, found.evidence) == ("no_budget", None, "")


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("想买个收纳盒，价格不超过１，２９９元，白色", "不超过1,299元"),
        ("30元到40元之间的杯子", "30元到40元之间"),
        ("a lamp, I don't want to spend more than $60 on it", "don't want to spend more than $60"),
        ("兩百塊以內的椅子", "兩百塊以內"),
        ("地板每平方米30元以内", "每平方米30元以内"),
    ],
)
def test_the_evidence_is_the_wording_itself(text, evidence):
    assert parse_budget(text).evidence == evidence


@pytest.mark.parametrize(
    ("numeral", "value"),
    [
        ("七十", 70), ("十", 10), ("十五", 15), ("一千八", 1800), ("一千零八", 1008), ("1万2", 12000),
        ("1万2500", 12500), ("两百五", 250), ("三四十", 40), ("七八百", 800), ("1千2百", 1200), ("二百五十三", 253),
        ("1.5万", 15000), ("百", 100),
        ("一万两千三", 12300), ("一万零三十", 10030), ("九", 9), ("二〇二四", 2024), ("十万", 100000),
    ],
)  # fmt: skip
def test_numerals_have_their_value(numeral, value):
    assert chinese_value(numeral) == value


DIGITS = "零一二三四五六七八九"


def spoken(number: int) -> str:
    """A number below 10,000 as Chinese says it in full."""
    text, zero = "", False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, number = divmod(number, unit)
        if digit:
            text += ("零" if zero and text else "") + DIGITS[digit] + name
            zero = False
        else:
            zero = True
    return text


@given(st.integers(1, 9999))
def test_a_ceiling_reads_the_same_in_any_script(number):
    wide = str(number).translate(str.maketrans("0123456789", "０１２３４５６７８９"))
    texts = [f"{number}元以内", f"{number:,}元以内", f"{wide}元以内", f"{spoken(number)}元以内", f"under ${number:,}"]
    assert {parse_budget(text).price_upper for text in texts} == {float(number)}


@given(st.text(max_size=60))
def test_any_text_is_read_without_failing(text):
    found = parse_budget(text)
    assert (found.price_upper is None) == (found.kind in ("non_total_price", "lower_bound", "no_budget"))
    assert (found.evidence == "") == (found.kind == "no_budget")


PIECES = [
    "不超过",
    "元",
    "块",
    "每",
    "米",
    "30",
    "一千",
    "8",
    "左右",
    "以内",
    "-",
    "到",
    "under ",
    " more than ",
    "$",
    ",",
    "，",
    "k",
    " ",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_mixture_of_price_words_is_read_without_failing(text):
    found = parse_budget(text)
    assert found.price_upper is None or found.price_upper >= 0
