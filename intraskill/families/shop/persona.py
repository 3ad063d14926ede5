"""Writing a shopper's persona into a prompt.

Personas follow the public dataset's schema: nested mappings with Chinese keys in which anything may be missing,
empty, or a bare separator. `full_persona` writes out everything that says something; `compact_persona` keeps, on
one line, what decides a purchase: brands with how much they are liked, recent searches, and preferred properties.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shopsimulator.actions import option_action

from intraskill.core.records import Reset

_IDENTIFIERS = {"用户ID", "注册时间", "最后更新时间"}
_LEVELS = {"高": "high", "中": "mid", "低": "low"}
_COMPACT_PROPERTIES = {"颜色": "colour", "材质": "material", "风格": "style", "功能": "function"}


def persona_of(reset: Reset) -> dict[str, Any]:
    """The persona an episode shows; empty where the task has none."""
    return reset.extra.get("user_persona") or {}


def full_persona(persona: dict[str, Any]) -> str:
    """Markdown list of everything known, in the persona's own words; identifiers and dates left out."""
    return "\n".join(_lines({key: value for key, value in persona.items() if key not in _IDENTIFIERS}, 0))


def compact_persona(persona: dict[str, Any], language: str = "en") -> str:
    """One line such as `brands high norvik, low tarn; searched last oak shelf; before pine lamp; colour=red`.

    What matters most comes first, and what a word means stands before it: a small causal model then knows it when it
    reads the word. Preferred properties are written as the pages write options, so that they can be copied.
    """
    chinese = language == "zh"
    interests = _mapping(persona.get("兴趣偏好"))
    properties = _mapping(interests.get("商品属性偏好"))
    parts = [("品牌" if chinese else "brands", _brands(interests.get("品牌偏好"), chinese))]
    *before, last = _texts(_mapping(persona.get("行为特征")).get("最近14天搜索关键词")) or [""]
    parts.append(("最后搜索" if chinese else "searched last", [last] if last else []))
    parts.append(("之前搜索" if chinese else "before", before))
    said = [f"{label} {', '.join(values)}" for label, values in parts if values]
    for key, word in _COMPACT_PROPERTIES.items():
        said += [option_action(key if chinese else word, value) for value in _texts(properties.get(key))]
    return "; ".join(said)


def _brands(value: Any, chinese: bool) -> list[str]:
    """`high norvik`, ... the most liked first."""
    ranks = list(_LEVELS)
    brands = []
    for entry in value if isinstance(value, list) else []:
        name = _text(_mapping(entry).get("品牌名称"))
        level = _text(_mapping(entry).get("偏好程度"))
        if name:
            rank = ranks.index(level) if level in ranks else len(ranks)
            brands.append((rank, f"{level if chinese else _LEVELS.get(level, level)} {name}".strip()))
    return [text for _, text in sorted(brands, key=lambda brand: brand[0])]


def _lines(value: Any, depth: int) -> Iterator[str]:
    for key, inner in _mapping(value).items():
        said = list(_nested(inner, depth + 1))
        if said and isinstance(inner, dict | list) and not _flat(inner):
            yield f"{'  ' * depth}- {key}:"
            yield from said
        elif said:
            yield f"{'  ' * depth}- {key}: {said[0]}"


def _nested(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, dict):
        yield from _lines(value, depth)
    elif isinstance(value, list) and not _flat(value):
        for entry in value:
            inline = ", ".join(f"{key} {_text(inner)}" for key, inner in _mapping(entry).items() if _text(inner))
            if inline:
                yield f"{'  ' * depth}- {inline}"
    else:
        text = ", ".join(_texts(value)) if isinstance(value, list) else _text(value)
        if text:
            yield text


def _flat(value: Any) -> bool:
    return isinstance(value, list) and not any(isinstance(entry, dict) for entry in value)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> list[str]:
    entries = value if isinstance(value, list) else [value]
    return [text for text in map(_text, entries) if text]


def _text(value: Any) -> str:
    """What a scalar says; the dataset writes ", " where a value is missing."""
    if value is None or isinstance(value, dict | list):
        return ""
    return str(value).strip(" ,，、\n\t")
