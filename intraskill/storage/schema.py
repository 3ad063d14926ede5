"""Whether a file holds what its readers rely on, said in one line when it does not.

A run may be looked at years after it ended, on another machine, after somebody opened a file in an editor. So what is
read is checked against types: msgspec structs, or plain dataclasses. Types are exact: a number in quotes is no number,
and what does not fit is one line that names the file, the key and the way out. What no reader relies on may be missing
or new.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import msgspec

from intraskill.core.errors import IntraSkillError, StateCorrupted

Value = TypeVar("Value")
Shape = Any  # a type that msgspec can check: a struct, a dataclass, dict[str, float | None]

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}


def parse(
    kind: type[Value],
    value: Any,
    where: str,
    *,
    key: str = "",
    remedy: str = "restore the file",
    error: type[IntraSkillError] = StateCorrupted,
) -> Value:
    """The decoded JSON value, which stands under `key` at `where`, as a `kind`.

    Raises `error` with what does not fit, and the remedy.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as invalid:
        raise error(f"{where}: {problem_of(invalid, key)}; {remedy}") from None


def check_shape(where: str, document: Any, shape: Shape) -> None:
    """Raise `StateCorrupted` naming the first key of the document at `where` that does not fit.

    A struct may say in `others` what every key that it does not name holds.
    """
    parse(shape, document, where)
    if hasattr(shape, "others"):
        for key in document.keys() - set(shape.__struct_fields__):
            parse(shape.others, document[key], where, key=key)


def unknown_keys(record: Mapping[str, Any], kind: type) -> list[str]:
    """The keys of a record that the dataclass has no field for."""
    return sorted(record.keys() - {entry.name for entry in fields(kind)})


def problem_of(error: msgspec.ValidationError, key: str = "") -> str:
    """What a check found, with its key: `chunks[2].version: expected a whole number, got a text`."""
    message, _, path = str(error).partition(" - at `$")
    key = f"{key}{path.removesuffix('`')}".removeprefix(".")
    if message.startswith("Object missing required field"):
        return f"{key}.{message.split('`')[1]} is missing".removeprefix(".")
    words = re.sub(r"`([^`]+)`", lambda found: _in_words(found[1]), message)
    return f"{key or 'the content'}: {words[:1].lower()}{words[1:]}"


def _in_words(types: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types.split(" | "))
