"""Which rows a local W&B run file really holds.

wandb hands every logged row to a helper process, which writes it to `<run dir>/run-<id>.wandb` a little later. After
a kill, only that file tells what survived. Its format is LevelDB's log: a 7-byte header, then blocks of 32 KiB with
records framed by checksum, length and type (1 whole, 2 first, 3 middle, 4 last); each record is a protobuf message.
A file cut off anywhere reads as the records before the cut.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

_HEADER = 7
_BLOCK = 32 * 1024
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def raw_records(data: bytes) -> Iterator[bytes]:
    """The complete records of one `.wandb` file; stops quietly where the file is torn."""
    position = _HEADER
    parts = b""
    while position + 7 <= len(data):
        left_in_block = _BLOCK - position % _BLOCK
        if left_in_block < 7:
            position += left_in_block
            continue
        _checksum, length, kind = struct.unpack_from("<IHB", data, position)
        body = data[position + 7 : position + 7 + length]
        if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or len(body) < length:
            return
        parts = body if kind in (_WHOLE, _FIRST) else parts + body
        if kind in (_WHOLE, _LAST):
            yield parts
        position += 7 + length


def logged_steps(path: Path) -> list[int]:
    """The event counters of all history rows in one `.wandb` file. Imports wandb."""
    from google.protobuf.message import DecodeError
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    steps = []
    for raw in raw_records(path.read_bytes()):
        record = Record()
        try:
            record.ParseFromString(raw)
        except DecodeError:
            break
        if record.HasField("history"):
            steps.append(int(record.history.step.num))
    return steps
