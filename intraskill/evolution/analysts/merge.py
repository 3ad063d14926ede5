"""Asking a language model to put lessons together: the `llm` variant of the compiler's first half.

The model sees the deployable lessons of a round, numbered, and the titles of the active chunks; it answers with groups
and one text for each. It decides nothing else: the compiler checks every text as it checks its own. If the model cannot
be asked, or keeps answering nonsense, the lessons are clustered by rule.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from intraskill.core.protocol import Policy
from intraskill.evolution.analysts.dialogue import Dialogue
from intraskill.evolution.analysts.llm import abstraction
from intraskill.evolution.cards import Lesson
from intraskill.evolution.compiler import Cluster
from intraskill.families.analysis import Abstraction
from intraskill.families.base import function_tool
from intraskill.skills.bank import Bank

log = logging.getLogger(__name__)

_TURNS = 3
_TEXT = {"type": "string"}
_GROUP = {
    "type": "object",
    "properties": {
        "lessons": {"type": "array", "items": {"type": "integer"}},
        "mechanism": _TEXT,
        "title": _TEXT,
        "applies_when": _TEXT,
        "procedure": {"type": "array", "items": _TEXT},
        "verify": _TEXT,
        "avoid": _TEXT,
    },
    "required": ["lessons", "mechanism", "title", "applies_when", "procedure"],
}
_SUBMIT = function_tool("submit_groups", "Submit all groups.", ["groups"], groups={"type": "array", "items": _GROUP})

Groups = list[tuple[Cluster, Abstraction | None]]


async def merge_lessons(policy: Policy, system: str, lessons: Sequence[Lesson], bank: Bank, name: str) -> Groups | None:
    """Groups with their texts, largest first; None when the model gave no usable answer. `system` is its briefing."""
    if not lessons:
        return []
    dialogue = Dialogue(policy, name, system, _account(lessons, bank), _TURNS)
    try:
        while True:
            call = await dialogue.call((_SUBMIT,))
            try:
                return parse_groups(call.arguments, lessons)
            except ValueError as error:
                dialogue.reject(str(error))
    except Exception as error:  # whatever goes wrong here must not end a run
        log.warning("lessons are clustered by rule: %s", error)
        return None


def parse_groups(arguments: Mapping[str, Any], lessons: Sequence[Lesson]) -> Groups:
    """Check a submission. Raises `ValueError` with what the model has to mend."""
    listed = arguments.get("groups")
    if isinstance(listed, str):
        listed = json.loads(listed)
    if not isinstance(listed, list) or not all(isinstance(group, dict) for group in listed):
        raise ValueError("groups must be a list of objects")
    used: set[int] = set()
    groups: list[tuple[Cluster, Abstraction]] = []
    for position, group in enumerate(listed):
        members = _members(group.get("lessons"), position, len(lessons), used)
        kinds = {(lessons[i].operation, lessons[i].target) for i in members}
        if len(kinds) > 1:
            raise ValueError(f"groups[{position}] mixes operations or targets; keep them apart")
        ((operation, target),) = kinds
        text = abstraction(group)
        members_in_order = tuple(lessons[i] for i in sorted(members))
        groups.append((Cluster(operation, target, text.mechanism, members_in_order), text))
    groups.sort(key=lambda pair: (-len(pair[0].lessons), pair[0].operation == "REWRITE", pair[1].title))
    return list(groups)


def _members(value: Any, position: int, count: int, used: set[int]) -> set[int]:
    if not isinstance(value, list) or not value or not all(type(item) is int for item in value):
        raise ValueError(f"groups[{position}].lessons must be a list of lesson numbers")
    members = set(value)
    if wrong := [item for item in sorted(members) if not 0 <= item < count]:
        raise ValueError(f"groups[{position}]: there is no lesson {wrong[0]}; they count from 0 to {count - 1}")
    if twice := sorted(members & used):
        raise ValueError(f"groups[{position}]: lesson {twice[0]} is in another group already")
    used |= members
    return members


def _account(lessons: Sequence[Lesson], bank: Bank) -> str:
    rows = [
        {"lesson": i, "operation": lesson.operation, "target": lesson.target, **lesson.abstraction.texts()}
        for i, lesson in enumerate(lessons)
    ]
    active = [f"{chunk.skill_id}: {chunk.title}" for chunk in bank.chunks]
    shown = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f"## Active skills\n{chr(10).join(active) or 'none'}\n\n## Lessons\n{shown}"
