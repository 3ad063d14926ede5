"""A model of random weights learns a step in a talk: no tools, no shop, the same run as any other."""

import json

import pytest

pytest.importorskip("torch")

from transformers import Qwen3Config

from intraskill.backends.embedded.models import build_model
from intraskill.backends.embedded.tiny import build_tokenizer
from intraskill.cli import main
from intraskill.evaluate.export import export_public
from intraskill.skills.bank import Bank, Chunk, write_bank
from intraskill.storage.documents import read_json
from intraskill.storage.jsonl import JsonlLog

LARGEST, BUDGET = 33, 8


def write_model(folder):
    """A model that says anything, digits more often than not being among it."""
    tokenizer = build_tokenizer([f"{number} " * 3 for number in range(100)], 400, ())
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    build_model(config, seed=1).save_pretrained(folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    write_model(runs / "model")
    write_bank(runs / "bank.json", Bank((Chunk("halve", 1, "Halve", "always", ("name the middle",)),)))
    settings = {
        "name": "talk",
        "bank": str(runs / "bank.json"),
        "rounds": 1,
        "steps_per_round": 1,
        "environment": {"family": "guess", "largest": LARGEST, "max_steps": BUDGET},
        "policy": {"model": str(runs / "model"), "sampling": {"max_tokens": 24}},
        "rollout": {"group_size": 8, "generated_groups": 8, "kept_groups": 8},
        "gate": {"tasks": 8},
        "analyst": {"kind": "none"},
        "report": {"wandb": "disabled"},
    }
    (runs / "talk.yaml").write_text(json.dumps(settings))
    with pytest.raises(SystemExit) as ended:
        main(["train", str(runs / "talk.yaml"), "--runs-dir", str(runs), "--quiet"])
    assert ended.value.code == 0
    return runs / "talk"


def test_a_step_moves_the_weights(finished):
    assert read_json(finished / "state.json")["finished"]
    rows = JsonlLog(finished / "metrics.jsonl").read()
    (step,) = [row for row in rows if row["kind"] == "step"]
    assert 0 < step["rollout/guess/success_rate"] < 1
    assert step["rollout/guess/trajectory_count"] == 64
    assert not any("shop" in key for row in rows for key in row)
    updates = [row for row in rows if row["kind"] == "update"]
    assert len(updates) == 2
    assert any(row["train/grad_norm"] > 0 for row in updates)
    assert (finished / "checkpoints" / "step-0001" / "model.safetensors").exists()


def test_replies_are_words_and_their_tokens_are_trained_on(finished):
    episodes = JsonlLog(finished / "rounds" / "round-000" / "episodes.jsonl").read()
    roles = {message["role"] for episode in episodes for message in episode["conversation"]}
    assert roles == {"system", "user", "assistant"}
    tokens = JsonlLog(finished / "rounds" / "round-000" / "tokens.jsonl").read()
    sampled = [sum(sum(segment["loss_mask"]) for segment in record["segments"]) for record in tokens]
    assert len(sampled) == 64
    assert min(sampled) > 0
    assert all(len(record["segments"]) == 1 for record in tokens)


def test_the_report_and_the_exports_speak_of_the_talk(finished, tmp_path):
    page = (finished / "report" / "index.html").read_text()
    assert ">guess<" in page
    export_public(finished, tmp_path)
    (row, *_) = JsonlLog(tmp_path / "episodes.jsonl").read()
    assert {"speed", "reward", "success"} <= row.keys()
    assert "r_strict" not in row
    actions = {turn["action"] for turn in JsonlLog(tmp_path / "turns.jsonl").read()}
    assert actions <= {"action", None}
