"""The form of every settings class: frozen, no unknown keys, and nothing secret in a text that will be stored.

What the settings say stands where it acts: a family's in the family, a run's in `settings`, an evaluation's in
`evaluate`. They share the base class here.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _without_secret(url: str) -> str:
    """Settings are written into run folders and sent to W&B, so a URL must not carry a key."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # whoever connects says what is wrong with it
    if "@" in parts.netloc or parts.query:
        raise ValueError("a URL with a user, a password or a query would be stored; give it without them")
    return url


def _variable_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("not the name of an environment variable; put the key into one and give its name")
    return name


def absolute(path: str) -> str:
    """The place a path names now; a run that is continued from elsewhere must still find it."""
    return path if path.startswith("builtin:") else os.path.abspath(os.path.expanduser(path))


Url = Annotated[str, AfterValidator(_without_secret)]
VariableName = Annotated[str, AfterValidator(_variable_name)]
PathText = Annotated[str, AfterValidator(absolute)]  # or `builtin:NAME`
AbsolutePath = Annotated[Path, AfterValidator(lambda path: Path(absolute(str(path))))]
