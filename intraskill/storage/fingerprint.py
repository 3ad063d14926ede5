"""Whether two things mean the same: a hash of their canonical JSON, and what differs when it differs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from intraskill.storage.documents import encode


def fingerprint(obj: Any) -> str:
    """SHA-256 of the canonical JSON (sorted keys, UTF-8) of `obj`."""
    options = orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY
    return hashlib.sha256(orjson.dumps(obj, option=options)).hexdigest()


_ABSENT = object()


def describe_difference(old: Any, new: Any, prefix: str = "") -> list[str]:
    """One line per leaf that differs, for example `train.lr: 0.0001 -> 0.0002`."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys: Sequence[str] = sorted({*old, *new})
        return [
            line
            for key in keys
            for line in describe_difference(
                old.get(key, _ABSENT), new.get(key, _ABSENT), f"{prefix}.{key}" if prefix else str(key)
            )
        ]
    if old == new and type(old) is type(new):
        return []
    if old is not _ABSENT and new is not _ABSENT and encode(old) == encode(new):
        return []
    return [f"{prefix or '(whole)'}: {_show(old)} -> {_show(new)}"]


def _show(value: Any) -> str:
    return "(absent)" if value is _ABSENT else encode(value).decode()
