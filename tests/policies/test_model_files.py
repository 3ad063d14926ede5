"""Whatever changes what is sampled changes the fingerprint; whatever does not, does not."""

from pathlib import Path

import pytest

from intraskill.core.errors import UserError
from intraskill.policies.model_files import model_files, model_sha256, weight_files

SAMPLED = (
    "config.json",
    "generation_config.json",
    "model-00001-of-00002.safetensors",
    "model.safetensors.index.json",
    "pytorch_model-00001-of-00002.bin",
    "pytorch_model.bin.index.json",
    "consolidated.pt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "additional_chat_templates/tools.jinja",
)
NOT_SAMPLED = (
    "README.md",
    "optimizer.pt",
    "scheduler.pt",
    "rng_state_0.pth",
    "training_args.bin",
    "trainer_state.json",
    "state.json",
    "original/consolidated.00.pth",
)


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in (*SAMPLED, *NOT_SAMPLED):
        write(tmp_path / name, name)
    return tmp_path


def test_every_file_with_a_part_in_sampling_is_named(directory):
    assert sorted(model_files(directory)) == sorted(SAMPLED)


@pytest.mark.parametrize("name", SAMPLED)
def test_an_exchanged_file_is_another_model_and_named(directory, name):
    before, hash_before = model_files(directory), model_sha256(directory)
    write(directory / name, "other")
    after = model_files(directory)
    assert [one for one in after if after[one] != before[one]] == [name]
    assert model_sha256(directory) != hash_before


@pytest.mark.parametrize("name", SAMPLED[1:])
def test_a_removed_file_is_another_model(directory, name):
    before = model_sha256(directory)
    (directory / name).unlink()
    assert model_sha256(directory) != before


@pytest.mark.parametrize("name", NOT_SAMPLED)
def test_what_training_leaves_beside_it_has_no_part(directory, name):
    before = model_sha256(directory)
    write(directory / name, "other")
    assert model_sha256(directory) == before


def test_a_directory_without_weights_is_refused(tmp_path):
    write(tmp_path / "config.json", "{}")
    write(tmp_path / "optimizer.pt", "moments")
    for look in (model_files, model_sha256, weight_files):
        with pytest.raises(UserError, match=r"no weights"):
            look(tmp_path)
