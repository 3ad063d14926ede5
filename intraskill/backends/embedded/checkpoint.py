"""Checkpoints: an ordinary Hugging Face model directory plus what training needs to go on.

`config.json`, `model.safetensors` and the tokenizer's files load anywhere; `optimizer.pt` holds AdamW's moments and
`state.json` whatever the caller wants to find again. Everything is written beside the target, synced to disk and
renamed, so a directory that exists under its final name is complete.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError

from intraskill.backends.embedded.models import copy_weights, first_line, load_model, no_progress_bars
from intraskill.backends.embedded.trainer import Trainer
from intraskill.core.errors import StateCorrupted, UserError

SCHEMA = "intraskill-checkpoint-v1"
MODEL_FILES = ("config.json", "generation_config.json", "model.safetensors", "optimizer.pt", "state.json")
TOKENIZER_SUFFIXES = (".json", ".jinja", ".txt", ".model")


def save_checkpoint(path: Path, trainer: Trainer, tokenizer_dir: Path | None, extra: dict[str, Any]) -> None:
    """Write weights, tokenizer files, optimizer state and `extra` (JSON) atomically, replacing an older checkpoint."""
    path = Path(path)
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        for left_by_a_kill in path.parent.glob(f".{path.name}.*"):
            shutil.rmtree(left_by_a_kill, ignore_errors=True)
        unfinished.mkdir(parents=True)
        with no_progress_bars():
            trainer.model.save_pretrained(unfinished)
        if tokenizer_dir is not None:
            _copy_tokenizer(Path(tokenizer_dir), unfinished)
        torch.save(trainer.state_dict(), unfinished / "optimizer.pt")
        state = {"schema": SCHEMA, "extra": extra}
        (unfinished / "state.json").write_text(json.dumps(state, ensure_ascii=False, indent=1), encoding="utf-8")
        _sync(unfinished)
        _move_into_place(unfinished, path)
    except (OSError, SafetensorError, RuntimeError) as error:  # a full disk is each of them, by who writes
        reason = getattr(error, "strerror", None) or first_line(error)
        raise UserError(f"checkpoint {path}: cannot be written: {reason}; free space or mend the rights") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def load_checkpoint(path: Path, trainer: Trainer) -> dict[str, Any]:
    """Put the trainer back into the saved state, bit for bit; returns `extra`.

    Raises `StateCorrupted` when the directory is not a complete checkpoint.
    """
    path = Path(path)
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        trainer_state = torch.load(path / "optimizer.pt", weights_only=True)
    except (OSError, ValueError, RuntimeError, EOFError, LookupError, UnpicklingError) as error:
        raise StateCorrupted(f"checkpoint {path}: cannot be read: {first_line(error)}") from error
    if state.get("schema") != SCHEMA:
        raise StateCorrupted(f"checkpoint {path}: schema {state.get('schema')!r}, this version reads {SCHEMA!r}")
    copy_weights(load_model(str(path)), trainer.model)
    trainer.load_state_dict(trainer_state)
    extra: dict[str, Any] = state["extra"]
    return extra


def _copy_tokenizer(source: Path, target: Path) -> None:
    """Everything beside the weights that a tokenizer may consist of."""
    for file in sorted(source.iterdir()):
        if file.is_file() and file.suffix in TOKENIZER_SUFFIXES and file.name not in MODEL_FILES:
            shutil.copyfile(file, target / file.name)


def _move_into_place(unfinished: Path, path: Path) -> None:
    """Directories cannot be renamed over each other: the old one steps aside first."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.old")
    if path.exists():
        path.rename(aside)
    unfinished.rename(path)
    _sync_one(path.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _sync(directory: Path) -> None:
    for file in directory.iterdir():
        _sync_one(file)
    _sync_one(directory)


def _sync_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
