"""YAML as version 1.2 means it, with every key's line: what a settings file and an override on the command line say.

PyYAML reads version 1.1, whose habits surprise in a settings file: `010` is 8 there, `1:30` is 90, `1_000` is a number,
`no` is false, `2026-01-01` a date. Version 1.2 knows `true` and `false`, `null`, decimal, `0o` and `0x` numbers, and
takes everything else for text. Refused altogether are what a settings file does not need and what can go wrong
unseen: a key given twice (the last one would win), aliases, and tags such as `!ENV`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from intraskill.core.errors import UserError

Key = tuple[str | int, ...]
_PREFIX = "tag:yaml.org,2002:"
_MOST_DIGITS = 300
_DEEPEST = 50  # sections and lists inside each other
_CORE_SCHEMA = (  # the scalars of YAML 1.2's core schema that are no text, by their first characters
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
)


class _Loader(yaml.SafeLoader):
    """SafeLoader with the core schema of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


def _whole_number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    base = {"0o": 8, "0x": 16}.get(node.value[:2], 10)
    if len(node.value) > _MOST_DIGITS:
        return 1 << 64  # refused as too large, like every whole number of that length
    return int(node.value[2:] if base != 10 else node.value, base)


for _kind, _pattern, _first in _CORE_SCHEMA:
    _Loader.add_implicit_resolver(_PREFIX + _kind, re.compile(f"^(?:{_pattern})$"), _first)
_Loader.add_constructor(_PREFIX + "int", _whole_number)


def read_mapping(text: str, where: str) -> tuple[dict[str, Any], dict[Key, int]]:
    """The values of a file that holds one mapping, and the line of every key; list entries are keys too.

    Raises `UserError` beginning with `where:LINE: `.
    """
    root = _compose(text, where)
    if root is None:
        raise UserError(f"{where}:1: the file is empty; it needs at least `name: my-run`")
    if not isinstance(root, yaml.MappingNode):
        raise UserError(f"{where}:1: settings are `key: value` lines; this file holds something else")
    lines = dict(_key_lines(root, (), where))
    values: dict[str, Any] = _Loader("").construct_document(root)
    for key, problem in _unholdable(values, ()):
        raise UserError(f"{where}:{lines.get(key, 1)}: key {dotted(key)}: {problem}")
    return values, lines


def read_value(text: str, where: str) -> Any:
    """One value, such as what follows `=` in an override. Raises `UserError` beginning with `where: `."""
    try:
        root = _compose(text, where)
        if root is None:
            return None
        dict(_key_lines(root, (), where))
    except UserError as error:
        raise UserError(re.sub(f"^{re.escape(where)}:[0-9]+: ", f"{where}: ", str(error))) from None
    value = _Loader("").construct_document(root)
    for _, problem in _unholdable(value, ()):
        raise UserError(f"{where}: {problem}")
    return value


def dotted(key: Key) -> str:
    return ".".join(str(part) for part in key)


def _compose(text: str, where: str) -> yaml.Node | None:
    """The node tree of the one document; None for an empty one."""
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            line = event.start_mark.line + 1 if event.start_mark else 1
            if depth > _DEEPEST:
                raise UserError(f"{where}:{line}: nested too deeply to be read; flatten it")
            if isinstance(event, yaml.AliasEvent):
                raise UserError(f"{where}:{line}: aliases are not supported; write the value out")
            if tag := getattr(event, "tag", None):
                raise UserError(f"{where}:{line}: the tag {_written(tag)} is not supported; write the value out")
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
        return node
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        hint = "; indent with spaces" if "\\t" in str(error.problem) else "; mend the syntax there"
        raise UserError(f"{where}:{line}: not valid YAML ({error.problem}){hint}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{where}: not valid YAML ({' '.join(str(error).split())}); mend the syntax") from None


def _written(tag: str) -> str:
    """A tag as it stands in the file."""
    return "!!" + tag.removeprefix(_PREFIX) if tag.startswith(_PREFIX) else tag


def _key_lines(node: yaml.Node, prefix: Key, where: str) -> Iterator[tuple[Key, int]]:
    """Every key below the node with its line. Raises `UserError` for a key given twice."""
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            yield (*prefix, position), item.start_mark.line + 1
            yield from _key_lines(item, (*prefix, position), where)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if key_node.tag != _PREFIX + "str":
            shown = repr(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "a list or a section"
            raise UserError(f"{where}:{line}: a key must be a plain word, not {shown}; rename it")
        name = key_node.value
        if name in seen:
            raise UserError(
                f"{where}:{line}: key {dotted((*prefix, name))}: already given in line {seen[name]}; keep one"
            )
        seen[name] = line
        yield (*prefix, name), line
        yield from _key_lines(value_node, (*prefix, name), where)


def _unholdable(value: Any, key: Key) -> Iterator[tuple[Key, str]]:
    """What YAML can write but a run's files cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        yield key, f"{value} is not a finite number; give one"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield key, "the whole number is beyond 64 bits; write a smaller one"
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        yield key, "the text holds half of a character; write the character out"
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from _unholdable(item, (*key, name))
