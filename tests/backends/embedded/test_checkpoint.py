"""Checkpoints continue training bit for bit, load as plain models, and never exist half-written."""

from __future__ import annotations

import copy
import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from intraskill.backends.embedded.checkpoint import load_checkpoint, save_checkpoint
from intraskill.backends.embedded.models import load_model
from intraskill.backends.embedded.trainer import Trainer
from intraskill.core.errors import StateCorrupted, UserError
from intraskill.core.records import Segment
from intraskill.settings.models import TrainSettings

MakeGroup = Callable[..., list[Segment]]
SETTINGS = TrainSettings(updates_per_step=1, lr=1e-3, warmup_updates=3, weight_decay=0.1)


def test_one_update_saved_and_two_more_equal_three(
    model: PreTrainedModel, make_group: MakeGroup, tmp_path: Path
) -> None:
    groups = [make_group(i, i) for i in range(3)]
    straight = Trainer(copy.deepcopy(model), SETTINGS)
    expected = [straight.step([group]) for group in groups]

    before = Trainer(copy.deepcopy(model), SETTINGS)
    got = [before.step([groups[0]])]
    save_checkpoint(tmp_path / "step-1", before, None, {"step": 1})
    after = Trainer(copy.deepcopy(model), SETTINGS)
    assert load_checkpoint(tmp_path / "step-1", after) == {"step": 1}
    got += [after.step([group]) for group in groups[1:]]

    assert got == expected
    for one, two in zip(straight.model.parameters(), after.model.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_checkpoint_is_a_plain_model_directory(model: PreTrainedModel, tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text("{}")
    (tokenizer / "chat_template.jinja").write_text("{{ messages }}")
    (tokenizer / "config.json").write_text("not this one")
    save_checkpoint(tmp_path / "saved", Trainer(model, SETTINGS), tokenizer, {})
    assert (tmp_path / "saved" / "tokenizer.json").read_text() == "{}"
    assert (tmp_path / "saved" / "chat_template.jinja").is_file()
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    ids = torch.tensor([[4, 9, 2, 33]])
    ours = load_model(str(tmp_path / "saved"))
    with torch.no_grad():
        torch.testing.assert_close(plain(ids).logits, ours(input_ids=ids, use_cache=False).logits, atol=1e-4, rtol=1e-4)


def test_saving_again_replaces_and_leaves_nothing_behind(qwen: PreTrainedModel, tmp_path: Path) -> None:
    trainer = Trainer(qwen, SETTINGS)
    save_checkpoint(tmp_path / "a", trainer, None, {"n": 1})
    (tmp_path / ".a.0123.tmp").mkdir()  # a save that was killed half-way
    save_checkpoint(tmp_path / "a", trainer, None, {"n": 2})
    assert load_checkpoint(tmp_path / "a", trainer) == {"n": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_failed_save_keeps_the_old_checkpoint(
    qwen: PreTrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(qwen, SETTINGS)
    save_checkpoint(tmp_path / "a", trainer, None, {"n": 1})

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UserError, match="No space left"):
        save_checkpoint(tmp_path / "a", trainer, None, {"n": 2})
    monkeypatch.undo()
    assert load_checkpoint(tmp_path / "a", trainer) == {"n": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("written", ["weights", "optimizer"])
def test_a_disk_that_takes_no_more_is_one_line(
    qwen: PreTrainedModel, make_group: MakeGroup, tmp_path: Path, written: str
) -> None:
    """A limit on file sizes fails like a full disk, in the libraries that write the files."""
    trainer = Trainer(copy.deepcopy(qwen), SETTINGS)
    trainer.step([make_group(0, 0)])
    save_checkpoint(tmp_path / "step", trainer, None, {"step": 1})
    weights, optimizer = ((tmp_path / "step" / name).stat().st_size for name in ("model.safetensors", "optimizer.pt"))
    assert weights < optimizer
    most = {"weights": weights // 2, "optimizer": (weights + optimizer) // 2}[written]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        with pytest.raises(UserError, match=r"cannot be written: .*; free space"):
            save_checkpoint(tmp_path / "step", trainer, None, {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert load_checkpoint(tmp_path / "step", trainer) == {"step": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["step"]


def test_incomplete_or_newer_checkpoints_are_refused(qwen: PreTrainedModel, tmp_path: Path) -> None:
    trainer = Trainer(qwen, SETTINGS)
    with pytest.raises(StateCorrupted, match="cannot be read"):
        load_checkpoint(tmp_path / "missing", trainer)
    save_checkpoint(tmp_path / "a", trainer, None, {})
    (tmp_path / "a" / "state.json").write_text(json.dumps({"schema": "intraskill-checkpoint-v9", "extra": {}}))
    with pytest.raises(StateCorrupted, match="v9"):
        load_checkpoint(tmp_path / "a", trainer)
    save_checkpoint(tmp_path / "a", trainer, None, {})
    (tmp_path / "a" / "optimizer.pt").write_bytes(b"torn")
    with pytest.raises(StateCorrupted, match="cannot be read"):
        load_checkpoint(tmp_path / "a", trainer)
