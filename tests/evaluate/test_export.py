import json
from pathlib import Path

import pytest

from intraskill.cli import main
from intraskill.core.errors import UserError
from intraskill.core.records import EpisodeJob
from intraskill.evaluate.export import _write_table, conversation_sha256, export_public, export_sft
from intraskill.storage.store import JsonlLog


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def words(value) -> list[str]:
    """Every text in a JSON value."""
    if isinstance(value, dict):
        return [text for part in value.values() for text in words(part)]
    if isinstance(value, list):
        return [text for part in value for text in words(part)]
    return [value] if isinstance(value, str) else []


@pytest.fixture
def run(evaluate, care_bank):
    return evaluate(split="train", skills={"path": str(care_bank)}, repeats=8, sample_size=10)[0]


CODES = {"traces", "train", "purchase", "action_limit", "generation_length", "search", "click", "stop"}


def test_public_tables_hold_numbers_and_codes_only(run, tmp_path, read_traces):
    report = export_public(run, tmp_path / "out")
    episodes, turns = rows(tmp_path / "out" / "episodes.jsonl"), rows(tmp_path / "out" / "turns.jsonl")
    traces = read_traces(run)
    assert (report["episodes"], report["turns"]) == (len(episodes), len(turns))
    assert (len(episodes), len(turns)) == (80, sum(len(trace["steps"]) for trace in traces))
    answers = [step["environment"] for trace in traces for step in trace["steps"] if step["environment"]]
    feedback = {answer["action_feedback"]["reason"] for answer in answers}
    assert set(words([*episodes, *turns])) <= CODES | feedback | {str(trace["job"]["task_id"]) for trace in traces}
    assert [e["reward"] for e in episodes] == [t["final"]["reward"] for t in traces]


def test_nothing_private_can_be_found_in_a_public_export(run, tmp_path, read_traces):
    export_public(run, tmp_path)
    text = (tmp_path / "episodes.jsonl").read_text() + (tmp_path / "turns.jsonl").read_text()
    for trace in read_traces(run):
        assert trace["reset"]["task_instruction"] not in text
        assert trace["final"]["goal"]["asin"] not in text
        for step in trace["steps"]:
            assert not step["action"] or step["action"] not in text
            assert step["model"]["text"] not in text


def test_a_trace_that_gains_a_field_does_not_leak_it(run, tmp_path):
    log = JsonlLog(run / "traces.jsonl")
    log.path.write_text("".join(json.dumps({**row, "secret": "canary", "job": {**row["job"], "who": "canary"}}) + "\n"
                                for row in log.read()))  # fmt: skip
    export_public(run, tmp_path)
    assert "canary" not in (tmp_path / "episodes.jsonl").read_text() + (tmp_path / "turns.jsonl").read_text()


def test_sft_keeps_successes_once_each(run, tmp_path, read_traces):
    report = export_sft(run, tmp_path)
    kept, traces = rows(tmp_path / "sft.jsonl"), read_traces(run)
    good = [trace for trace in traces if trace["final"]["success"]]
    distinct = {conversation_sha256(trace["conversation"]) for trace in good}
    assert report["kept"] == len(kept) == len(distinct) > 0
    assert report["read"] == report["kept"] + sum(report["dropped"].values()) == 80
    assert report["dropped"]["duplicate"] == len(good) - len(distinct) > 0
    assert report["dropped"]["not_successful"] == len(traces) - len(good)
    assert json.loads((tmp_path / "report.json").read_text()) == report


def test_an_sft_record_is_a_chat_with_tools_and_where_it_came_from(run, tmp_path):
    export_sft(run, tmp_path)
    record = rows(tmp_path / "sft.jsonl")[0]
    assert [m["role"] for m in record["messages"][:3]] == ["system", "user", "assistant"]
    assert record["messages"][-1]["role"] == "assistant"
    assert [tool["function"]["name"] for tool in record["tools"]] == ["search", "click"]
    provenance = record["provenance"]
    assert provenance["skill_ids"] == ["care"]
    assert provenance["episode_id"] == EpisodeJob(provenance["task_id"], provenance["sample_id"], 0, "").episode_id
    assert provenance["bank_sha256"]
    assert "goal" not in json.dumps(record)


def test_tools_that_change_stand_with_the_replies_given_under_them(evaluate, care_bank, tmp_path, read_traces):
    policy = {"base_url": "http://127.0.0.1:9/v1", "model": "shopper", "attempts": 1, "tool_schema": "dynamic"}
    path, _ = evaluate(split="train", sample_size=10, repeats=8, policy=policy, skills={"path": str(care_bank)})
    report, records = export_sft(path, tmp_path), rows(tmp_path / "sft.jsonl")
    assert report["records"] == len(records) > report["kept"] > 0
    kept = {}
    for record in records:
        kept.setdefault(record["provenance"]["episode_id"], []).append(record)
    traces = {t["episode_id"]: t for t in read_traces(path)}
    for name, parts in kept.items():
        trace, shown = traces[name], None
        offered = [shown := step.get("tools", shown) for step in trace["steps"]]
        learnt = []
        for part in parts:
            said = [i for i, message in enumerate(part["messages"]) if message["role"] == "assistant"]
            assert part["messages"] == trace["conversation"][: len(part["messages"])]
            learnt += [part["tools"]] * sum(i >= part["first_reply"] for i in said)
        assert learnt == offered, "every reply once, with the tools its turn was offered"


def test_conversations_that_differ_in_call_ids_only_are_the_same():
    def said(call_id, value):
        function = {"name": "click", "arguments": json.dumps({"value": value})}
        return [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": call_id, "function": function}]},
            {"role": "tool", "tool_call_id": call_id, "content": "y"},
        ]

    assert conversation_sha256(said("a", "1")) == conversation_sha256(said("b", "1"))
    assert conversation_sha256(said("a", "1")) != conversation_sha256(said("a", "2"))


def test_failed_episodes_are_counted_not_kept(evaluate, shopper, tmp_path):
    first = []

    def once(session, attempt):
        first[:] = first or [session]
        return session == first[0] and attempt == 1

    path, _ = evaluate(shopper(once), split="train", sample_size=8)
    report = export_sft(path, tmp_path)
    assert (report["read"], report["dropped"]["failed"]) == (9, 1)


@pytest.mark.parametrize("split", ["val", "test"])
def test_episodes_that_judge_are_not_for_training(evaluate, tmp_path, split):
    path, _ = evaluate(split=split, final_test=split == "test", sample_size=8)
    with pytest.raises(UserError, match=f"{split} split"):
        export_sft(path, tmp_path)
    assert not list(tmp_path.glob("*sft*"))
    assert export_public(path, tmp_path)["episodes"] == 8


def test_the_command_needs_one_kind_and_writes_into_the_run(run, capsys):
    for words_, code in (([], 2), (["--public", "--sft"], 2), (["--public"], 0), (["--sft"], 0)):
        with pytest.raises(SystemExit) as caught:
            main(["traces", "export", str(run), *words_])
        assert caught.value.code == code
    captured = capsys.readouterr()
    assert json.loads(captured.out.partition("}\n{")[0] + "}")["kind"] == "public"
    assert f"files are in {run / 'export' / 'public'}\n" in captured.err
    assert (run / "export" / "public" / "episodes.jsonl").exists()
    assert (run / "export" / "sft" / "report.json").exists()


def test_a_folder_without_traces_is_named(tmp_path):
    with pytest.raises(UserError, match="holds no traces"):
        export_public(tmp_path, tmp_path / "out")


def test_parquet_holds_the_same_rows(run, tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("intraskill.evaluate.export._PARQUET_ROWS", 7)
    export_public(run, tmp_path)
    export_sft(run, tmp_path)
    for name in ("episodes", "turns", "sft"):
        table = parquet.read_table(tmp_path / f"{name}.parquet")
        assert table.num_rows == len(rows(tmp_path / f"{name}.jsonl"))
    first, stored = (
        rows(tmp_path / "sft.jsonl")[0],
        parquet.read_table(tmp_path / "sft.parquet").slice(0, 1).to_pylist()[0],
    )
    assert json.loads(stored["tools"]) == first["tools"]
    assert [message["content"] for message in stored["messages"]] == [m.get("content") for m in first["messages"]]
    assert parquet.read_table(tmp_path / "episodes.parquet").column("reward").to_pylist() == [
        row["reward"] for row in rows(tmp_path / "episodes.jsonl")
    ]


def test_parquet_columns_keep_their_types(tmp_path, monkeypatch):
    """A name that looks like a date stays a name; lists and texts that start empty still find their type."""
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("intraskill.evaluate.export._PARQUET_ROWS", 2)
    written = [{"checkpoint_id": "2026-01-01", "skill_ids": [], "action": None, "seconds": 1} for _ in range(3)]
    written += [{"checkpoint_id": "2026-01-02", "skill_ids": ["a"], "action": "click", "seconds": 0.5}]
    assert _write_table(tmp_path / "rows", written) == 4
    assert parquet.read_table(tmp_path / "rows.parquet").to_pylist() == written
