"""Texts that can be stored.

A character beyond U+FFFF is written as two halves (surrogates) in JSON escapes. A model that is cut between them, or a
server that splits its answer there, leaves half a character: a text that no file and no request can hold. Nothing can
be read from it, so a replacement character takes its place, as a UTF-8 decoder would do it, and the rest is kept.
"""

from __future__ import annotations

import re
from typing import Any

_HALF = re.compile("[\ud800-\udfff]")


def whole(value: Any) -> Any:
    """The JSON value with every half of a character replaced, in keys, too."""
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, dict):
        return {whole(key): whole(inner) for key, inner in value.items()}
    return [whole(inner) for inner in value] if isinstance(value, list) else value
