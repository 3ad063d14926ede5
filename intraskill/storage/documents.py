"""Documents: JSON files that survive a kill at any moment.

A document is replaced as a whole: written beside itself under a temporary name, fsynced, renamed over the old one, and
the directory fsynced, so a reader sees the old content or the new, never half of either. It may name its `schema`
("intraskill-run-v1"); one written by a newer version is refused by name.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import orjson

from intraskill.core.errors import StateCorrupted, UserError
from intraskill.storage.disk import clear_write_errors, fsync_directory
from intraskill.storage.schema import Shape, check_shape


def write_bytes_atomic(path: Path | str, data: bytes) -> None:
    """Replace the file by `data` as a whole; on any error the old file stays as it was."""
    path = Path(path)
    with clear_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        fsync_directory(path.parent)


def encode(obj: Any) -> bytes:
    """One JSON value as compact UTF-8; numpy scalars and arrays are accepted, NaN becomes null."""
    return orjson.dumps(obj, option=orjson.OPT_SERIALIZE_NUMPY)


def write_json_atomic(path: Path | str, obj: Any) -> None:
    """Write a JSON document that is either fully there or not at all."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    write_bytes_atomic(path, orjson.dumps(obj, option=options))


def read_json(path: Path | str, schema: str | None = None, shape: Shape | None = None) -> Any:
    """Read a document; refuse another or a newer `schema`, and what does not have the `shape`.

    Raises `UserError` (`StateCorrupted` for damage) naming the file. `shape` only checks: the document is returned.
    """
    path = Path(path)
    try:
        document = orjson.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; put the file back or mend its rights") from error
    except orjson.JSONDecodeError as error:
        raise StateCorrupted(f"{path}:{error.lineno}: not valid JSON ({error.msg}); restore the file") from error
    if schema is not None:
        check_schema(path, document, schema)
    if shape is not None:
        check_shape(str(path), document, shape)
    return document


def check_schema(path: Path | str, document: Any, schema: str) -> None:
    """Raise unless `document["schema"]` is `schema` or an older version of the same name."""
    found = document.get("schema") if isinstance(document, dict) else None
    if found == schema:
        return
    name, version = _split_version(schema)
    found_name, found_version = _split_version(str(found))
    if found_name == name and found_version > version:
        raise UserError(f"{path}: schema {found} is newer than this program understands ({schema}); upgrade intraskill")
    if found_name != name:
        raise StateCorrupted(f"{path}: schema is {found!r}, expected {schema!r}; restore the file")


def _split_version(schema: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.+)-v(\d+)", schema)
    return (match[1], int(match[2])) if match else (schema, -1)
