"""Banks in the released format `shopsimrl-skillbank-v1`: our format's records made of theirs, and theirs of ours.

    {"schema_version": "shopsimrl-skillbank-v1", "bank_version": "..", "metadata": {},
     "skills": [{"skill_id": "..", "content": "### title\\n\\n- Applies when: ..", "version": "1", "enabled": true,
                 "metadata": {}, "task_ids": [4], "content_sha256": ".."}]}

There a chunk is one Markdown text. It stays the chunk's `content`, to the letter, and is what a policy is shown; title,
condition and steps are read out of it as far as it is written in the usual form, for everybody who needs the parts
(the compact prompt, the compiler, reports). A skill that is not `enabled` is shown to nobody, one with `task_ids` only
on those tasks.

Nothing of the file is lost: what our own format has no place for lies under `released` in the notes of the bank and in
the metadata of each chunk. So a bank that nobody changed becomes the very record again that was read, also by way of
our format; a chunk that was rewritten or added is written anew.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from intraskill.core.errors import UserError

RELEASED_SCHEMA = "shopsimrl-skillbank-v1"
_KEPT = "released"  # key of notes and metadata
_TITLE = re.compile(r"#+\s*(.+)")
_LABELLED = re.compile(r"-?\s*(applies when|procedure|verify|avoid)\s*[:：]\s*(.*)", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:\d+[.)、]|[-*])\s*(.+)")


def from_released(record: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The bank as a record of our format, schema apart. Raises `UserError` naming the skill and the key."""
    skills = record.get("skills")
    if not isinstance(skills, list):
        raise UserError(f'{where}: "skills" must be a list of skills')
    chunks: list[dict[str, Any]] = []
    disabled: dict[str, Any] = {}
    for position, skill in enumerate(skills):
        _check(skill, f"{where}: skill {position + 1}")
        if skill.get("enabled", True) is False:
            disabled[str(position)] = skill
        else:
            chunks.append(_chunk(skill))
    kept = {"bank": {key: value for key, value in record.items() if key != "skills"}, "disabled": disabled}
    return {"notes": {_KEPT: kept}, "chunks": chunks}


def to_released(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a released file holds, from a record of our format; what was read from one is written as it was read."""
    notes = record["notes"] if isinstance(record["notes"], dict) else {}
    fresh = {"bank": {"schema_version": RELEASED_SCHEMA, "bank_version": "1"}, "disabled": {}}
    kept = notes.get(_KEPT, fresh)
    skills = [_skill(chunk) for chunk in record["chunks"]]
    for position, skill in sorted(kept["disabled"].items(), key=lambda item: int(item[0])):
        skills.insert(int(position), skill)
    return {**kept["bank"], "skills": skills}


def content_sha256(content: str) -> str:
    """The released hash of a text: of its JSON."""
    return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()


def markdown(chunk: Mapping[str, Any]) -> str:
    """A chunk's record as one text in the released form: its own, or its parts."""
    if chunk.get("content"):
        return str(chunk["content"])
    lines = [f"### {chunk['title']}", "", f"- Applies when: {chunk['applies_when']}", "- Procedure:"]
    lines += [f"  {number}. {step}" for number, step in enumerate(chunk["procedure"], start=1)]
    lines += [f"- {label}: {chunk[key]}" for label, key in (("Verify", "verify"), ("Avoid", "avoid")) if chunk[key]]
    return "\n".join(lines)


def released_version(metadata: Mapping[str, Any], version: int) -> str:
    """The version as a released bank writes it, which need not be a number."""
    return str(metadata.get(_KEPT, {}).get("version", version))


def _check(skill: Any, where: str) -> None:
    if not isinstance(skill, dict):
        raise UserError(f"{where} must be an object")
    for key in ("skill_id", "content"):
        if not isinstance(skill.get(key), str) or not skill[key].strip():
            raise UserError(f'{where}: "{key}" is missing or empty; the policy would be shown nothing')
    ids = skill.get("task_ids")
    if ids is not None and not (isinstance(ids, list) and all(type(task_id) is int for task_id in ids)):
        raise UserError(f'{where} ({skill["skill_id"]}): "task_ids" must be a list of whole numbers')


def _chunk(skill: dict[str, Any]) -> dict[str, Any]:
    metadata, ids = skill.get("metadata"), skill.get("task_ids")
    scope = {} if ids is None else {"task_ids": [str(task_id) for task_id in ids]}
    own = metadata if isinstance(metadata, dict) else {}
    return {
        "skill_id": skill["skill_id"],
        **_parts(skill["content"]),
        "content": skill["content"],
        **scope,
        "metadata": {**own, _KEPT: skill},
    }


def _parts(content: str) -> dict[str, Any]:
    """Title, condition, steps, check and temptation; a text of another form is one step as a whole."""
    texts: dict[str, str] = {"title": "", "applies_when": "", "verify": "", "avoid": ""}
    steps: list[str] = []
    label = ""
    for line in filter(None, map(str.strip, content.splitlines())):
        if not texts["title"] and (title := _TITLE.fullmatch(line)):
            texts["title"] = title[1]
        elif labelled := _LABELLED.fullmatch(line):
            label, text = labelled[1].casefold().replace(" ", "_"), labelled[2]
            if label == "procedure":
                steps += [text] if text else []
            else:
                texts[label] = text
        elif label == "procedure":
            numbered = _NUMBERED.fullmatch(line)
            steps.append(numbered[1] if numbered else line)
    return {**texts, "procedure": steps or [" ".join(content.split())]}


def _skill(chunk: Mapping[str, Any]) -> dict[str, Any]:
    kept = chunk["metadata"].get(_KEPT)
    if kept is not None and kept.get("content") == chunk.get("content"):
        return dict(kept)
    content, ids = markdown(chunk), chunk.get("task_ids")
    return {
        "skill_id": chunk["skill_id"],
        "content": content,
        "version": str(chunk["version"]),
        "metadata": {key: value for key, value in chunk["metadata"].items() if key != _KEPT},
        "content_sha256": content_sha256(content),
        "enabled": True,
        **({} if ids is None else {"task_ids": [int(task_id) for task_id in ids]}),
    }
