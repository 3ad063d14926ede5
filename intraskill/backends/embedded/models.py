"""Loading a policy: any Hugging Face causal LM directory whose layers all attend, to everything or within a window.

`builtin:tiny` names the warm-up checkpoint that ships with the package. Weights are loaded in float32 (the master
copy); the sampler keeps its own copy in its own type.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING_NAMES
from transformers.utils import logging

from intraskill.assets import model_directory
from intraskill.backends.embedded.attention import register_attention
from intraskill.backends.embedded.unread_tokens import skip_unread
from intraskill.core.errors import UserError

ATTENTION_LAYERS = ("full_attention", "sliding_attention")


def load_model(spec: str) -> PreTrainedModel:
    """The causal LM of `spec`, float32, ready for packed attention. Raises `UserError` when it cannot be used."""
    directory = model_directory(spec)
    file = directory / "config.json"
    try:
        config = AutoConfig.from_pretrained(directory)
    except Exception as error:  # the library checks it with error classes of its own
        raise UserError(
            f"model {spec!r}: config.json cannot be read: {first_line(error)}; give a Hugging Face model directory"
        ) from error
    _require_causal(config, str(file))
    _require_attention(config, spec)
    try:
        with no_progress_bars():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                directory,
                config=config,
                dtype=torch.float32,
                attn_implementation=register_attention(),
                output_loading_info=True,
            )
    except (ValueError, OSError, RuntimeError, AssertionError, TypeError, LookupError, SafetensorError) as error:
        raise UserError(
            f"model {spec!r}: weights cannot be loaded: {first_line(error)}; fetch or save the directory again"
        ) from error
    model: PreTrainedModel = loaded[0]
    if missing := sorted(loaded[1]["missing_keys"]):
        raise UserError(
            f"model {spec!r}: its weights lack {missing[0]} ({len(missing)} in all), which {file} asks for; "
            "fetch or save the directory again"
        )
    if (name := broken_weight(model)) is not None:
        raise UserError(
            f"model {spec!r}: {name} holds numbers that are not finite; fetch or save the directory again, or train "
            "from an earlier checkpoint"
        )
    _require_packed_attention(model, str(file))
    return skip_unread(model)


def build_model(config: PretrainedConfig, seed: int) -> PreTrainedModel:
    """A randomly initialised causal LM of this shape (the caller's random state is left alone)."""
    _require_attention(config, config.model_type)
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


@torch.no_grad()
def broken_weight(model: torch.nn.Module) -> str | None:
    """The first parameter that holds NaN or an infinite number."""
    found = (name for name, parameter in model.named_parameters() if not torch.isfinite(parameter).all())
    return next(found, None)


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


def _require_attention(config: PretrainedConfig, spec: str) -> None:
    other = sorted({kind for kind in getattr(config, "layer_types", None) or () if kind not in ATTENTION_LAYERS})
    if other:
        raise UserError(
            f"model {spec!r}: has {', '.join(other)} layers; only full and sliding attention are supported, "
            "give a model such as Qwen3, Llama or Mistral"
        )


def _require_causal(config: PretrainedConfig, file: str) -> None:
    """Refuse what does not write from left to right: encoders, and decoders that need an encoder's input."""
    kind = config.model_type
    encoder = kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or config.is_encoder_decoder or encoder:
        raise UserError(f"{file}: model_type {kind} is no causal language model; give a model such as Qwen3 or Llama")


@torch.no_grad()
def _require_packed_attention(model: PreTrainedModel, file: str) -> None:
    """Refuse an architecture whose layers do not all go through the attention function it was loaded with."""
    probe, kind = _Probe(), model.config.model_type
    positions = torch.arange(4)[None]
    try:
        read = model(
            input_ids=positions * 0, position_ids=positions, use_cache=False, logits_to_keep=probe.keep, layout=probe
        ).logits.shape[1]
    except (TypeError, AttributeError, RuntimeError, ValueError, LookupError) as error:
        raise UserError(
            f"{file}: model_type {kind} does not run with packed attention ({first_line(error)}); "
            "give a model such as Qwen3 or Llama"
        ) from error
    own = model.config.num_hidden_layers - probe.calls
    problem = ""
    if own:
        problem = f"has an attention of its own in {own} layers"
    elif read != len(probe.keep):
        problem = "computes logits that were not asked for"
    elif silent := _layers_silent_about_their_window(model.config, probe.windows):
        problem = f"has a sliding window that layer {silent[0]} does not tell its attention of"
    if problem:
        raise UserError(f"{file}: model_type {kind} {problem}; give a model such as Qwen3 or Llama")


def _layers_silent_about_their_window(config: PretrainedConfig, told: dict[int, int | None]) -> list[int]:
    """Layers that have a sliding window by the configuration but did not say so to the attention function."""
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        named = getattr(config, "sliding_window", None) is not None and getattr(config, "use_sliding_window", True)
        kinds = ["sliding_attention" if named else "full_attention"] * config.num_hidden_layers
    return [layer for layer, kind in enumerate(kinds) if kind == "sliding_attention" and told.get(layer) is None]


class _Probe:
    """An attention layout that notes which layers ask it, and the window each has."""

    def __init__(self) -> None:
        self.keep = torch.tensor([1, 3])
        self.calls = 0
        self.windows: dict[int, int | None] = {}

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None) -> Tensor:
        self.calls += 1
        self.windows[layer] = window
        return value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)
