"""Reading files a user wrote: whatever is wrong with them is the user's to mend, and is said in one line.

Files of a run directory are read by `store` instead: there, a broken line means damage, not a typing slip.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from intraskill.core.errors import UserError

_MOST_DIGITS = 300  # what still fits a float


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
    """The file's JSON value. Raises `UserError` naming file and line; a key given twice in one object is refused.

    So is what JSON can write but nothing here can hold: numbers beyond a float, and halves of characters.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record: dict[str, Any] = {}
        for key, value in pairs:
            if key in record:
                raise UserError(f"{path}: the key {key!r} stands twice in one object; keep one of them")
            record[key] = value
        return record

    def bounded(digits: str) -> int:
        if len(digits) > _MOST_DIGITS:
            raise UserError(f"{path}: the whole number {digits[:12]}.. has {len(digits)} digits; write a smaller one")
        return int(digits)

    try:
        value = json.loads(read_user_text(path), object_pairs_hook=unique, parse_int=bounded)
        json.dumps(value, ensure_ascii=False).encode()  # what holds half a character fails here
        return value
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not valid JSON ({error.msg}); mend the syntax there") from None
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise UserError(f"{path}: a text holds {half!a}, half of a character; write the character out") from None
    except RecursionError:
        raise UserError(f"{path}: nested too deeply to be read; flatten it") from None
