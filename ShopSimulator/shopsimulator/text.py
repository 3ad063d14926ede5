"""Words as search and title comparison see them, and texts as they are compared.

Chinese has no spaces: a run of Han characters is read as its overlapping pairs (bigrams), a lone one as it stands.
A Latin or number run is one word, with what joins it inside (`wh-1000xm5`, `11.5`). `search_tokens` is the frozen
tokenizer `han-bigram-latin-number-v1` over the frozen normaliser `nfkc-casefold-basic-punctuation-v1`.
"""

from __future__ import annotations

import re
import unicodedata

HAN_RUN = r"[\u3400-\u4dbf\u4e00-\u9fff]+"
LATIN_RUN = r"[a-z0-9]+(?:[._+\-/][a-z0-9]+)*"

# Han (with extensions A and beyond the BMP), kana and Hangul: scripts read character by character.
_CJK = "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_HAS_CJK = re.compile(rf"[{_CJK}]")
_HAN = re.compile(HAN_RUN)
_LATIN = re.compile(LATIN_RUN)
_LETTER, _DIGIT = re.compile("[a-z]"), re.compile("[0-9]")
_WIDE = re.compile(r"[a-z0-9._+\-/]+")
_CURRENCY = re.compile(r"(?<=\d)\s*(?:rmb|cny|yuan)\b")
_PAUSES = re.compile(r"[，,。；;：:！!？?、|]+")


def fold(text: str) -> str:
    """NFKC, case-folded, white space collapsed: two texts that look alike compare equal."""
    if text.isascii():
        return " ".join(text.lower().split())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


def has_cjk(text: str) -> bool:
    """Whether any character belongs to a script written without spaces."""
    return _HAS_CJK.search(text) is not None


def bigrams(run: str) -> list[str]:
    """Overlapping pairs of a run of Han characters; a lone character is its own."""
    return [run[start : start + 2] for start in range(len(run) - 1)] or [run]


def normalize_query(text: str) -> str:
    """The query as search reads it; shown on the results page."""
    text = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    text = text.replace("人民币", "元").replace("块钱", "元")
    text = _PAUSES.sub(" ", _CURRENCY.sub("元", text))
    return " ".join(text.split())


def search_tokens(text: str) -> list[str]:
    """Distinct tokens: first the Han ones, then the Latin ones, in the order they stand."""
    text = normalize_query(text)
    tokens = [token for run in _HAN.findall(text) for token in bigrams(run)] if not text.isascii() else []
    return list(dict.fromkeys(tokens + _LATIN.findall(text)))


def model_words(text: str) -> list[str]:
    """Distinct Latin words that mix letters and digits, such as `rx580`: mostly model numbers."""
    text = normalize_query(text)
    found = dict.fromkeys(word[0] for word in _LATIN.finditer(text) if _mixed(_WIDE.match(text, word.start())))
    return list(found)


def _mixed(around: re.Match[str] | None) -> bool:
    """Letters and digits both; `x--12` counts as one, as in the frozen rule."""
    return (
        around is not None and re.search(r"[a-z]", around[0]) is not None and re.search(r"[0-9]", around[0]) is not None
    )


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
