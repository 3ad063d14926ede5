"""Comparing texts by what they say, whatever their case, width, accents and spacing; Latin and Chinese alike."""

from __future__ import annotations

import re
import unicodedata

# Han (with extensions A and beyond the BMP), kana and Hangul: scripts written without spaces.
_CJK = "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_HAS_CJK = re.compile(rf"[^{_CJK}]*[{_CJK}]")


def fold(text: str) -> str:
    """NFKC, case-folded, white space collapsed: two texts that look alike compare equal."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


def plain(text: str) -> str:
    """Folded, and without accents."""
    bare = "".join(c for c in unicodedata.normalize("NFD", fold(text)) if unicodedata.category(c) != "Mn")
    return unicodedata.normalize("NFC", bare)


def squeezed(text: str) -> str:
    """A plain text's letters and digits, run together."""
    return re.sub(r"[\W_]+", "", text)


def has_cjk(text: str) -> bool:
    """Whether any character belongs to a script written without spaces."""
    return _HAS_CJK.match(text) is not None


def words(text: str) -> list[str]:
    """The words of a text; of a script without spaces its overlapping pairs, or the character that stands alone."""
    found: list[str] = []
    for run in _RUN.findall(fold(text)):
        found += [run[i : i + 2] for i in range(len(run) - 1)] if has_cjk(run) and len(run) > 1 else [run]
    return found


def contains(haystack: str, needle: str) -> bool:
    """Whether folded `needle` stands in folded `haystack`; Latin words only as whole words (`red`, not `shredder`)."""
    start = haystack.find(needle) if needle else -1
    while start >= 0:
        end = start + len(needle)
        before, after = haystack[start - 1 : start] + needle[0], needle[-1] + haystack[end : end + 1]
        if not (_glued(before) or _glued(after)):
            return True
        start = haystack.find(needle, start + 1)
    return False


def _glued(pair: str) -> bool:
    """Whether two neighbouring characters belong to one Latin or number word."""
    return len(pair) == 2 and all(char.isalnum() and not has_cjk(char) for char in pair)
