"""What every file of a run needs: errors that say what to do, and directories that remember a new name."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from intraskill.core.errors import UserError

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
def clear_write_errors(path: Path) -> Iterator[None]:
    """Turn the write errors a user can mend into one line that names the file."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise UserError(f"cannot write {path}: {_UNWRITABLE[error.errno]} and start again, nothing is lost") from error


def fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
