"""Parts of the package that need more than its core installation, and what is said where that is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from intraskill.core.errors import UserError


@contextmanager
def needing(what: str, otherwise: str = "") -> Iterator[None]:
    """Around an import: a package that is not installed is one line that says how to get it.

    `what` needs it; `otherwise` is another way out, for example "or give policy.base_url".
    """
    try:
        yield
    except ImportError as error:
        hint = "; install the embedded backend: pip install 'intraskill[local]'"
        raise UserError(f"{what} needs the package {error.name!r}{hint}{otherwise and ', '}{otherwise}") from None
