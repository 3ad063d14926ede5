"""Files that survive a kill at any moment.

Two kinds of file hold a run. A **document** (JSON) is replaced as a whole: written beside itself under a temporary
name, fsynced, renamed over the old one, and the directory fsynced, so a reader sees the old content or the new,
never half of either. A **log** (JSONL) only grows: every append is one write and one fsync. A kill may leave its
last line torn; that line was never promised to anybody, so readers skip it and the next append cuts it off first.
A broken line anywhere else means something other than a kill happened, and is refused with its number.

Lines end at the byte `\\n` and nowhere else: U+2028 and other Unicode separators are ordinary text inside a record.
Every document may name its `schema` ("intraskill-run-v1"); one written by a newer version is refused by name.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from intraskill.core.errors import StateCorrupted, UserError

LOCK_NAME = ".lock"
Row = TypeVar("Row")

_UNWRITABLE = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EROFS: "the file system is read-only; use a writable directory",
    errno.EACCES: "permission denied; make the directory writable",
    errno.EPERM: "permission denied; make the directory writable",
    errno.EISDIR: "a folder stands in its place; move it away",
    errno.ENOTDIR: "a file stands where a folder is needed; move it away",
    errno.EEXIST: "a file stands where a folder is needed; move it away",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.ELOOP: "a link there points to itself; remove it",
}


@contextmanager
def _clear_write_errors(path: Path) -> Iterator[None]:
    """Turn the write errors a user can mend into one line that names the file."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise UserError(f"cannot write {path}: {_UNWRITABLE[error.errno]} and start again, nothing is lost") from error


def _fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes_atomic(path: Path | str, data: bytes) -> None:
    """Replace the file by `data` as a whole; on any error the old file stays as it was."""
    path = Path(path)
    with _clear_write_errors(path):
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
        _fsync_directory(path.parent)


def encode(obj: Any) -> bytes:
    """One JSON value as compact UTF-8; numpy scalars and arrays are accepted, NaN becomes null."""
    return orjson.dumps(obj, option=orjson.OPT_SERIALIZE_NUMPY)


def write_json_atomic(path: Path | str, obj: Any) -> None:
    """Write a JSON document that is either fully there or not at all."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    write_bytes_atomic(path, orjson.dumps(obj, option=options))


def read_json(path: Path | str, schema: str | None = None, shape: type[BaseModel] | None = None) -> Any:
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


def check_shape(where: str, document: Any, shape: type[BaseModel]) -> None:
    """Raise `StateCorrupted` naming the first key of the document at `where` that does not fit."""
    try:
        shape.model_validate(document)
    except ValidationError as error:
        raise StateCorrupted(f"{where}: {problem_of(error)}; restore the file") from None


def problem_of(error: ValidationError) -> str:
    """The first thing a validation found, with its key."""
    first = error.errors(include_url=False)[0]
    key = ".".join(map(str, first["loc"])) or "the content"
    if first["type"] == "missing":
        return f"{key} is missing"
    if first["type"] == "model_type":
        return f"{key} is no object"
    return f"{key}: {first['msg']}"


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


class JsonlLog:
    """An append-only file of JSON objects, one a line; the file appears with its first record.

    With a `shape`, `read` refuses records that do not have it.
    """

    def __init__(self, path: Path | str, shape: type[BaseModel] | None = None) -> None:
        self.path = Path(path)
        self._shape = shape

    def append(self, row: Mapping[str, Any]) -> None:
        self.append_many([row])

    def append_many(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append all rows in one write; when this returns they are on disk."""
        data = b"".join(encode(dict(row)) + b"\n" for row in rows)
        if not data:
            return
        with _clear_write_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            created = not self.path.exists()
            with self.path.open("a+b", buffering=0) as file:
                end = self._cut_torn_tail(file.fileno())
                try:
                    _write_all(file.fileno(), data)
                    os.fsync(file.fileno())
                except OSError:
                    with suppress(OSError):  # if this fails too, the next append cuts the torn line
                        os.ftruncate(file.fileno(), end)
                    raise
            if created:
                _fsync_directory(self.path.parent)

    def _cut_torn_tail(self, descriptor: int) -> int:
        """Make the file end with a whole line; returns its size. What is cut is kept in `<name>.torn`."""
        size = os.fstat(descriptor).st_size
        if size == 0:
            return 0
        good, tail = _last_line_start(descriptor, size)
        if tail.endswith(b"\n") and decode_record(tail) is not None:
            return size
        if decode_record(tail) is not None:  # a whole record that only lacks its line end
            _write_all(descriptor, b"\n")
            return size + 1
        with self.path.with_name(self.path.name + ".torn").open("ab") as aside:
            aside.write(tail.rstrip(b"\n") + b"\n")
        os.ftruncate(descriptor, good)
        return good

    def read(self) -> list[dict[str, Any]]:
        """All records; a torn last line is skipped. Raises StateCorrupted for a broken line before it."""
        rows = list(self.scan(decode_record))
        if self._shape is not None:
            for number, row in enumerate(rows, start=1):
                check_shape(f"{self.path}:{number}", row, self._shape)
        return rows

    def scan(self, decode: Callable[[bytes], Row | None]) -> Iterator[Row]:
        """The records one after the other, as `decode` makes them of a line (None: no record); else like `read`."""
        if not self.path.exists():
            return
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise UserError(
                f"cannot read {self.path}: {error.strerror}; put the file back or mend its rights"
            ) from error
        broken = 0
        with file:
            for number, line in enumerate(file, start=1):
                if broken:
                    raise StateCorrupted(
                        f"{self.path}:{broken}: not a JSON record, and not the last line; restore the file"
                    )
                row = decode(line)
                if row is None:
                    broken = number
                else:
                    yield row

    def keep_where(self, predicate: Callable[[dict[str, Any]], bool]) -> int:
        """Rewrite the file with only the records for which `predicate` holds; returns how many were dropped."""
        rows = self.read()
        kept = [row for row in rows if predicate(row)]
        if len(kept) < len(rows):
            write_bytes_atomic(self.path, b"".join(encode(row) + b"\n" for row in kept))
        return len(rows) - len(kept)


def decode_record(line: bytes) -> dict[str, Any] | None:
    """The record of one line, or None when it is none."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return row if isinstance(row, dict) else None


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _last_line_start(descriptor: int, size: int) -> tuple[int, bytes]:
    """Offset and bytes of the file's last line (its line end included), read backwards in blocks."""
    tail = b""
    start = size
    while start > 0:
        block = min(start, 1 << 16)
        start -= block
        tail = os.pread(descriptor, block, start) + tail
        cut = tail.rfind(b"\n", 0, len(tail) - 1)
        if cut >= 0:
            return start + cut + 1, tail[cut + 1 :]
    return 0, tail


class RunLock:
    """One process per run directory: `with RunLock(run_dir):`. The kernel frees it when the holder dies."""

    def __init__(self, directory: Path | str) -> None:
        self.path = Path(directory) / LOCK_NAME
        self._descriptor: int | None = None

    def __enter__(self) -> RunLock:
        with _clear_write_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not _try_lock(descriptor):
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise UserError(
                f"{self.path.parent} is in use by process {holder}; wait for it to end or stop it, then start again"
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _try_lock(descriptor: int) -> bool:
    """Take the lock; a few tries, because `lock_holder` holds it for an instant while it looks."""
    for _ in range(5):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
    return False


def lock_holder(directory: Path | str) -> int | None:
    """The process that holds the directory's `RunLock` now, or None when nobody does."""
    try:
        descriptor = os.open(Path(directory) / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # no lock was ever taken, or it is not ours to look at
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(descriptor)
    return None


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
