"""The skill bank: the procedural text a policy may be shown, as an ordered list of chunks.

A **chunk** is one small procedure: when it applies, the steps, how to verify them, what to avoid. It is the unit
the method switches on and off, so a chunk must make sense on its own. `contribution` is what a gate measured for
it (reward gained by having it in the prompt), `contribution_checkpoint` names the weights it was measured at, and
`contribution_conditions` is a hash of all else that was the same in the gate's episodes (tokenizer and chat template,
prompt, environment, sampling): a contribution of other weights or other conditions says nothing here.

A **bank** is an ordered list of chunks; the order in the file is the order in the prompt. Its `sha256` covers the
ids and everything a policy can see, and nothing else: measuring a contribution or adding a note leaves it alone,
changing one word does not. The file format is JSON, schema `intraskill-bank-v1`:

    {"schema": "intraskill-bank-v1", "draft_only": false, "uses_test_outcomes": false, "notes": "free",
     "chunks": [{"skill_id": "..", "version": 1, "title": "..", "applies_when": "..", "procedure": ["..", ".."],
                 "verify": "..", "avoid": "..", "contribution": 0.03, "contribution_checkpoint": "..",
                 "contribution_conditions": "..", "metadata": {}}]}

A chunk that came as one Markdown text keeps it as `content`, which then is what the `full` style shows; `task_ids`
limit it to those tasks. Both are left out where there is none. A file in the released format (`released.py`) is read
as well.

Only `schema`, `chunks` and a chunk's `skill_id`, `title`, `applies_when`, `procedure` are required. `draft_only`
marks a bank no gate has seen yet; `uses_test_outcomes` one that was made with knowledge of test results, so that
no test score may be reported for it. `notes` and `metadata` are free and kept as they are.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from intraskill.core.errors import UserError
from intraskill.skills.released import RELEASED_SCHEMA, from_released
from intraskill.storage.store import write_json_atomic
from intraskill.storage.user_files import read_user_json

SCHEMA = "intraskill-bank-v1"
_BANK_KEYS = ("schema", "draft_only", "uses_test_outcomes", "notes", "chunks")
_REQUIRED_TEXT = ("title", "applies_when", "procedure")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One procedure the policy can be shown."""

    skill_id: str
    version: int = 1
    title: str = ""
    applies_when: str = ""
    procedure: tuple[str, ...] = ()
    verify: str = ""
    avoid: str = ""
    contribution: float | None = None
    contribution_checkpoint: str | None = None
    contribution_conditions: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    content: str = ""
    task_ids: tuple[str, ...] | None = None

    def applies_to(self, task_id: int | str) -> bool:
        """Whether the chunk may be shown on this task."""
        return self.task_ids is None or str(task_id) in self.task_ids

    def visible(self) -> dict[str, Any]:
        """What the policy can see, and the id that names it."""
        return {
            "skill_id": self.skill_id,
            "title": self.title,
            "applies_when": self.applies_when,
            "procedure": list(self.procedure),
            "verify": self.verify,
            "avoid": self.avoid,
            **_chosen(self, ("content", "task_ids")),
        }


@dataclass(frozen=True, slots=True)
class Bank:
    """Chunks in prompt order. Raises `UserError` when two of them share an id."""

    chunks: tuple[Chunk, ...] = ()
    draft_only: bool = False
    uses_test_outcomes: bool = False
    notes: Any = ""

    def __post_init__(self) -> None:
        seen: dict[str, int] = {}
        for position, chunk in enumerate(self.chunks):
            if chunk.skill_id in seen:
                raise UserError(
                    f"bank: chunks {seen[chunk.skill_id] + 1} and {position + 1} are both called "
                    f"{chunk.skill_id!r}; give one of them another skill_id"
                )
            seen[chunk.skill_id] = position

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(chunk.skill_id for chunk in self.chunks)

    @property
    def sha256(self) -> str:
        """Hash of the ids and everything a policy can see, in order."""
        visible = [chunk.visible() for chunk in self.chunks]
        canonical = json.dumps(visible, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def chunk(self, skill_id: str) -> Chunk:
        """The chunk with this id. Raises `UserError` when there is none."""
        for chunk in self.chunks:
            if chunk.skill_id == skill_id:
                return chunk
        raise UserError(f"bank: no chunk is called {skill_id!r}; it has {', '.join(self.ids) or 'no chunks'}")

    def subset(self, ids: Iterable[str]) -> Bank:
        """The bank with only these chunks, still in its own order. Raises `UserError` for an unknown id."""
        wanted = {self.chunk(skill_id).skill_id for skill_id in ids}
        return replace(self, chunks=tuple(chunk for chunk in self.chunks if chunk.skill_id in wanted))


def render_chunk(chunk: Chunk, style: Literal["full", "compact"]) -> str:
    """The chunk as prompt text: Markdown (`full`), or one short line (`compact`)."""
    if style == "compact":
        return _one_line(": ".join(filter(None, (chunk.applies_when, "; ".join(chunk.procedure)))))
    if chunk.content:
        return chunk.content.strip()
    lines = [f"### {_one_line(chunk.title)}", "", f"**When:** {_one_line(chunk.applies_when)}", ""]
    lines += [f"{number}. {_one_line(step)}" for number, step in enumerate(chunk.procedure, start=1)]
    for label, text in (("Verify", chunk.verify), ("Avoid", chunk.avoid)):
        if text:
            lines += ["", f"**{label}:** {_one_line(text)}"]
    return "\n".join(lines)


def bank_record(bank: Bank) -> dict[str, Any]:
    """The bank as the JSON object its file holds."""
    return {
        "schema": SCHEMA,
        "draft_only": bank.draft_only,
        "uses_test_outcomes": bank.uses_test_outcomes,
        "notes": bank.notes,
        "chunks": [chunk_record(chunk) for chunk in bank.chunks],
    }


def chunk_record(chunk: Chunk) -> dict[str, Any]:
    """The chunk as the JSON object that stands in a bank file."""
    record = asdict(chunk) | {"procedure": list(chunk.procedure)}
    del record["content"], record["task_ids"]
    return record | _chosen(chunk, ("content", "task_ids"))


def _chosen(chunk: Chunk, keys: Iterable[str]) -> dict[str, Any]:
    """What the chunk has of these, as JSON holds it."""
    found = {key: getattr(chunk, key) for key in keys}
    return {key: list(v) if isinstance(v, tuple) else v for key, v in found.items() if v not in ("", None)}


def parse_bank(record: Any, where: str, *, texts_required: bool = True) -> Bank:
    """Check a decoded bank file. `where` names it in errors.

    With `texts_required` false, the schema name and the texts may be missing: enough for whoever only maps
    contributions to probabilities, too little for a prompt.
    """
    if not isinstance(record, dict):
        raise UserError(f'{where}: a bank is a JSON object with "chunks", not {_kind(record)}')
    if record.get("schema_version") == RELEASED_SCHEMA:
        record = {"schema": SCHEMA} | from_released(record, where)
    _check_schema(record, where, required=texts_required)
    for key in record:
        if key not in _BANK_KEYS:
            raise UserError(f"{where}: unknown key {key!r}; a bank has {', '.join(_BANK_KEYS)}")
    chunks = record.get("chunks")
    if not isinstance(chunks, list):
        raise UserError(f'{where}: "chunks" must be a list of chunks, not {_kind(chunks)}')
    parsed = tuple(
        _parse_chunk(chunk, f"{where}: chunk {number}", texts_required) for number, chunk in enumerate(chunks, start=1)
    )
    flags = {key: record.get(key, False) for key in ("draft_only", "uses_test_outcomes")}
    for key, value in flags.items():
        if not isinstance(value, bool):
            raise UserError(f'{where}: "{key}" must be true or false, not {_kind(value)}')
    try:
        return Bank(parsed, flags["draft_only"], flags["uses_test_outcomes"], record.get("notes", ""))
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def read_bank(path: Path | str, *, texts_required: bool = True) -> Bank:
    """Read and check a bank file. Raises `UserError` naming the file, the chunk and the key."""
    return parse_bank(read_user_json(path), str(path), texts_required=texts_required)


def write_bank(path: Path | str, bank: Bank) -> None:
    """Write the bank file; a reader sees the old file or the new one, never a part."""
    write_json_atomic(path, bank_record(bank))


def _check_schema(record: dict[str, Any], where: str, *, required: bool) -> None:
    schema = record.get("schema")
    if schema == SCHEMA or (schema is None and not required):
        return
    if schema is None:
        raise UserError(f'{where}: no "schema"; add "schema": "{SCHEMA}"')
    raise UserError(f"{where}: schema {schema!r} is not known here, only {SCHEMA!r}; update intraskill or convert it")


def _parse_chunk(record: Any, where: str, texts_required: bool) -> Chunk:
    if not isinstance(record, dict):
        raise UserError(f"{where} must be an object, not {_kind(record)}")
    skill_id = record.get("skill_id")
    if not isinstance(skill_id, str) or not skill_id.strip():
        raise UserError(f'{where} has no "skill_id"; give it a text that no other chunk has')
    where = f"{where} ({skill_id})"
    known = Chunk.__dataclass_fields__
    for key, value in record.items():
        if key not in known:
            raise UserError(f"{where}: unknown key {key!r}; a chunk has {', '.join(known)} (free notes: metadata)")
        _check_chunk_value(key, value, where)
    for key in _REQUIRED_TEXT:
        if texts_required and not record.get(key) and not record.get("content"):
            raise UserError(f'{where}: "{key}" is missing or empty; the policy would be shown nothing')
    ids = record.get("task_ids")
    tuples = {"procedure": tuple(record.get("procedure", ())), "task_ids": None if ids is None else tuple(ids)}
    return Chunk(**{**record, **tuples})


def _check_chunk_value(key: str, value: Any, where: str) -> None:
    if key in ("procedure", "task_ids"):
        good, wanted = isinstance(value, list) and all(isinstance(step, str) for step in value), "a list of texts"
    elif key == "version":
        good, wanted = type(value) is int and value >= 1, "a whole number from 1"
    elif key == "contribution":
        good = value is None or (type(value) in (int, float) and math.isfinite(value))
        wanted = "a finite number or null"
    elif key in ("contribution_checkpoint", "contribution_conditions"):
        good, wanted = value is None or isinstance(value, str), "a text or null"
    elif key == "metadata":
        good, wanted = isinstance(value, dict), "an object"
    else:
        good, wanted = isinstance(value, str), "a text"
    if not good:
        raise UserError(f'{where}: "{key}" must be {wanted}, not {_kind(value)}')


def _one_line(text: str) -> str:
    """The text without newlines or runs of white space."""
    return " ".join(text.split())


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true/false", type(None): "null"}
    return names.get(type(value), repr(value))
