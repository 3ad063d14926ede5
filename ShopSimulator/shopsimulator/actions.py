"""One action as text: `search[text]` or `click[value]`, and why another text is none.

A client may send an action alone or a whole answer in which exactly one line reads `Action: ...`; `extract_action`
takes the action out. `parse_action` then reads it strictly: the verb in any case, with blanks around it; the argument
up to the last `]`, compared as it stands, so it may hold brackets but no line break. Two actions in one text are
refused before anything else, since nobody could tell which of them was meant.

The words of navigation are literals of the protocol, the same in every language.
"""

from __future__ import annotations

import re
from typing import NamedTuple

BACK = "back to search"
PREVIOUS = "< prev"
NEXT = "next >"
ATTRIBUTES = "attributes"
BUY = "buy now"
NAVIGATION = frozenset((BACK, PREVIOUS, NEXT))

_LABELLED = re.compile(r"^\s*action\s*:\s*(\S.*?)\s*$", re.IGNORECASE | re.MULTILINE)
_CHAINED = re.compile(r"\]\s*(?:[,;，；]\s*)?(?:search|click)\s*\[", re.IGNORECASE)
_ACTION = re.compile(r"([^\[\]\r\n]+)\[([^\n]*)\]")


class Action(NamedTuple):
    """A verb as written and what stands between the brackets; None where there are no brackets."""

    verb: str
    argument: str | None


class NotAnAction(Exception):
    """`reason` is the public code, `message` the key of the sentence that explains it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def extract_action(response: str) -> str:
    """The action in a client's answer: what follows the only `Action:`, else all of it."""
    text = response.replace("\\n", "\n")
    labelled = _LABELLED.findall(text)
    return labelled[0] if len(labelled) == 1 else text.strip()


def parse_action(text: str) -> Action:
    """The verb and argument of one action. Raises `NotAnAction`; whether there is such a verb is not judged here."""
    text = text.strip()
    if not text:
        raise NotAnAction("invalid_format", "empty_action")
    several_lines = "\n" in text or "\r" in text
    chained = text.count("[") > 1 and _CHAINED.search(text)
    if chained or (several_lines and len(_LABELLED.findall(text)) > 1):
        raise NotAnAction("multiple_actions_not_allowed", "multiple_actions_not_allowed")
    if "[" not in text and "]" not in text:
        if several_lines:
            raise NotAnAction("invalid_format", "several_lines")
        return Action(text, None)
    match = _ACTION.fullmatch(text)
    if match is None:
        raise NotAnAction("invalid_format", "invalid_format")
    return Action(match[1].strip(), match[2])


def option_action(axis: str, value: str) -> str:
    """What clicks `value` of `axis`: the axis is named, since two axes may offer the same value."""
    return f"{axis}={value}"
