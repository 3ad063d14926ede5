"""What commands print, on whatever terminal they run.

Tasks, chunks and paths hold any character, and a terminal or a pipe set to ASCII or Latin-1 can print few of them.
What cannot be printed appears as its escape; a result is never lost to a traceback in its last line. JSON stays JSON:
its own escapes stand for the same characters.
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any


def accept_any_text() -> None:
    """From now on standard output and standard error write `\\uXXXX` for what their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_json(value: Any) -> None:
    """One JSON value on standard output."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2, allow_nan=False)
    print(text, flush=True)
