"""Logs: JSONL files that only grow, and survive a kill at any moment.

Every append is one write and one fsync. A kill may leave the last line torn; that line was never promised to anybody,
so readers skip it and the next append cuts it off first. A broken line anywhere else means something other than a kill
happened, and is refused with its number. Lines end at the byte `\n` and nowhere else: U+2028 and other Unicode
separators are ordinary text inside a record.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import orjson

from intraskill.core.errors import StateCorrupted, UserError
from intraskill.storage.disk import clear_write_errors, fsync_directory
from intraskill.storage.documents import encode, write_bytes_atomic
from intraskill.storage.schema import Shape, check_shape, problem_of

Record = TypeVar("Record")


class JsonlLog:
    """An append-only file of JSON objects, one a line; the file appears with its first record.

    With a `shape`, `read` refuses records that do not have it.
    """

    def __init__(self, path: Path | str, shape: Shape | None = None) -> None:
        self.path = Path(path)
        self._shape = shape

    def append(self, row: Mapping[str, Any]) -> None:
        self.append_many([row])

    def append_many(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append all rows in one write; when this returns they are on disk."""
        data = b"".join(encode(dict(row)) + b"\n" for row in rows)
        if not data:
            return
        with clear_write_errors(self.path):
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
                fsync_directory(self.path.parent)

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
        return list(self.rows())

    def rows(self) -> Iterator[dict[str, Any]]:
        """The records one after the other; else like `read`."""
        for number, row in enumerate(self._scan(lambda number, line: decode_record(line)), start=1):
            if self._shape is not None:
                check_shape(f"{self.path}:{number}", row, self._shape)
            yield row

    def read_as(self, kind: type[Record]) -> Iterator[Record]:
        """The records one after the other as values of `kind`; what that does not name is skipped without being built.

        Else like `read`.
        """
        decoder = msgspec.json.Decoder(kind)

        def decode(number: int, line: bytes) -> Record | None:
            try:
                return decoder.decode(line)
            except msgspec.ValidationError as error:
                raise StateCorrupted(f"{self.path}:{number}: {problem_of(error)}; restore the file") from None
            except msgspec.DecodeError:
                return None

        return self._scan(decode)

    def _scan(self, decode: Callable[[int, bytes], Record | None]) -> Iterator[Record]:
        """The records as `decode` makes them of a line's number and bytes (None: no record)."""
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
                row = decode(number, line)
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
