"""One process per run folder.

The lock is the kernel's (`filelock`): it is free again the moment its holder dies, however it dies. Who holds it stands
beside it, for messages; that file alone says nothing, since a dead holder leaves it behind.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from intraskill.core.errors import UserError
from intraskill.storage.disk import clear_write_errors

LOCK_NAME, _HOLDER_NAME = ".lock", ".lock-holder"
_PATIENCE_S = 0.1  # `lock_holder` takes the lock for an instant while it looks


class RunLock:
    """`with RunLock(run_dir):`. Raises `UserError` naming the process that holds it."""

    def __init__(self, directory: Path | str) -> None:
        self.path = Path(directory) / LOCK_NAME
        self._lock = FileLock(self.path, timeout=_PATIENCE_S, thread_local=False)

    def __enter__(self) -> RunLock:
        folder = self.path.parent
        with clear_write_errors(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(poll_interval=_PATIENCE_S / 5)
            except Timeout:
                raise UserError(
                    f"{folder} is in use by process {_noted_holder(folder) or 'unknown'}; wait for it to end or stop "
                    "it, then start again"
                ) from None
            (folder / _HOLDER_NAME).write_text(f"{os.getpid()}\n", encoding="ascii")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


def lock_holder(directory: Path | str) -> int | None:
    """The process that holds the directory's `RunLock` now, or None when nobody does."""
    folder = Path(directory)
    if not (folder / LOCK_NAME).is_file():
        return None
    with suppress(OSError):  # a folder that is not ours to look into
        try:
            with FileLock(folder / LOCK_NAME, timeout=_PATIENCE_S).acquire(poll_interval=_PATIENCE_S / 5):
                return None
        except Timeout:
            return _noted_holder(folder)
    return None


def _noted_holder(folder: Path) -> int | None:
    try:
        text = (folder / _HOLDER_NAME).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
