"""Writing a file so that a reader sees the old one or the new one, never a half; and directories to write into."""

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


def make_directory(path: Path) -> None:
    """Make it, and what it lies in, unless it is there. Raises `ShopError`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ShopError(f"{path}: cannot make this directory: {error.strerror or error}; choose another") from error
