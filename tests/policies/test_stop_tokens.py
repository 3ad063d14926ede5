"""A reply ends at whatever the model's directory calls its end, and none of these tokens is part of what was said."""

import json
from pathlib import Path

import pytest

from intraskill.core.errors import UserError
from intraskill.policies.chat import ChatTemplate, load_chat
from intraskill.policies.stop_tokens import model_stop_ids


def write(directory: Path, **files: object) -> Path:
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    return directory


def test_the_generation_settings_come_before_the_configuration(tmp_path):
    assert model_stop_ids(tmp_path) == frozenset()
    write(tmp_path, config={"eos_token_id": 4})
    assert model_stop_ids(tmp_path) == {4}
    write(tmp_path, generation_config={"eos_token_id": [5, 6]})
    assert model_stop_ids(tmp_path) == {5, 6}
    write(tmp_path, generation_config={"eos_token_id": None})
    assert model_stop_ids(tmp_path) == {4}


@pytest.mark.parametrize("found", ["<|im_end|>", [1, "2"], -1, True, 2.0])
def test_what_is_no_token_id_is_refused_by_name(tmp_path, found):
    write(tmp_path, generation_config={"eos_token_id": found})
    with pytest.raises(UserError, match=r"generation_config\.json: eos_token_id is .*; give one token id"):
        model_stop_ids(tmp_path)


def test_the_templates_own_end_stops_a_model_whose_settings_name_another(tmp_path, tokenizer):
    tokenizer.save_pretrained(tmp_path)
    other = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    write(tmp_path, generation_config={"eos_token_id": other})
    chat = load_chat(tmp_path)
    assert chat.stop_ids == {other, chat.end_of_turn_id, tokenizer.eos_token_id}
    assert chat.end_of_turn == "<|im_end|>"


def test_no_stop_token_stays_in_the_text(tokenizer):
    other = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    chat = ChatTemplate(tokenizer, (other,))
    for end in (other, chat.end_of_turn_id):
        assert chat.decode((*chat.encode("an oak shelf"), end)) == "an oak shelf"
    assert chat.decode((*chat.encode("oak"), other, chat.end_of_turn_id)) == "oak<|endoftext|>"
