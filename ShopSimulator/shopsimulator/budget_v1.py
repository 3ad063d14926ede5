"""The frozen reading of a price ceiling, `instruction-budget-v1`.

Sixteen rules are tried in order on a Chinese text without its commas, and the first that fits decides. A rule is a
pattern and what its numbers mean: a ceiling as it stands, an approximate price (+10 %), the upper end of a range, or
no ceiling at all. A rule marked *open* passes on when its numbers make no sense (a range that falls, a price of 0).

The published figures rest on these rules, so their mistakes are kept: `不低于45元` is a ceiling of 45 because `低于`
stands in it, a price per piece counts as one of the whole, and `六百元左右预算就能买到3瓶` is given 3, the first number
after the price word. `budget_v2.py` reads such wordings as they are meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

MARGIN = 1.1
_DIGITS = {char: value for value, chars in enumerate(("零〇", *"一", "二两", *"三四五六七八九")) for char in chars}
_SMALL = {"十": 10, "百": 100, "千": 1000}
_LARGE = {"万": 10**4, "亿": 10**8}
_UNITS = _SMALL | _LARGE
_SCALES = {"万": 10**4, "千": 1000, "k": 1000, "K": 1000}


def _any(words: str | Iterable[str]) -> str:
    return f"(?:{'|'.join(words.split() if isinstance(words, str) else words)})"


_HAN = "".join([*_DIGITS, *_UNITS])
_BARE = rf"(?:\d+(?:\.\d+)?|[{_HAN}]+)"
_AMOUNT = rf"({_BARE})\s*([{''.join(_SCALES)}]?)"  # two groups: number, scale
_MONEY = _any("元 块钱 块")
_PRICE = _any("预算 价格 价钱 价位 售价 单价 花费 费用 总价 预期价格")
_TO = rf"\s*{_MONEY}?\s*[-~～—至到和]\s*"
_LEAD = rf"{_any('在 为 是 要在 大概 约 差不多')}?\s*"
_CEILING = _any(
    "不得超过 不能超过 不要超过 不能高于 不要高于 不超过 不高于 不高过 别超过 别超 不超 低于 小于 不到 "
    "最高(?:为|是)? 上限(?:为|是)? 只能给到"
)
_FLOOR = rf"(?:不低于|至少|{''.join(f'(?<!{no})' for no in ('不要', '不能', '不', '别'))}(?:超过|高于))"
_CLAUSE = r"[^，。；;]{0,8}?"
_NEAR = "左右 上下 大约 上下浮动 出头"  # these add the margin, and the following do not
_DONE = "都不到 拿下 能拿下 帮我搞定 能搞定 搞定 能买 来买 应该够 基本能买到 这个价 的价格 的价位 价位 的预算 预算"


@dataclass(frozen=True, slots=True)
class Rule:
    """`read` gets the groups of the first match; with `open`, an answer of None lets the next rule try."""

    pattern: re.Pattern[str]
    read: Callable[[tuple[str, ...]], float | None]
    open: bool = False


@lru_cache(maxsize=8192)
def price_ceiling(text: str) -> float | None:
    """The ceiling that the first fitting rule reads in the text."""
    text = re.sub("[,，]", "", text)
    for rule in _RULES:
        if found := rule.pattern.search(text):
            ceiling = rule.read(tuple(group or "" for group in found.groups()))
            if ceiling is not None or not rule.open:
                return ceiling
    return None


def amount(number: str, scale: str = "") -> float:
    """Value of `30`, `1.5` `万`, `二十` or `一千八`."""
    value = chinese_value(number) if number[0] in _HAN else float(number)
    return value * _SCALES.get(scale, 1)


def chinese_value(numeral: str) -> float:
    """Digits alone are read one by one; after a unit, one last digit counts tenths of it (`两百五`: 250)."""
    if not _UNITS.keys() & set(numeral):
        return float("".join(str(_DIGITS[char]) for char in numeral))
    front, unit, last = numeral[:-2], numeral[-2:-1], numeral[-1]
    if unit in _UNITS and last in _DIGITS and front and _DIGITS.keys() >= set(front):
        return _UNITS[unit] * (chinese_value(front) + _DIGITS[last] / 10)
    total = section = digit = 0
    for char in numeral:
        if char in _DIGITS:
            digit = _DIGITS[char]
        elif char in _SMALL:
            section, digit = section + (digit or 1) * _SMALL[char], 0
        else:
            total, section, digit = (total + section + digit) * _LARGE[char], 0, 0
    return float(total + section + digit)


def _positive(value: float) -> float | None:
    return value if value > 0 else None


def _exact(groups: tuple[str, ...]) -> float | None:
    return _positive(amount(*groups))


def _near(groups: tuple[str, ...]) -> float | None:
    return _positive(amount(*groups) * MARGIN)


def _qualified(groups: tuple[str, ...]) -> float | None:
    """Number, scale and what is said after it; a `来` or `多` in between (four groups) also says about."""
    value, said = amount(*groups[:2]), groups[-1]
    near = said in _NEAR.split() or (len(groups) == 4 and not said and groups[2] != "")
    return _positive(value * MARGIN if near else value)


def _upper_end(groups: tuple[str, ...]) -> float | None:
    low, high = amount(*groups[:2]), amount(*groups[2:])
    return high if 0 < low <= high else None


def _ten_thousands(groups: tuple[str, ...]) -> float:
    value = float(groups[0]) * 10_000 + float(groups[1]) * 1000
    return value * MARGIN if groups[2] in _NEAR.split() else value


def _near_from(least: float) -> Callable[[tuple[str, ...]], float | None]:
    return lambda groups: amount(groups[0]) * MARGIN if amount(groups[0]) >= least else None


def _no_ceiling(_: tuple[str, ...]) -> None:
    return None


def _teens(groups: tuple[str, ...]) -> float:
    return chinese_value(groups[0]) + 9


def _rule(pattern: str, read: Callable[[tuple[str, ...]], float | None], open: bool = False) -> Rule:
    return Rule(re.compile(pattern), read, open)


_RULES = (
    _rule(
        rf"{_PRICE}(?:金额)?(?:控制)?[在为是]?\s*(\d+)\s*万\s*(\d+)\s*千?\s*({_any('以内 以下 之内 左右 上下')})?",
        _ten_thousands,
    ),
    _rule(
        rf"{_PRICE}(?:金额)?(?:控制)?{_LEAD}{_AMOUNT}{_TO}{_AMOUNT}\s*{_MONEY}?\s*{_any('之间 以内 以下 之内')}",
        _upper_end,
        open=True,
    ),
    _rule(rf"{_AMOUNT}{_TO}{_AMOUNT}\s*{_MONEY}", _upper_end, open=True),
    _rule(rf"{_CEILING}\s*{_AMOUNT}\s*{_MONEY}", _exact),
    _rule(rf"{_PRICE}{_CLAUSE}(?:{_FLOOR}\s*{_BARE}|{_BARE}\s*[{''.join(_SCALES)}]?\s*\+)", _no_ceiling),
    _rule(
        rf"{_PRICE}(?:金额)?[^\d{_HAN}，。；;]{{0,12}}?{_AMOUNT}\s*([来多]?)\s*{_MONEY}?\s*"
        rf"({_any('以内 以下 之内 左右 上下 大约 内')})?",
        _qualified,
        open=True,
    ),
    _rule(rf"{_any('差不多 大约 大概 约')}\s*{_AMOUNT}\s*{_MONEY}", _near),
    _rule(rf"{_AMOUNT}\s*{_any('左右 上下 大约')}\s*{_MONEY}", _near),
    _rule(rf"{_AMOUNT}\s*多\s*{_MONEY}", _near),
    _rule(rf"({_BARE})\s*{_any('左右 上下')}\s*的?\s*{_any('预算 价位 价格')}", _near_from(100), open=True),
    _rule(rf"([{_HAN}]*[千万][{_HAN}]*)\s*{_any('左右 上下')}", _near_from(1000), open=True),
    _rule(rf"({_BARE})\s*{_any('以内 以下 内')}\s*能?{_any('拿下 搞定')}", _exact, open=True),
    _rule(rf"({_BARE})\s*{_any('左右 上下')}\s*能?{_any('拿下 搞定')}", _near, open=True),
    _rule(rf"{_any('准备了? 给到')}\s*{_AMOUNT}\s*{_MONEY}", _exact, open=True),
    _rule(rf"{_AMOUNT}\s*{_MONEY}\s*({_any('以内 以下 之内 左右 上下 大约 内 出头')}|{_any(_DONE)})", _qualified),
    _rule(rf"([二三四五六七八九]?十)几\s*{_MONEY}", _teens),
    _rule("个位数价格", lambda _: 9.0),
)
