"""Status and tables say where a run stands."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from intraskill.cli import main
from intraskill.core.errors import StateCorrupted, UserError
from intraskill.report.status import render_status, status
from intraskill.report.tables import round_table
from intraskill.storage.documents import read_json, write_json_atomic
from intraskill.storage.lock import RunLock


def shown(renderable: object, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    return console.file.getvalue()


def test_a_finished_run(make_run: Callable) -> None:
    report = status(make_run().run(4).path)
    assert report["state"] == "finished"
    assert (report["step"], report["total_steps"], report["rounds_closed"]) == (20, 20, 4)
    assert report["validation_first"]["skill_free"] == 0.3
    assert report["validation_last"]["skill_free"] == 0.7
    assert report["bank"] == ["brand-first", "recent-material", "colour-click", "budget-size"]
    text = render_status(report)
    assert "70.0 % without skills at step 20 (+40.0 points since the start), 79.2 % with the full bank" in text


def test_a_fresh_run_and_one_cut_short(make_run: Callable) -> None:
    builder = make_run()
    builder.start()
    report = status(builder.path)
    assert report["state"] == "not started"
    assert report["validation_last"] is None
    assert "not measured yet" in render_status(report)
    builder.gate(-1, 0)
    builder.open_round(0)
    builder.step(0, 1)
    report = status(builder.path)
    assert (report["state"], report["step"]) == ("stopped", 1)
    assert "since the start" not in render_status(report)
    assert f"intraskill report {builder.path}" in render_status(report)


def test_a_running_one_names_its_process(make_run: Callable) -> None:
    builder = make_run().run(1)
    with RunLock(builder.path):
        report = status(builder.path)
        assert (report["state"], report["process"]) == ("running", os.getpid())
        assert f"running (process {os.getpid()})" in render_status(report)


def test_the_table_has_a_row_per_round_and_the_closing_gate(make_run: Callable) -> None:
    builder = make_run().run(2)
    text = shown(round_table(builder.path, -1))
    assert "be-polite, hurry" in text
    assert "left" in text
    assert "gate of the initial bank: what a chunk adds to the mean reward, 400 paired tasks" in text
    assert "gate of" not in shown(round_table(builder.path))
    rows = shown(round_table(builder.path)).rsplit("─", 1)[1].splitlines()
    assert [row.split()[0] for row in rows if row.strip()] == ["start", "0", "1"]


def test_nothing_is_cut_on_a_terminal_of_80_columns(make_run: Callable) -> None:
    builder = make_run().run(1)
    path = builder.path / "rounds/round-000/gate/contributions.json"
    document = read_json(path)
    old = document["contributions"][0]
    new = {
        "kind": "candidate",
        "operation": "REWRITE",
        "intervention_id": "online-0123456789abcdef",
        "title": "Another",
    }
    document["contributions"].append({**old, **new, "title": "Another", "status": "rewrite_loser"})
    write_json_atomic(path, document)
    text = shown(round_table(builder.path, 0), width=80)
    assert "…" not in text
    for whole in ("training", "greedy", "masked", "dropped", "be-polite,", "brand-first (new text)", "turned down"):
        assert whole in text
    assert "brand-first (new text): Another" in text


def test_markup_in_names_is_shown_as_it_is(make_run: Callable) -> None:
    builder = make_run("demo")
    builder.run(1)
    path = builder.path / "gate_a" / "contributions.json"
    document = read_json(path)
    document["contributions"][0]["intervention_id"] = "[red]x[/red]"
    write_json_atomic(path, document)
    assert "[red]x[/red]" in shown(round_table(builder.path, -1))


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    return int(stopped.value.code or 0)


def test_the_commands_print_and_write(make_run: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_run().run(1).path
    assert command("status", str(path)) == 0
    assert capsys.readouterr().out == render_status(status(path)) + "\n"
    assert command("status", str(path), "--json") == 0
    assert json.loads(capsys.readouterr().out) == status(path)
    assert command("report", str(path)) == 0
    assert capsys.readouterr().out == f"{path / 'report' / 'index.html'}\n"
    assert status(path)["report"] == str(path / "report" / "index.html")


@pytest.mark.parametrize("name", ["status", "report"])
def test_a_folder_that_is_no_run_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert command(name, str(tmp_path)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "no run.json" in captured.err


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("state.json", '{"schema": "intraskill-state-v1", "step": "x"}', "step: expected a whole number, got a text"),
        ("run.json", '{"schema": "intraskill-run-v1", "settings": [1]}', "settings: expected an object, got a list"),
        ("metrics.jsonl", '{"kind": "step", "step": 1}\n', "metrics.jsonl:1: round is missing"),
    ],
)
def test_a_file_edited_by_hand_is_named(make_run: Callable, file: str, content: str, message: str) -> None:
    builder = make_run()
    builder.start()
    (builder.path / file).write_text(content)
    with pytest.raises(StateCorrupted, match=message):
        status(builder.path)


COMMANDS = (("status",), ("report",), ("bank", "history"), ("bank", "show"), ("bank", "diff"))
READERS = {
    "metrics.jsonl": {"status", "report"},
    "state.json": {"status", "report"},
    "ledger.jsonl": {"bank history"},
    "gate_a/contributions.json": {"status", "report", "bank history"},
    "gate_a/selected_skill_bank.json": {"status", "report"},
    "rounds/round-000/skill_bank.json": {"status", "report", "bank show", "bank diff"},
    "rounds/round-000/curriculum.json": {"status", "report"},
}
DAMAGE = (
    b"",
    b"{",
    b"[]",
    b"{}",
    b"[[1]]\n{}\n",
    b"\xff\xfe",
    b'{"schema": 3, "chunks": [1], "contributions": [1]}',
    None,
)


@pytest.mark.parametrize("file", READERS)
def test_a_damaged_file_is_one_line_that_names_it(
    make_run: Callable, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    path = make_run().run(1).path / file
    for damage in DAMAGE:
        if path.exists():
            path.unlink()
        path.mkdir() if damage is None else path.write_bytes(damage)
        for words in COMMANDS:
            if " ".join(words) not in READERS[file] or (
                path.suffix == ".jsonl" and damage in (b"", b"{", b"\xff\xfe", b"[]")
            ):
                continue  # an empty log, or one whose last line is torn, is a log
            assert command(*words, str(path.parents[len(Path(file).parts) - 1])) == 2, (words, damage)
            captured = capsys.readouterr()
            assert (captured.out, captured.err.count("\n")) == ("", 1)
            assert path.name in captured.err
    path.rmdir()


@pytest.mark.parametrize(
    ("file", "keys", "value"),
    [
        ("gate_a/contributions.json", ("contributions", 0, "coefficient"), "x"),
        ("gate_a/contributions.json", ("step",), []),
        ("rounds/round-000/curriculum.json", ("chunks", 0, "inclusion_probability"), 7),
        ("rounds/round-000/skill_bank.json", ("chunks", 0, "skill_id"), None),
    ],
)
def test_one_edited_value_is_named(
    make_run: Callable, capsys: pytest.CaptureFixture[str], file: str, keys: tuple, value: object
) -> None:
    run = make_run().run(1).path
    document = read_json(run / file)
    inner = document
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    write_json_atomic(run / file, document)
    for name in ("status", "report"):
        assert command(name, str(run)) == 2
        captured = capsys.readouterr()
        assert (captured.out, captured.err.count("\n")) == ("", 1)
        assert Path(file).name in captured.err
        assert str(keys[-1]) in captured.err


def test_a_record_that_is_no_trace_is_named(make_run: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run().run(1).path
    for gate in (run / "gate_a", run / "rounds" / "round-000" / "gate"):
        (gate / "bare.jsonl").write_text('{"job": {}, "final": []}\n')
    assert command("report", str(run)) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "bare.jsonl: a record is no episode trace" in captured.err


def test_a_folder_in_place_of_the_lock_is_no_process(make_run: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run().run(1).path
    (run / ".lock").mkdir()
    assert status(run)["process"] is None
    with pytest.raises(UserError, match=r"\.lock: a folder stands in its place"), RunLock(run):
        pass


def test_an_effect_without_its_standard_errors_is_shown_all_the_same(make_run: Callable) -> None:
    run = make_run().run(1).path
    path = run / "gate_a" / "contributions.json"
    document = read_json(path)
    for key in ("standard_error", "standard_error_hc3", "title", "status"):
        del document["contributions"][0][key]
    write_json_atomic(path, document)
    assert command("report", str(run)) == 0
