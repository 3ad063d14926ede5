"""Commands on terminals that can print little."""

import io
import json
import os
import subprocess
import sys

import pytest
from shopsimulator.cli import main as shop

from intraskill.cli import main
from intraskill.skills.bank import Bank, Chunk, write_bank

LIMITED = ("ascii", "latin-1", "cp1252")


@pytest.fixture
def command(monkeypatch):
    """command(main, encoding, *words) -> exit code, and the bytes on standard output and standard error."""

    def run(main, encoding, *words):
        streams = {}
        for name, errors in (("stdout", "strict"), ("stderr", "backslashreplace")):
            streams[name] = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors)
            monkeypatch.setattr(sys, name, streams[name])
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        for stream in streams.values():
            stream.flush()
        return ended.value.code, *(stream.buffer.getvalue() for stream in streams.values())

    return run


@pytest.fixture
def chinese(tmp_path):
    chunk = Chunk("橡木", 1, "先比较 🪑", "任务要求橡木时", ("搜索橡木", "点击第一个"), contribution=0.1)
    write_bank(tmp_path / "bank.json", Bank((chunk,)))
    return str(tmp_path / "bank.json")


@pytest.mark.parametrize("encoding", LIMITED)
def test_text_is_printed_with_escapes_for_what_the_terminal_lacks(command, chinese, encoding):
    code, out, err = command(main, encoding, "bank", "show", chinese)
    assert (code, err) == (0, b"")
    assert rb"\u6a61\u6728" in out
    assert rb"\U0001fa91" in out


@pytest.mark.parametrize("encoding", LIMITED)
def test_json_is_the_same_value_on_every_terminal(command, chinese, encoding):
    for words in (["bank", "show", chinese, "--json"], ["curriculum", "build", "--bank", chinese]):
        _, everywhere, _ = command(main, "utf-8", *words)
        code, here, err = command(main, encoding, *words)
        assert (code, err) == (0, b"")
        assert json.loads(here) == json.loads(everywhere)
        assert "橡木" in everywhere.decode()


def test_an_error_names_what_the_terminal_cannot_print(command):
    code, _, err = command(main, "ascii", "bank", "show", "没有.json")
    assert code == 2
    (line,) = err.splitlines()
    assert rb"\u6ca1\u6709.json" in line


@pytest.mark.parametrize("encoding", LIMITED)
def test_the_shops_command_too(command, encoding):
    words = ["budget", "想买一个橡木架，预算不超过40元"]
    _, everywhere, _ = command(shop, "utf-8", *words)
    code, here, err = command(shop, encoding, *words)
    assert (code, err) == (0, b"")
    assert json.loads(here) == json.loads(everywhere)
    assert json.loads(here)["price_upper"] == 40


def test_progress_on_a_terminal_that_prints_ascii_alone(tmp_path):
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    script = """
from intraskill.core.progress import Reporter
reporter = Reporter()
assert reporter.console.is_terminal
with reporter.bar("\u6a61\u6728", 2) as bar:
    bar.advance(1, "\u4e70")
reporter.say("\u6a61\u6728")
"""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "TERM": "xterm"}
    run = subprocess.run([sys.executable, "-c", script], stderr=follower, env=environment, cwd=tmp_path, timeout=100)
    os.close(follower)
    shown = os.read(leader, 1 << 16)
    os.close(leader)
    assert run.returncode == 0, shown
    assert rb"\u6a61\u6728" in shown
