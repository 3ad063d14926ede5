"""What a model directory samples, as one fingerprint: a hash of each file that has a part in it.

Weights in every format a loader takes (one file or shards with their index), the configuration and the generation
settings, the tokenizer's files and the chat template. So a model that is exchanged between a kill and the resume, or
between two evaluations, is noticed, and the file is named. What training leaves beside a model has no part in sampling.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from intraskill.core.errors import UserError
from intraskill.storage.fingerprint import fingerprint

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
_TEXTS = (".json", ".jinja", ".txt", ".model", ".spm", ".tiktoken")  # configuration, tokenizer, template
_TEMPLATES = "additional_chat_templates"
_LEFT_BY_TRAINING = ("optimizer.", "scheduler.", "training_args.", "trainer_state.", "rng_state", "state.json")
_BLOCK = 1 << 24


def weight_files(directory: Path) -> list[Path]:
    """The files with the weights. Raises `UserError` when there are none."""
    found = [file for file in _files(directory) if file.suffix in _WEIGHTS]
    if not found:
        raise UserError(f"model {directory}: no weights (*.safetensors or *.bin); fetch or save the directory again")
    return found


def model_files(directory: Path) -> dict[str, str]:
    """The SHA-256 of each file by name. Raises `UserError` when there are no weights, or one cannot be read."""
    weight_files(directory)
    try:
        return {file.relative_to(directory).as_posix(): _sha256(file) for file in _files(directory)}
    except OSError as error:
        raise UserError(f"model {directory}: cannot be read: {error}; mend the rights or fetch it again") from error


def model_sha256(directory: Path) -> str:
    """One hash over all of them."""
    return fingerprint(model_files(directory))


def _files(directory: Path) -> list[Path]:
    return [
        file
        for file in sorted([*directory.iterdir(), *directory.glob(f"{_TEMPLATES}/*")])
        if file.suffix in _WEIGHTS + _TEXTS and not file.name.startswith(_LEFT_BY_TRAINING) and file.is_file()
    ]


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
