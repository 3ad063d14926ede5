"""Control tokens that a text merely spells out must stay text.

Only the chat template speaks in **control tokens**. A task that mentions `<|im_end|>`, a page that holds
`</tool_response>` or a call that repeats them is text about them: wherever a message or a tool schema spells out a
control token, a break goes between its first two characters, and the rendered text is encoded piece by piece. So the
model reads the same characters as ordinary tokens. Text without such a spelling takes no detour and has the ids it
always had.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

BREAK = "zqBreakvw"  # letters alone, so that no template rewrites it, and no part of it is its beginning and end


class Breaker:
    """Puts a break into every spelling of these tokens, so that no piece between breaks holds one of them."""

    def __init__(self, tokens: Collection[str]) -> None:
        longer = {token for token in tokens if len(token) > 1}  # a single character cannot be taken apart
        shortest = {token for token in longer if not any(other != token and other in token for other in longer)}
        spelled = "|".join(re.escape(token) for token in sorted({*shortest, BREAK}))
        self._found = re.compile(spelled)
        self._first = re.compile(f"(?=(?:{spelled}))(.)", re.DOTALL)

    def __call__(self, text: str) -> str:
        return self._first.sub(rf"\1{BREAK}", text) if any(self._found.finditer(text)) else text


def special_tokens(tokenizer: Any) -> set[str]:
    """The tokens the tokenizer itself calls special."""
    decoder: Mapping[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
    return {str(token) for token in decoder.values() if token.special} | set(tokenizer.all_special_tokens)


def structural_tokens(added: Sequence[str], template: str) -> set[str]:
    """The other added tokens the template builds with. Blank and plain words are left out: texts need them too."""
    return {token for token in added if token in template and token.strip() and not token.strip().isalnum()}


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """The JSON value with every text in it changed; keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: each_text(inner, change) for key, inner in value.items()}
    return [each_text(inner, change) for inner in value] if isinstance(value, list) else value
