"""A YAML settings file, read into its settings class or refused with one line that says where and how to mend it.

    FILE:LINE: key a.b.c: what is wrong; how to mend it

The line numbers come from YAML's node tree, the checks from the pydantic models in `config`. Three habits of YAML are
turned off because they surprise in a settings file: a key given twice (the last would silently win), aliases, and
dates (`2026-01-01` stays a text). `1e-4` is a number, as YAML 1.2 has it. Types are checked strictly: "4" in quotes
is not a number and `yes` is not 1.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from intraskill.core.errors import UserError
from intraskill.families.registry import FAMILIES, SETTINGS
from intraskill.settings.models import RunSettings
from intraskill.storage.user_files import read_user_text

Key = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)
_REMEDIES = {  # beginning of pydantic's error type -> how to mend it
    "int_": "write a whole number, without quotes",
    "float_": "write a number, without quotes",
    "bool_": "write true or false, without quotes",
    "tuple_": "write a list: [a, b]",
}


class _Loader(yaml.SafeLoader):
    """SafeLoader without dates and with YAML 1.2's exponents."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def load_settings(path: Path | str) -> RunSettings:
    """Read and validate a training run's settings. Raises `UserError` naming file, line, key and remedy."""
    return load_settings_as(RunSettings, path)


def load_settings_as(model: type[Model], path: Path | str) -> Model:
    """Read and validate a settings file of this class. Raises `UserError` naming file, line, key and remedy."""
    text = read_user_text(path)
    root = _compose(text, path)
    lines = dict(_key_lines(root, (), path))
    values = _Loader("").construct_document(root)
    _refuse_unholdable(values, (), lines, path)
    try:
        return model.model_validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise UserError(_first_problem(error, lines, path, model)) from None


def _compose(text: str, path: Path | str) -> yaml.MappingNode:
    """The node tree of the file's one mapping."""
    try:
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent):
                line = event.start_mark.line + 1 if event.start_mark else 1
                raise UserError(f"{path}:{line}: aliases are not supported; write the value out")
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        hint = "; indent with spaces" if "\\t" in str(error.problem) else "; mend the syntax there"
        raise UserError(f"{path}:{line}: not valid YAML ({error.problem}){hint}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not valid YAML ({' '.join(str(error).split())}); mend the syntax") from None
    except RecursionError:
        raise UserError(f"{path}: nested too deeply to be read; flatten it") from None
    if root is None:
        raise UserError(f"{path}:1: the file is empty; it needs at least `name: my-run`")
    if not isinstance(root, yaml.MappingNode):
        raise UserError(f"{path}:1: settings are `key: value` lines; this file holds something else")
    return root


def _key_lines(node: yaml.Node, prefix: Key, path: Path | str) -> Iterator[tuple[Key, int]]:
    """Every key of the file with its line; list entries are keys too. Raises `UserError` for a key given twice."""
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            yield (*prefix, position), item.start_mark.line + 1
            yield from _key_lines(item, (*prefix, position), path)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if key_node.tag != "tag:yaml.org,2002:str":
            shown = repr(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "a list or a section"
            raise UserError(f"{path}:{line}: a key must be a plain word, not {shown}; rename it")
        name = key_node.value
        if name in seen:
            raise UserError(f"{path}:{line}: {_said((*prefix, name))}: already given in line {seen[name]}; keep one")
        seen[name] = line
        yield (*prefix, name), line
        yield from _key_lines(value_node, (*prefix, name), path)


def _refuse_unholdable(value: Any, key: Key, lines: dict[Key, int], path: Path | str) -> None:
    """Refuse what YAML can write but a run's files cannot hold."""
    where = f"{path}:{lines.get(key, 1)}: {_said(key)}"
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where}: {value} is not a finite number; give one")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise UserError(f"{where}: the whole number is beyond 64 bits; write a smaller one")
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise UserError(f"{where}: the text holds half of a character; write the character out")
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        _refuse_unholdable(item, (*key, name), lines, path)


def _first_problem(error: ValidationError, lines: dict[Key, int], path: Path | str, model: type[BaseModel]) -> str:
    """The problem that stands first in the file, as one line, and how many more there are."""
    problems = []
    for details in error.errors(include_url=False):
        section, key = _place(details["loc"], model)
        what = _explain(details, key, model, section)
        if details["type"] == "value_error":
            key = _mentioned(what, key, lines)
            what = what.removeprefix(f"{_dotted(key)}: ")
        problems.append((_line(key, lines), key, what))
    line, key, what = min(problems, key=lambda problem: problem[0])
    more = f" ({len(problems) - 1} more below)" if len(problems) > 1 else ""
    where = f"{_said(key)}: " if key else ""
    return " ".join(f"{path}:{line}: {where}{what}{more}".split())


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
        return f'{_shown(value)} is not a text; put it in quotes: "{value}"'
    if kind == "string_pattern_mismatch":
        return f"{_shown(value)} does not fit; use letters, digits, dot, dash and underscore, a letter or digit first"
    for prefix, remedy in _REMEDIES.items():
        if kind.startswith(prefix):
            return f"{_shown(value)} does not fit; {remedy}"
    return f"{_shown(value)} does not fit; {message.replace('Input should', 'it should')}"


def _mentioned(message: str, key: Key, lines: dict[Key, int]) -> Key:
    """The key a rule across several keys is about: the one it mentions first and the file contains."""
    found = [
        (message.find(name), candidate)
        for candidate in lines
        for name in (_dotted(candidate), _dotted(candidate[len(key) :]))
        if candidate[: len(key)] == key and len(candidate) > len(key) and name in message
    ]
    return min(found, key=lambda pair: (pair[0], -len(pair[1])))[1] if found else key


def _known_keys(key: Key, model: type[BaseModel], section: type[BaseModel]) -> str:
    """The closest known name beside an unknown key, the same name in another section, else what is known here."""
    known = list(section.model_fields)
    close = difflib.get_close_matches(str(key[-1]), known, n=1, cutoff=0.5)
    elsewhere = [_dotted(other) for other in _all_keys(model, ()) if other[-1] == key[-1]]
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


def _line(key: Key, lines: dict[Key, int]) -> int:
    """The line of the key, or of the closest section around it."""
    while key and key not in lines:
        key = key[:-1]
    return lines.get(key, 1)


def _dotted(key: Key) -> str:
    return ".".join(str(part) for part in key)


def _said(key: Key) -> str:
    return f"key {_dotted(key)}"


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)
