"""What a customer's wording says about the price ceiling: `instruction-budget-v2`.

A text is read in three moves. Numbers are found (`numerals.py`), and those that are prices are kept: a currency
stands beside them, or a word that bounds a price does and nothing says they measure something else (`40cm`, `2个`,
`size 40`, `2024年`). Then each price is classed by the words around it (`budget_words.py`): a ceiling, a range (its
upper end), an approximate price (+10 %), a lower bound or a price per unit; the last two set no ceiling. Last, the
strictest ceiling of the most explicit sort is taken. The goal product's own price is never looked at.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from shopsimulator import budget_words as words
from shopsimulator.numerals import Number, find_numbers

BudgetKind = Literal["hard_upper", "approximate_upper", "non_total_price", "lower_bound", "no_budget"]
APPROXIMATE_MARGIN = 0.10
_WINDOW = 80  # characters on either side of a price that are looked at

# What a price can mean, most explicit first, and the kind of budget it makes.
_MEANINGS: dict[str, BudgetKind] = {
    "upper": "hard_upper",
    "range": "hard_upper",
    "about": "approximate_upper",
    "price": "hard_upper",  # a price or budget is named and not bounded
    "plain": "hard_upper",  # an amount of money, nothing said of it
    "per_unit": "non_total_price",
    "lower": "lower_bound",
}
_RANKS = {meaning: rank for rank, meaning in enumerate(_MEANINGS)}


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget as worded. `price_upper` is the ceiling or None; `evidence` the words it was read from."""

    price_upper: float | None
    kind: BudgetKind
    evidence: str


@dataclass(frozen=True, slots=True)
class _Price:
    """A number, or the upper end of a range that begins at `start`."""

    number: Number
    start: int
    is_range: bool


@dataclass(frozen=True, slots=True)
class _Context:
    """The words on both sides of a price, currency peeled off; positions are those of the whole text."""

    left: str
    left_end: int
    right: str
    right_start: int
    has_currency: bool
    value: float
    vague: bool


@dataclass(frozen=True, slots=True)
class _Reading:
    rank: int
    budget: Budget


@lru_cache(maxsize=8192)  # a task is scored in every episode of its group
def parse_budget(text: str) -> Budget:
    """Read the price ceiling out of a Chinese or English text."""
    shown = _normalise(text)
    plain = shown.translate(words.PLAIN)
    readings = [reading for price in _prices(plain) if (reading := _read(plain, shown, price)) is not None]
    if not readings:
        return Budget(None, "no_budget", "")
    return min(readings, key=lambda reading: (reading.rank, reading.budget.price_upper or 0.0)).budget


def _normalise(text: str) -> str:
    """NFKC, but a full-width comma stays a pause unless it groups full-width digits."""
    if text.isascii():
        return text
    text = re.sub(r"(?<![０-９])，|，(?![０-９]{3}(?![０-９]))", "\ue000", text)
    return unicodedata.normalize("NFKC", text).replace("\ue000", "，")


def _prices(text: str) -> list[_Price]:
    """Numbers, two that span a range merged into one."""
    prices: list[_Price] = []
    for number in find_numbers(text):
        low = prices[-1] if prices else None
        if low is not None and not low.is_range and _is_range(text, low.number, number):
            prices[-1] = _Price(number, low.start, True)
        else:
            prices.append(_Price(number, number.start, False))
    return prices


def _is_range(text: str, low: Number, high: Number) -> bool:
    link = text[low.end : high.start]
    if low.value >= high.value or not words.RANGE_LINK.fullmatch(link):
        return False
    if words.AND_ZH.search(link):
        return words.BETWEEN_ZH.match(text, high.end) is not None
    before = text[max(0, low.start - _WINDOW) : low.start].rstrip("$€£¥ ")
    return "and" not in link.lower() or before.lower().endswith("between")


def _read(text: str, shown: str, price: _Price) -> _Reading | None:
    """What the words around a number say; None when it is no price. Evidence is cut from `shown`."""
    context = _context(text, price)
    if context is None:
        return None
    left_word, left_from = _left_word(context)
    right_word, right_to = _right_word(context)
    if not _is_price(price, context, left_word, left_from, right_word):
        return None
    start = min(left_from, price.start) if left_word else min(context.left_end, price.start)
    per_left, per_right = words.PER_LEFT.search(context.left), words.PER_RIGHT.match(context.right)
    meaning = _meaning(price.is_range, left_word, right_word, context.vague)
    if per_left or per_right:
        meaning = "per_unit"
        start = min(start, context.left_end - len(per_left[0])) if per_left else start
        right_to = max(right_to, context.right_start + per_right.end()) if per_right else right_to
    evidence = shown[start:right_to].strip(" ,，。:;")
    return _Reading(_RANKS[meaning], Budget(_ceiling(meaning, context.value), _MEANINGS[meaning], evidence))


def _context(text: str, price: _Price) -> _Context | None:
    """Peel vagueness and currency off; None where the number is certainly no amount."""
    before = text[max(0, price.start - _WINDOW) : price.start]
    if before.endswith(("几", "数", "第")):  # 几十块: no number
        return None
    end = price.number.end
    value, vague = price.number.value, False
    after = text[end : end + _WINDOW]
    currency_left = words.CURRENCY_LEFT.search(before)
    if tenths := words.JIAO.match(after):  # 9块9
        value += _digit(tenths["tenth"]) / 10
        end += tenths.end()
    elif words.PIECES.match(after) and not any(pattern.search(before) for _, pattern in words.LEFT_WORDS):
        return None
    elif infix := words.VAGUE.match(after):
        value, vague = _vague_value(price.number, infix["word"]), True
        end += infix.end()
    currency_right = None if tenths else words.CURRENCY_RIGHT.match(text[end : end + _WINDOW])
    end += currency_right.end() if currency_right else 0
    left = before[: currency_left.start()] if currency_left else before
    has_currency = bool(currency_left or currency_right or tenths)
    left_end = price.start - (len(before) - len(left))
    return _Context(left, left_end, text[end : end + _WINDOW], end, has_currency, value, vague)


def _vague_value(number: Number, word: str) -> float:
    """三十来块 is about 30; 一百多 stays below 200 and 十几 below 20: the next round number is the ceiling."""
    return number.value if word in "来把" else (number.value + number.step) / (1 + APPROXIMATE_MARGIN)


def _digit(char: str) -> int:
    return int(char) if char.isdecimal() else "零一二三四五六七八九".index(char.replace("两", "二"))


def _left_word(context: _Context) -> tuple[str | None, int]:
    for name, pattern in words.LEFT_WORDS:
        if found := pattern.search(context.left):
            return name, context.left_end - len(found[0])
    return None, context.left_end


def _right_word(context: _Context) -> tuple[str | None, int]:
    for name, pattern in words.RIGHT_WORDS:
        if found := pattern.match(context.right):
            return name, context.right_start + found.end()
    return None, context.right_start


def _is_price(price: _Price, context: _Context, left_word: str | None, left_from: int, right_word: str | None) -> bool:
    """Whether the number is an amount the product may cost."""
    if words.ASIDE_LEFT.search(context.left) or words.ASIDE_RIGHT.match(context.right):
        return False
    if context.has_currency:
        return True
    if price.number.unit == "w" and left_word != "price":  # 10w is 100,000 only where money is the subject
        return False
    if left_word is None and right_word is None and not (price.is_range and words.BETWEEN.search(context.left)):
        return False
    if words.MEASURED.search(context.left[: len(context.left) - (context.left_end - left_from)]):
        return False
    return right_word is not None or words.PHRASE_END.match(context.right) is not None


def _meaning(is_range: bool, left: str | None, right: str | None, vague: bool) -> str:
    if "upper" in (left, right):
        return "upper"
    if is_range:
        return "range"
    if "about" in (left, right) or vague:
        return "about"
    if "lower" in (left, right):
        return "lower"
    return "price" if "price" in (left, right) else "plain"


def _ceiling(meaning: str, value: float) -> float | None:
    if _MEANINGS[meaning] == "approximate_upper":
        return round(value * (1 + APPROXIMATE_MARGIN), 2)
    return round(value, 2) if _MEANINGS[meaning] == "hard_upper" else None
