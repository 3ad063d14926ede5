"""Numbers as people write prices: `1,299`, `1.2k`, `fifty-five`, `七十`, `一千八`, `1万2`, `两百五`, `三四十`.

Chinese drops the last unit: `一千八` is 1,800 and `1万2` is 12,000, but `一千零八` is 1,008. Two digits before
one unit are a span: `三四十` means thirty to forty, and its upper end is what a budget needs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_DIGITS = {
    "零": 0,
    "〇": 0,
    "一": 1,
    "二": 2,
    "两": 2,
    "俩": 2,
    "三": 3,
    "四": 4,
    "五": 5,
    "六": 6,
    "七": 7,
    "八": 8,
    "九": 9,
}
_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10_000}
_LATIN_UNITS = {"k": 1000, "w": 10_000, "thousand": 1000, "grand": 1000, "hundred": 100}

_TO_NINETEEN = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {word: value for value, word in enumerate(_TO_NINETEEN.split(), 1)}
_WORDS |= {word: 10 * tens for tens, word in enumerate(_TENS.split(), 2)}
_SMALLEST_IN_WORDS = 10  # `one` and `two` are seldom prices

_ARABIC = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
_CHINESE = r"[零〇一二两俩三四五六七八九十百千万]"
_WORD = "|".join(sorted(_WORDS, key=len, reverse=True))
_IN_WORDS = (
    rf"(?:an?\s+(?=hundred|thousand)|(?:{_WORD})\b)"
    rf"(?:(?:[\s-]*|(?:(?<=hundred)|(?<=thousand))\s+and\s+)(?:{_WORD}|hundred|thousand)\b)*"
)
# A number starts inside no word (`rtx3060`, but `usd40`) and not after the point of `2.40`.
NUMBER = re.compile(
    rf"(?:(?<![0-9a-z_.])|(?<=usd)|(?<=rmb)|(?<=cny)|(?<=eur)|(?<=gbp))(?<![0-9],)"
    rf"(?:(?P<latin>{_ARABIC})\s?(?P<unit>k|w|thousand|grand|hundred)(?![a-z0-9])"
    rf"|(?P<mixed>(?:{_ARABIC})?{_CHINESE}(?:{_CHINESE}|[0-9]+)*)"
    rf"|(?P<plain>{_ARABIC})|(?P<words>{_IN_WORDS}))",
    re.IGNORECASE,
)
_TOKEN = re.compile(rf"{_ARABIC}|{_CHINESE}")
_SPAN = re.compile(r"[一二两三四五六七八九]([一二两三四五六七八九])(?=[十百千万])")


@dataclass(frozen=True, slots=True)
class Number:
    """One number in a text. `unit` is the Latin multiplier (`k`, `w`, ..) or empty; `step` the place it is round to."""

    start: int
    end: int
    value: float
    unit: str
    step: float


def find_numbers(text: str) -> list[Number]:
    """All numbers of an NFKC-normalised text, left to right."""
    numbers = (_number(match) for match in NUMBER.finditer(text))
    return [number for number in numbers if number is not None]


def _number(match: re.Match[str]) -> Number | None:
    unit = (match["unit"] or "").lower()
    if match["words"]:
        value = english_value(match["words"])
        if value < _SMALLEST_IN_WORDS:
            return None
        return Number(match.start(), match.end(), value, "", _step(value))
    if match["mixed"]:
        value = chinese_value(match["mixed"])
    else:
        value = float((match["latin"] or match["plain"]).replace(",", "")) * _LATIN_UNITS.get(unit, 1)
    return Number(match.start(), match.end(), round(value, 4), unit, _step(value))


def chinese_value(numeral: str) -> float:
    """Value of a numeral of Chinese digits and units, with Arabic numbers anywhere in it."""
    total, section, pending, last_unit, zero_before = 0.0, 0.0, None, 1, False
    for token in _TOKEN.findall(_SPAN.sub(r"\1", numeral)):
        if token in _UNITS:
            unit = _UNITS[token]
            if unit == 10_000:
                total, section = (total + section + (pending or 0.0) or 1.0) * unit, 0.0
            else:
                section += (1.0 if pending is None else pending) * unit
            pending, last_unit, zero_before = None, unit, False
        elif token in _DIGITS:
            zero_before = zero_before or (_DIGITS[token] == 0)
            pending = (pending or 0.0) * 10 + _DIGITS[token]
        else:
            zero_before = zero_before or len(token) > 1
            pending = float(token.replace(",", ""))
    if pending is not None and last_unit > 10 and not zero_before and pending < 10:
        pending *= last_unit / 10  # 一千八: the dropped unit
    return total + section + (pending or 0.0)


def english_value(words: str) -> float:
    """Value of a number in English words, such as `two hundred and fifty`."""
    total, section = 0.0, 0.0
    for word in re.findall(r"[a-z]+", words.lower()):
        if word == "hundred":
            section = (section or 1.0) * 100
        elif word == "thousand":
            total, section = total + (section or 1.0) * 1000, 0.0
        else:
            section += _WORDS.get(word, 0)
    return total + section


def _step(value: float) -> float:
    step = 1.0
    while value and value % (step * 10) == 0:
        step *= 10
    return step
