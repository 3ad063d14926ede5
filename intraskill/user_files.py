"""Reading files a user wrote: whatever is wrong with them is the user's to mend, and is said in one line.

Files of a run directory are read by `store` instead: there, a broken line means damage, not a typing slip.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from intraskill.errors import UserError


def read_user_text(path: Path | str) -> str:
    """The file's UTF-8 text. Raises `UserError` naming the file."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a readable file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def read_user_json(path: Path | str) -> Any:
    """The file's JSON value. Raises `UserError` naming file and line; a key given twice in one object is refused."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record: dict[str, Any] = {}
        for key, value in pairs:
            if key in record:
                raise UserError(f"{path}: the key {key!r} stands twice in one object; keep one of them")
            record[key] = value
        return record

    try:
        return json.loads(read_user_text(path), object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not valid JSON ({error.msg}); mend the syntax there") from None
    except RecursionError:
        raise UserError(f"{path}: nested too deeply to be read; flatten it") from None
