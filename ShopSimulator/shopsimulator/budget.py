"""What a customer's wording says about the price ceiling.

A text is read in three moves. Numbers are found (`numerals.py`); those that are prices are kept: a currency stands
beside them, or a word that bounds a price does and nothing says they measure something else (`40cm`, `2个`, `size
40`, `2024年`). Then each price is classed by the words around it: a ceiling, a range (its upper end), an
approximate price (+10 %), a lower bound or a price per unit; the last two set no ceiling. Last, the strictest
ceiling of the most explicit sort is taken. The goal product's own price is never looked at.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from shopsimulator.catalog import PurchaseTask
from shopsimulator.numerals import Number, find_numbers

BudgetKind = Literal["hard_upper", "approximate_upper", "non_total_price", "lower_bound", "no_budget"]
APPROXIMATE_MARGIN = 0.10


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget as worded. `price_upper` is the ceiling or None; `evidence` the words it was read from."""

    price_upper: float | None
    kind: BudgetKind
    evidence: str


def task_budget(task: PurchaseTask) -> float | None:
    """A task's ceiling: annotated, else worded in the simple instruction, else in the full one."""
    if task.price_upper is not None:
        return task.price_upper
    simple = parse_budget(task.instruction_simple).price_upper
    return simple if simple is not None else parse_budget(task.instruction).price_upper


def parse_budget(text: str) -> Budget:
    """Read the price ceiling out of a Chinese or English text."""
    text = _normalise(text)
    readings = [reading for price in _prices(text) if (reading := _classify(text, price)) is not None]
    if not readings:
        return Budget(None, "no_budget", "")
    best = min(readings, key=lambda reading: (reading.rank, reading.budget.price_upper or 0.0))
    return best.budget


# --- words around a price ----------------------------------------------------------------------------------------
# Left patterns are matched up to the end of the text before the price, right ones from the start of what follows.


def _left(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{pattern})$", re.IGNORECASE)


def _right(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"\s*(?:{pattern})", re.IGNORECASE)


_CURRENCY_LEFT = _left(r"(?:us|hk|a|c)?[$€£¥]\s*|\b(?:rmb|cny|usd|eur|gbp)\s*|人民币\s*")
_CURRENCY_RIGHT = _right(
    r"元(?!素|件|器|锂|正极|宵|旦)|块钱?|圆(?=左|上|以|之|内|$)|人民币|美元|美金|欧元|港币|日元|刀(?=以|左|之|内|$)"
    r"|[$€£¥]|(?:rmb|cny|usd|eur|gbp|dollars?|bucks?|euros?|yuan|quid)(?![a-z])"
)
# 块 also counts pieces (3块香皂): as money it is followed by one of these, or a price word stands before it.
_PIECES = re.compile(r"\s*块(?!钱|以|之|左|上|内|下|的|到|至|起|多|差|就|吧|呢|封|前|出|[\s,，。;；!！?？、.~\-)]|$)")
_JIAO = re.compile(r"\s*块([0-9一二两三四五六七八九])(?![0-9一二三四五六七八九十百千万个件块条双只])")

_FILL = r"(?:[\s:=]|在|到|是|为|价格?|总价|了|于|\b(?:a|the|total|of|is|at|be|to|it|price|only|just|spend(?:ing)?|pay(?:ing)?)\b)*"
_NOT = r"(?:\b(?:no|not|never|without|nothing|cannot|cant)|n[’']?t)\s+"
_NOT_SPEND = _NOT + (
    r"(?:(?:want|like|wish|plan|to|be|spend|spending|pay|paying|go|going|cost|costing|priced?|any|much|willing|a|"
    r"the|it|exceed|at|all|cent|penny|should|ever)\s+){0,6}"
)
_MORE = r"(?:over|above|beyond|past|(?:more|greater|higher) than|exceed(?:s|ing)?|upwards? of)"
_LESS = r"(?:under|below|beneath|(?:less|lower|cheaper|smaller) than)"
_MORE_ZH = r"(?:超过|超出|超|高过|高于|大于|多于|贵过|贵于|突破|过)"
_LESS_ZH = r"(?:低于|少于|小于|便宜于|低过)"
_NOT_ZH = r"(?:不|别|勿|莫|没)(?:要|能够?|可以?|得|想|会|许|应该?|该|用|允许|希望|愿意?|打算)*(?:价格|总价|花)?"

# In this order: the first that matches says what the words before the price mean.
_LEFT_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("upper", _left(rf"(?:{_NOT_ZH}{_MORE_ZH}|{_NOT_SPEND}{_MORE}){_FILL}")),
    ("lower", _left(rf"(?:不{_LESS_ZH}|{_NOT}{_LESS}){_FILL}")),
    (
        "upper",
        _left(
            rf"(?:{_LESS_ZH}|不到|不足|不满|最多|最高|至多|顶多|上限|限价|封顶|<=?|≤"
            rf"|\b(?:{_LESS}|within|at (?:the )?most|up ?to|max(?:imum)?\.?|cap(?:ped)?|limit(?:ed)?)){_FILL}"
        ),
    ),
    (
        "lower",
        _left(
            rf"(?:{_MORE_ZH}|至少|起码|最低|最少|>=?|≥"
            rf"|\b(?:{_MORE}|at least|min(?:imum)?\.?|start(?:s|ing)?|from)){_FILL}"
        ),
    ),
    (
        "about",
        _left(
            rf"(?:差不多|大概|大约|约莫|大致|约|接近|将近|~|≈"
            rf"|\b(?:around|about|roughly|approx(?:imately|\.)?|circa|near(?:ly)?|close to|almost)){_FILL}"
        ),
    ),
    (
        "price",
        _left(
            rf"(?:预算|价格?|价位|价钱|售价|总价|花费?|控制|支付|付"
            rf"|\b(?:budget|price[ds]?|costs?|costing|spend(?:ing)?|pay(?:ing)?|afford)){_FILL}"
        ),
    ),
)
_RIGHT_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "upper",
        _right(
            r"(?:钱)?(?:以内|之内|以下|之下|以里|往下|封顶|为限|为上限|打住|内(?![存径胆衣部置外层侧])|都?不到)"
            r"|(?:or|and) (?:less|under|below|cheaper)\b|(?:at (?:the )?)?(?:max(?:imum)?|most)\b|tops\b|limit\b|budget\b"
        ),
    ),
    ("lower", _right(r"以上|之上|往上|开外|起(?![来点子床球])|\+|(?:or|and) (?:more|above|over|up|higher)\b")),
    ("about", _right(r"左右|上下|差不多|前后|附近|出头|(?:的|这|那)样子?|or so\b|-?ish\b|give or take|approx")),
    ("price", _right(r"的?(?:预算|价位|之间|区间|范围)")),
)
_BETWEEN = _left(r"\bbetween\s*|之间\s*|\bfrom\s*")

_MEASURE_ZH = r"平方米|平方|平米|平|公里|厘米|毫米|米|尺|寸|公斤|千克|克|斤|两|吨|毫升|升|个|件|只|瓶|包|双|套|条|支|张|片|盒|卷|袋|桶|罐|箱|枚|颗|根|台|把|块|份|次|人|天|晚|周|月|年|米2|m2|kg|g|ml|l|m|cm|pcs"
_UNIT_EN = r"(?:sq(?:uare)?\.?\s*)?(?:met(?:er|re)s?|m2?|cm|mm|feet|foot|ft|inch(?:es)?|yards?|kilo(?:gram)?s?|kg|grams?|g|lbs?|pounds?|oz|ounces?|lit(?:er|re)s?|l|ml|pieces?|items?|units?|pairs?|packs?|boxes|box|bottles?|rolls?|sheets?|tiles?|cups?|person|people|day|night|week|month|year|hour|set)\b"
_PER_LEFT = _left(
    rf"(?:(?:每|一)(?:一)?(?:{_MEASURE_ZH})|单价|均价|\b(?:per|each|every|an?)\s+{_UNIT_EN})"
    rf"(?:的|价格?|单价|预算|要|需|控制|不|别|能|超过|高于|低于|到|在|最多|大概|约|以|[\s:]|\b(?:price|cost|under|below|at|most|up|to|no|not|more|less|than|is|of|should|be|about|around|within|over)\b)*"
)
_PER_RIGHT = _right(
    rf"(?:左右|上下|以内|以下|之内|以上)?\s*(?:(?:/|每|一)\s*(?:每|一)?(?:{_MEASURE_ZH})(?![^\W\d_])?"
    rf"|/\s*{_UNIT_EN}|(?:per|each|every|apiece)\b(?:\s+{_UNIT_EN})?|an?\s+{_UNIT_EN})"
)

# Money that is no price of the product: discounts, coupons, postage.
_ASIDE_LEFT = _left(
    r"(?:满|减|立减|优惠|返|省|券|红包|运费|邮费|\b(?:save|saving|coupon|discount|shipping|postage|off)(?: of| is)?)\s*"
)
_ASIDE_RIGHT = _right(
    r"(?:的?(?:优惠|红包|代金|满减|立减|折扣|运费)|券|\b(?:off|discount|coupon|cashback|shipping|gift card)\b)"
)

# A bare number measures something when one of these stands shortly before it ...
_MEASURED = _left(
    r"(?:[长宽高厚深]度?|直径|半径|身高|体重|尺寸|尺码|码数|鞋码|重量|重|容量|面积|功率|年龄|腰围|胸围|臀围|续航|像素|数量|温度|转速|"
    r"库存|评分|销量|屏幕|型号|编号|距离|转数|密度|分辨率)[^,，。;；!！?？]{0,6}"
    r"|\b(?:sizes?|width|length|height|weight|depth|diameter|radius|thickness|capacity|ages?|aged|kids?|children|child|"
    r"babies|toddlers?|people|model|number|no\.|quantity|packs?|sets?|rating|rated|score|stars|power|volume|area|"
    r"wide|long|tall|year|version|iphone|galaxy|waist|inseam)\b\W*(?:\w+\W+){0,3}"
)
# ... or when what follows is not the end of the phrase.
_FREE_ZH = re.compile(r"\s*(?:[,，。;；!！?？、)\]}.:的吧呢啊就就行可且并而但或和]|$)")
_FREE_EN = re.compile(
    r"\s*(?:[,;!?)\]}:，。]|\.(?![0-9])|$|-\s"
    r"|(?:and|or|but|please|if|with|for|total|altogether|would|that|which|is|are|as|because|since|so|on|my|i|it|"
    r"including|incl|all|thanks|then|by|to|from|the|a|an)\b(?!\s*(?:inch|cm|mm))"
    r"|in\b(?!\s*(?:wide|long|tall|high|deep|diameter|thick|width|length|height)|\s*(?:[,.;x×]|$)))",
    re.IGNORECASE,
)
_LINK = re.compile(
    r"\s*(?:元|块钱?|[$€£¥]|dollars?|bucks?|yuan|rmb|usd|euros?)?\s*(?:-|–|—|−|~|～|到|至|、|\bto\b|\band\b)\s*(?:us)?[$€£¥]?\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Price:
    """A number (or the upper end of a range) with its place; `low_start` is where the range begins."""

    number: Number
    start: int
    is_range: bool


@dataclass(frozen=True, slots=True)
class _Reading:
    rank: int
    budget: Budget


_RANK = {"upper": 0, "range": 1, "about": 2, "price": 3, "plain": 4, "per_unit": 5, "lower": 6}


def _normalise(text: str) -> str:
    """NFKC, but a full-width comma stays a pause unless it groups full-width digits."""
    text = re.sub(r"(?<![０-９])，|，(?![０-９]{3}(?![０-９]))", "\ue000", text)
    return unicodedata.normalize("NFKC", text).replace("\ue000", "，")


def _prices(text: str) -> list[_Price]:
    """Numbers, with two that span a range merged into one."""
    prices: list[_Price] = []
    for number in find_numbers(text):
        previous = prices[-1] if prices else None
        if previous is not None and not previous.is_range and _spans(text, previous.number, number):
            prices[-1] = _Price(number, previous.start, True)
        else:
            prices.append(_Price(number, number.start, False))
    return prices


def _spans(text: str, low: Number, high: Number) -> bool:
    between = text[low.end : high.start]
    if not _LINK.fullmatch(between) or low.value >= high.value:
        return False
    return (
        "and" not in between.lower() or re.search(r"\bbetween\W*$", text[: low.start].rstrip("$€£¥ "), re.I) is not None
    )


def _classify(text: str, price: _Price) -> _Reading | None:
    """What the words around one price say; None when it is no price."""
    before, after = text[: price.start], text[price.number.end :]
    if before.endswith(("几", "数", "第")):
        return None
    value, infix, after = _infix(price.number, after)
    currency_left = _CURRENCY_LEFT.search(before)
    currency_right = _CURRENCY_RIGHT.match(after)
    left = before[: currency_left.start()] if currency_left else before
    right = after[currency_right.end() :] if currency_right else after
    has_currency = bool(currency_left or currency_right)
    left_word, left_from = _first(_LEFT_WORDS, left)
    if currency_right and _PIECES.match(after) and left_word is None:
        return None
    if _ASIDE_LEFT.search(left) or (has_currency and _ASIDE_RIGHT.match(right)):
        return None
    right_word, right_to = _first(_RIGHT_WORDS, right)
    if not has_currency and not _bare_price(price, left, left_word, left_from, right, right_word):
        return None
    start = left_from if left_word else (currency_left.start() if currency_left else price.start)
    per_left, per_right = _PER_LEFT.search(left), _PER_RIGHT.match(right)
    end = len(text) - len(right) + max(right_to if right_word else 0, per_right.end() if per_right else 0)
    if per_left or per_right:
        return _reading("per_unit", value, text[min(start, per_left.start() if per_left else start) : end])
    meaning = _meaning(price, left_word, right_word, infix)
    return _reading(meaning, value, text[start:end])


def _infix(number: Number, after: str) -> tuple[float, bool, str]:
    """Value, whether it is vague, and the rest, after what stands between number and currency: 三十来块, 100多元, 9块9."""
    if match := re.match(r"\s*[来几多余](?=块|元|圆|$|[,，。左以之])", after):
        vague = match[0].strip()
        # 三十来块 is about 30; 一百多 stays below 200, 十几 below 20: never more than the next round number.
        value = number.value if vague == "来" else (number.value + number.step) / (1 + APPROXIMATE_MARGIN)
        return value, True, after[match.end() :]
    if match := _JIAO.match(after):
        digit = "零一二三四五六七八九".find(match[1].replace("两", "二"))
        tenth = digit if digit >= 0 else int(match[1])
        return number.value + tenth / 10, False, "元" + after[match.end() :]
    return number.value, False, after


def _bare_price(
    price: _Price, left: str, left_word: str | None, left_from: int, right: str, right_word: str | None
) -> bool:
    """Whether a number without currency is a price: a bounding word beside it, and nothing that it measures."""
    if price.number.unit == "w" and left_word != "price":
        return False
    if left_word is None and right_word is None and not (price.is_range and _BETWEEN.search(left)):
        return False
    if _MEASURED.search(left[:left_from] if left_word else left):
        return False
    return right_word is not None or bool(_FREE_ZH.match(right) or _FREE_EN.match(right))


def _meaning(price: _Price, left: str | None, right: str | None, vague: bool) -> str:
    words = {left, right}
    if "upper" in words:
        return "upper"
    if "about" in words or vague:
        return "about"
    if price.is_range:
        return "range"
    if "lower" in words:
        return "lower"
    return "price" if "price" in words else "plain"


def _reading(meaning: str, value: float, evidence: str) -> _Reading:
    rank, evidence = _RANK[meaning], evidence.strip(" ,，。:;")
    if meaning == "per_unit":
        return _Reading(rank, Budget(None, "non_total_price", evidence))
    if meaning == "lower":
        return _Reading(rank, Budget(None, "lower_bound", evidence))
    if meaning == "about":
        return _Reading(rank, Budget(round(value * (1 + APPROXIMATE_MARGIN), 2), "approximate_upper", evidence))
    return _Reading(rank, Budget(round(value, 2), "hard_upper", evidence))


def _first(words: tuple[tuple[str, re.Pattern[str]], ...], text: str) -> tuple[str | None, int]:
    """The first class of words that matches, and where its match starts (left words) or ends (right words)."""
    for name, pattern in words:
        if words is _LEFT_WORDS and (found := pattern.search(text[-80:])):
            return name, max(0, len(text) - 80) + found.start()
        if words is _RIGHT_WORDS and (found := pattern.match(text)):
            return name, found.end()
    return None, len(text) if words is _LEFT_WORDS else 0
