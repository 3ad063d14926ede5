"""Words as search and reward see them.

Text is folded first (NFKC, so full-width `Ａ１` becomes `a1`; case; white space). A Latin or number run is one
word; a mix such as `40cm` also yields its parts, so that `40 cm` finds it. Chinese has no spaces: a run of
characters is read as its overlapping pairs (bigrams), which is precise, and as single characters, so that a
one-character query finds something too.
"""

from __future__ import annotations

import re
import unicodedata

# Han (with extensions A and beyond the BMP), kana and Hangul: scripts read character by character.
_CJK = "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(rf"[{_CJK}]+|[0-9]+(?:\.[0-9]+)+[a-z]*|[^\W_{_CJK}]+")
_PART = re.compile(r"[0-9.]+|[^\W\d_]+")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_HAS_CJK = re.compile(rf"[{_CJK}]")


def fold(text: str) -> str:
    """NFKC, case-folded, white space collapsed: two texts that look alike compare equal."""
    if text.isascii():
        return " ".join(text.lower().split())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


def has_cjk(text: str) -> bool:
    """Whether any character belongs to a script written without spaces."""
    return _HAS_CJK.search(text) is not None


def _is_cjk_run(run: str) -> bool:
    return _HAS_CJK.match(run) is not None


def _runs(text: str) -> list[str]:
    return _RUN.findall(_THOUSANDS.sub("", fold(text)))


def index_tokens(text: str) -> list[str]:
    """Every token under which `text` can be found, repetitions kept."""
    tokens: list[str] = []
    for run in _runs(text):
        if _is_cjk_run(run):
            tokens += [run[i : i + 2] for i in range(len(run) - 1)]
            tokens += run
        else:
            tokens += _with_parts(run)
    return tokens


def query_tokens(text: str) -> list[str]:
    """Tokens a query asks for: words, Chinese bigrams, and single characters only where they stand alone."""
    tokens: list[str] = []
    for run in _runs(text):
        if not _is_cjk_run(run):
            tokens += _with_parts(run)
        elif len(run) == 1:
            tokens.append(run)
        else:
            tokens += [run[i : i + 2] for i in range(len(run) - 1)]
    return tokens


def _with_parts(word: str) -> list[str]:
    parts = _PART.findall(word)
    return [word, *parts] if len(parts) > 1 else [word]


def model_tokens(text: str) -> list[str]:
    """Words that mix letters and digits, such as `rx580`: mostly model numbers."""
    words = (run for run in _runs(text) if not _is_cjk_run(run))
    return [word for word in words if re.search(r"[a-z]", word) and re.search(r"[0-9]", word)]


def contains(haystack: str, needle: str) -> bool:
    """Whether folded `needle` stands in folded `haystack`; Latin words only as whole words (`red`, not `shredder`)."""
    if not needle:
        return False
    start = haystack.find(needle)
    while start >= 0:
        end = start + len(needle)
        left = haystack[start - 1 : start] + needle[0]
        right = needle[-1] + haystack[end : end + 1]
        if not (_glued(left) or _glued(right)):
            return True
        start = haystack.find(needle, start + 1)
    return False


def _glued(pair: str) -> bool:
    """Whether two neighbouring characters belong to one Latin or number word."""
    return len(pair) == 2 and all(char.isalnum() and not has_cjk(char) for char in pair)
