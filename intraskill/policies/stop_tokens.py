"""Which tokens end a reply: every one that the model's directory says does.

It says so in three places, and they need not agree: `generation_config.json` (in its absence `config.json`), the
tokenizer's `eos_token`, and the chat template, which closes a turn with a token of its own. A fine-tuned model with its
base model's `generation_config.json` is common; sampled by that file alone it never stops. So each of these tokens ends
a reply, in every engine, and none of them is part of what was said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from intraskill.core.errors import UserError
from intraskill.storage.documents import read_json


def model_stop_ids(directory: Path) -> frozenset[int]:
    """The end tokens that the model's own settings name. Raises `UserError` when they are no token ids."""
    for name in ("generation_config.json", "config.json"):
        path = directory / name
        found = read_json(path).get("eos_token_id") if path.is_file() else None
        if found is not None:
            return _token_ids(found, path)
    return frozenset()


def _token_ids(found: Any, path: Path) -> frozenset[int]:
    ids = found if isinstance(found, list) else [found]
    if not all(type(one) is int and one >= 0 for one in ids):
        raise UserError(f"{path}: eos_token_id is {found!r}; give one token id or a list of them")
    return frozenset(ids)
