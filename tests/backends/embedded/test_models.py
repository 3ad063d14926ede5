"""Loading: what is refused, and what a copy promises."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, Gemma2Config, PreTrainedModel, XLNetConfig

from intraskill.backends.embedded.models import _Probe, build_model, copy_model, load_model
from intraskill.core.errors import UserError


def test_a_missing_directory_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config.json"):
        load_model(str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"builtin:nothing"):
        load_model("builtin:nothing")


def test_a_broken_config_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"config.json cannot be read"):
        load_model(str(tmp_path))


def test_missing_weights_are_a_user_error(tmp_path: Path, qwen: PreTrainedModel) -> None:
    qwen.config.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"weights cannot be loaded"):
        load_model(str(tmp_path))


def test_layers_without_attention_are_refused_by_name(qwen: PreTrainedModel) -> None:
    config = copy.deepcopy(qwen.config)
    config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(UserError, match=r"has linear_attention layers"):
        build_model(config, 0)


def test_a_model_that_caps_its_attention_scores_is_refused_by_name(tmp_path: Path) -> None:
    shape = {"vocab_size": 20, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "head_dim": 8}
    config = Gemma2Config(**shape, num_attention_heads=2, num_key_value_heads=1, pad_token_id=0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"model_type gemma2 does not run .*ask for softcap"):
        load_model(str(tmp_path))


def test_a_window_the_layers_keep_to_themselves_is_refused(
    tmp_path: Path, tiny: Callable[[str], PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny("mistral").save_pretrained(tmp_path)
    load_model(str(tmp_path))
    monkeypatch.setattr(_Probe, "attend", _deaf(_Probe.attend))
    with pytest.raises(UserError, match=r"model_type mistral has a sliding window that layer 0 does not tell"):
        load_model(str(tmp_path))


def _deaf(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """As if the layers had not said how far they look."""
    return lambda probe, layer, query, key, value, window: attend(probe, layer, query, key, value, None)


@pytest.mark.parametrize("architecture", ["mistral", "phi3", "qwen3-mixed"])
def test_a_window_survives_saving_loading_and_copying(
    tmp_path: Path, tiny: Callable[[str], PreTrainedModel], architecture: str
) -> None:
    model = tiny(architecture)
    model.save_pretrained(tmp_path)
    ids = torch.randint(2, 97, (1, 24), generator=torch.Generator().manual_seed(0))
    eager = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        wanted = eager(input_ids=ids, use_cache=False).logits
        for ours in (load_model(str(tmp_path)), copy_model(model, torch.float32)):
            torch.testing.assert_close(ours(input_ids=ids, use_cache=False).logits, wanted, atol=1e-4, rtol=1e-4)


def test_a_copy_is_frozen_and_in_its_own_type(model: PreTrainedModel) -> None:
    twin = copy_model(model, torch.bfloat16)
    assert all(p.dtype is torch.bfloat16 and not p.requires_grad for p in twin.parameters())
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours.to(torch.bfloat16), theirs)


def test_building_leaves_the_random_state_alone(qwen: PreTrainedModel) -> None:
    state = torch.get_rng_state()
    again = build_model(qwen.config, 3)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(qwen.parameters(), again.parameters(), strict=True))


def test_damaged_weights_and_shapes_are_user_errors(tmp_path: Path, qwen: PreTrainedModel) -> None:
    qwen.config.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"xx")
    with pytest.raises(UserError, match=r"weights cannot be loaded"):
        load_model(str(tmp_path))
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace('"hidden_size": ', '"hidden_size": -'))
    with pytest.raises(UserError, match=r"cannot be"):
        load_model(str(tmp_path))
    (tmp_path / "config.json").write_text(config.replace('"hidden_size": ', '"hidden_size": "x", "ignored": '))
    with pytest.raises(UserError, match=r"config.json cannot be read"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("kind", ["bert", "roberta", "bart", "t5"])
def test_what_does_not_write_from_left_to_right_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "config.json").write_text(f'{{"model_type": "{kind}"}}')
    with pytest.raises(UserError, match=rf"config\.json: model_type {kind} is no causal language model; give"):
        load_model(str(tmp_path))


def test_weights_that_are_not_all_there_are_named(tmp_path: Path, qwen: PreTrainedModel) -> None:
    qwen.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"lack model\.norm\.weight \(1 in all\)"):
        load_model(str(tmp_path))


def test_a_model_with_an_attention_of_its_own_is_refused(tmp_path: Path) -> None:
    config = XLNetConfig(vocab_size=20, d_model=8, n_layer=1, n_head=2, d_inner=8)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"config\.json: model_type xlnet has an attention of its own in 1 layers"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(tmp_path: Path, qwen: PreTrainedModel, value: float) -> None:
    with torch.no_grad():
        qwen.model.norm.weight[3] = value
    qwen.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"model\.norm\.weight holds numbers that are not finite"):
        load_model(str(tmp_path))
