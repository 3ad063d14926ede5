"""Loading a policy: any Hugging Face causal LM directory whose layers all use full attention.

`builtin:tiny` names the warm-up checkpoint that ships with the package. Weights are loaded in float32 (the master
copy); the sampler keeps its own copy in its own type.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.utils import logging

from intraskill.assets import model_directory
from intraskill.errors import UserError
from intraskill.learn.attention import register_attention
from intraskill.learn.unread import skip_unread


def load_model(spec: str) -> PreTrainedModel:
    """The causal LM of `spec`, float32, ready for packed attention. Raises `UserError` when it cannot be used."""
    directory = model_directory(spec)
    try:
        config = AutoConfig.from_pretrained(directory)
    except Exception as error:  # the library checks it with error classes of its own
        raise UserError(f"model {spec!r}: config.json cannot be read: {first_line(error)}") from error
    _require_full_attention(config, spec)
    try:
        with no_progress_bars():
            model = AutoModelForCausalLM.from_pretrained(
                directory, config=config, dtype=torch.float32, attn_implementation=register_attention()
            )
    except (ValueError, OSError, RuntimeError, AssertionError, TypeError, SafetensorError) as error:
        raise UserError(f"model {spec!r}: weights cannot be loaded: {first_line(error)}") from error
    return skip_unread(model)


def build_model(config: PretrainedConfig, seed: int) -> PreTrainedModel:
    """A randomly initialised causal LM of this shape (the caller's random state is left alone)."""
    _require_full_attention(config, config.model_type)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        own = copy.deepcopy(config)  # the library notes the attention function in the configuration itself
        model = AutoModelForCausalLM.from_config(own, dtype=torch.float32, attn_implementation=register_attention())
    return skip_unread(model)


def copy_model(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """A frozen copy of the same architecture and weights in another type."""
    with torch.random.fork_rng():
        twin = type(model)._from_config(model.config, dtype=dtype, attn_implementation=register_attention())
    copy_weights(model, twin)
    return skip_unread(twin.requires_grad_(False).eval())


@torch.no_grad()
def copy_weights(source: PreTrainedModel, target: PreTrainedModel) -> None:
    """Overwrite `target`'s parameters with `source`'s, cast to its type. Both have the same architecture."""
    weights = dict(source.named_parameters())
    for name, parameter in target.named_parameters():
        parameter.copy_(weights[name])


def eos_ids(model: PreTrainedModel) -> tuple[int, ...]:
    """The token ids that end a turn, from the generation settings or the configuration."""
    for owner in (model.generation_config, model.config):
        found = getattr(owner, "eos_token_id", None)
        if found is not None:
            return tuple(found) if isinstance(found, (list, tuple)) else (int(found),)
    raise UserError(f"model {model.config.model_type}: no eos_token_id; add it to generation_config.json")


def weights_hash(model: torch.nn.Module) -> str:
    """Eight hex digits of the SHA-256 over all parameters, in their order."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()[:8]


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """The model library draws bars for every load and save; ours take milliseconds."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def first_line(error: BaseException) -> str:
    """An exception's message cut to its first line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _require_full_attention(config: PretrainedConfig, spec: str) -> None:
    other = sorted({kind for kind in getattr(config, "layer_types", None) or () if kind != "full_attention"})
    if other:
        raise UserError(f"model {spec!r}: has {', '.join(other)} layers; only full-attention models are supported")
