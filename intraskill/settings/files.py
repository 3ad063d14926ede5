"""A settings file and the overrides of a command line, read into a settings class or refused with one line.

    FILE:LINE: key a.b.c: what is wrong; how to mend it
    a.b.c=VALUE: what is wrong; how to mend it

An override is `key.path=value`, its value written as in the file: `train.lr=1e-4`, `train.betas=[0.9,0.99]`. Overrides
are applied before anything is checked, so both are checked alike; the last one of a key wins. The checks come from the
pydantic models, the line numbers from YAML's node tree. Types are checked strictly: "4" in quotes is not a number.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from intraskill.core.errors import UserError
from intraskill.families.registry import FAMILIES, SETTINGS
from intraskill.settings.models import RunSettings
from intraskill.settings.yaml_values import Key, dotted, read_mapping, read_value
from intraskill.storage.user_files import read_user_text

Model = TypeVar("Model", bound=BaseModel)
_REMEDIES = {  # beginning of pydantic's error type -> how to mend it
    "int_": "write a whole number, without quotes",
    "float_": "write a number, without quotes",
    "bool_": "write true or false, without quotes",
    "tuple_": "write a list: [a, b]",
}


@dataclass(frozen=True)
class _Places:
    """Where every key was given: in a line of the file, or by an override."""

    path: Path | str
    lines: Mapping[Key, int]
    overrides: Mapping[Key, str]

    def given(self) -> list[Key]:
        return [*self.overrides, *self.lines]

    def of(self, key: Key) -> tuple[int, str]:
        """What to say of the key or the closest section around it, and its rank: the command line, then the lines."""
        own = [one for one in self.overrides if one == key[: len(one)]]
        if not own and key not in self.lines:  # an unknown section has a key of its own only in a file
            own = [one for one in self.overrides if key and key == one[: len(key)]]
        if own:
            nearest = max(own, key=len)
            return 0, f"{self.overrides[nearest]}: " + (f"key {dotted(key)}: " if key != nearest else "")
        near = key
        while near and near not in self.lines:
            near = near[:-1]
        line = self.lines.get(near, 1)
        return line, f"{self.path}:{line}: " + (f"key {dotted(key)}: " if key else "")


def load_settings(path: Path | str, overrides: Sequence[str] = ()) -> RunSettings:
    """Read and validate a training run's settings. Raises `UserError` naming place, key and remedy."""
    return load_settings_as(RunSettings, path, overrides)


def load_settings_as(model: type[Model], path: Path | str, overrides: Sequence[str] = ()) -> Model:
    """Read and validate settings of this class. Raises `UserError` naming place, key and remedy."""
    values, lines = read_mapping(read_user_text(path), str(path))
    given: dict[Key, str] = {}
    for override in overrides:
        key, value = _parse_override(override)
        _put(values, key, value, override)
        given[key] = override
    try:
        return model.model_validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise UserError(_first_problem(error, _Places(path, lines, given), model)) from None


def _parse_override(text: str) -> tuple[Key, Any]:
    name, equals, value = text.partition("=")
    if not equals or not all(name.split(".")):
        raise UserError(f"{text}: not an override; write KEY=VALUE with the key's whole path, such as train.lr=1e-4")
    return tuple(name.split(".")), read_value(value, text)


def _put(values: dict[str, Any], key: Key, value: Any, override: str) -> None:
    """Set `key` in the tree of `values`, making the sections around it where the file has none."""
    for depth, name in enumerate(key[:-1], start=1):
        inner = values.setdefault(str(name), {})
        if not isinstance(inner, dict):
            raise UserError(f"{override}: {dotted(key[:depth])} is no section in the settings file; override it whole")
        values = inner
    values[str(key[-1])] = value


def _first_problem(error: ValidationError, places: _Places, model: type[BaseModel]) -> str:
    """The first problem of the command line, else of the file, as one line, and how many more there are."""
    problems = []
    for details in error.errors(include_url=False):
        section, key = _place(details["loc"], model)
        what = _explain(details, key, model, section)
        if details["type"] == "value_error":
            key = _mentioned(what, key, places)
            what = what.removeprefix(f"{dotted(key)}: ")
        problems.append((*places.of(key), what))
    _, where, what = min(problems, key=lambda problem: problem[0])
    more = f" ({len(problems) - 1} more below)" if len(problems) > 1 else ""
    return " ".join(f"{where}{what}{more}".split())


def _place(loc: Key, model: type[BaseModel]) -> tuple[type[BaseModel], Key]:
    """The class of the section a problem is in, and the key as the file has it.

    Where the class of a section is chosen by a task family's name, that name stands in `loc` behind the section's.
    """
    section: type[BaseModel] | None = model
    key: Key = ()
    for part in loc[:-1]:
        if section is None and part in SETTINGS:
            section = SETTINGS[str(part)]
            continue
        key = (*key, part)
        section = _model_of(section, str(part)) if section is not None else None
    return section or model, (*key, *loc[-1:])


def _explain(details: Any, key: Key, model: type[BaseModel], section: type[BaseModel]) -> str:
    """What is wrong with one value, and how to mend it."""
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    message = details["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        return f"unknown key; {_known_keys(key, model, section)}"
    if kind == "missing":
        return "missing; add it"
    if kind == "value_error":
        return message
    if kind == "literal_error":
        return f"{_shown(value)} is not one of them; write {context['expected']}"
    if kind in ("model_type", "union_tag_not_found"):
        return f"holds {_shown(value)} where a section is expected; indent its keys below it, or remove it"
    if kind == "union_tag_invalid":
        return f"family: {_shown(context['tag'])} is no task family; write one of {', '.join(FAMILIES)}"
    if kind == "string_type":
        return f"{_shown(value)} is not a text; " + (
            "give one" if value is None else f'put it in quotes: "{_shown(value)}"'
        )
    if kind == "string_pattern_mismatch":
        return f"{_shown(value)} does not fit; use letters, digits, dot, dash and underscore, a letter or digit first"
    for prefix, remedy in _REMEDIES.items():
        if kind.startswith(prefix):
            return f"{_shown(value)} does not fit; {remedy}"
    return f"{_shown(value)} does not fit; {message.replace('Input should', 'it should')}"


def _mentioned(message: str, key: Key, places: _Places) -> Key:
    """The key a rule across several keys is about: the one it mentions first that was given."""
    found = [
        (message.find(name), candidate)
        for candidate in places.given()
        for name in (dotted(candidate), dotted(candidate[len(key) :]))
        if candidate[: len(key)] == key and len(candidate) > len(key) and name in message
    ]
    return min(found, key=lambda pair: (pair[0], -len(pair[1])))[1] if found else key


def _known_keys(key: Key, model: type[BaseModel], section: type[BaseModel]) -> str:
    """The closest known name beside an unknown key, the same name in another section, else what is known here."""
    known = list(section.model_fields)
    close = difflib.get_close_matches(str(key[-1]), known, n=1, cutoff=0.5)
    elsewhere = [dotted(other) for other in _all_keys(model, ()) if other[-1] == key[-1]]
    if close or elsewhere:
        return f"did you mean {(elsewhere or close)[0]!r}?"
    return f"remove it, or use one of {', '.join(known)}"


def _all_keys(model: type[BaseModel], prefix: Key) -> Iterator[Key]:
    for name in model.model_fields:
        yield (*prefix, name)
        inner = [_model_of(model, name)] if name != "environment" else list(SETTINGS.values())
        for section in inner:
            if section is not None:
                yield from _all_keys(section, (*prefix, name))


def _model_of(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    annotation = model.model_fields[name].annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)
