"""JSON that a model or a server wrote: read strictly, and into what can be stored.

Two things JSON can write that no file and no request of ours can hold. A character beyond U+FFFF stands there as two
escapes (surrogates), and a model that is cut between them leaves half a character: a replacement character takes its
place, as a UTF-8 decoder would do it, and the rest is kept. A whole number can have any length: beyond 64 bits it
becomes a float. What is ambiguous or no JSON at all (a key given twice, NaN) is refused.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

_HALF = re.compile("[\ud800-\udfff]")


def decode(text: str) -> Any:
    """The JSON value that `text` is. Raises `ValueError` saying why it is none."""
    begin = len(text) - len(text.lstrip())
    value, end = decode_at(text, begin)
    if text[end:].strip():
        raise ValueError("Extra data")
    return value


def decode_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at `start`, and where it ends. Raises `ValueError` saying why there is none."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise ValueError(error.msg) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return whole(value), end


def whole(value: Any) -> Any:
    """The JSON value with every half of a character replaced, in keys, too."""
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, dict):
        return {whole(key): whole(inner) for key, inner in value.items()}
    return [whole(inner) for inner in value] if isinstance(value, list) else value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a key is given twice")
    return record


def _integer(digits: str) -> int | float:
    if len(digits) <= 20 and -(2**63) <= (value := int(digits)) < 2**63:
        return value
    return _finite(digits)


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number[:20]} is no finite number")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_integer, parse_float=_finite, parse_constant=_finite)
