"""Writing a file so that a reader sees the old one or the new one, never a half."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from shopsimulator.errors import ShopError


def write_atomic(path: str | Path, data: bytes) -> None:
    """Write under another name in the same directory (made if missing), then rename. Raises `ShopError`."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise ShopError(f"{path}: cannot write: {error.strerror or error}") from error
