"""Logs survive kills, full disks and strange bytes."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intraskill.core.errors import StateCorrupted, UserError
from intraskill.storage.documents import write_json_atomic
from intraskill.storage.jsonl import JsonlLog


def test_a_really_full_device_is_reported(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full is a Linux device")
    log = JsonlLog(tmp_path / "metrics.jsonl")
    log.path.symlink_to("/dev/full")
    with pytest.raises(UserError, match="disk is full"):
        log.append({"step": 1})


def test_a_failed_append_leaves_no_part_of_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = JsonlLog(tmp_path / "metrics.jsonl")
    log.append({"step": 1})
    before = log.path.read_bytes()
    real_write, calls = os.write, []

    def half_then_full(descriptor: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) == 1:
            return real_write(descriptor, data[:5])
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", half_then_full)
    with pytest.raises(UserError, match="disk is full"):
        log.append({"step": 2})
    monkeypatch.undo()
    assert log.path.read_bytes() == before


records = st.dictionaries(
    st.text(max_size=5), st.none() | st.integers(-(2**53), 2**53) | st.text(max_size=20), max_size=4
)


@given(rows=st.lists(records, min_size=1, max_size=5), cut=st.integers(min_value=0, max_value=400))
def test_a_log_cut_at_any_byte_reads_as_a_prefix_and_takes_later_appends(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict], cut: int
) -> None:
    log = JsonlLog(tmp_path_factory.mktemp("log") / "log.jsonl")
    log.append_many(rows)
    whole = log.path.read_bytes()
    log.path.write_bytes(whole[: min(cut, len(whole))])
    survived = log.read()
    assert survived == rows[: len(survived)]
    log.append({"later": 1})
    assert log.read() == [*survived, {"later": 1}]


@pytest.mark.parametrize(
    "tail", [b'{"step": 3, "te', b'{"text": "\xff\xfe"}\n', b"\xe4\xb8", b"\x00\x00\x00\n", b"17\n"]
)
def test_a_torn_or_undecodable_last_line_is_skipped_and_kept_aside(tmp_path: Path, tail: bytes) -> None:
    log = JsonlLog(tmp_path / "log.jsonl")
    log.append_many([{"step": 1}, {"step": 2}])
    with log.path.open("ab") as file:
        file.write(tail)
    assert [row["step"] for row in log.read()] == [1, 2]
    log.append({"step": 3})
    assert [row["step"] for row in log.read()] == [1, 2, 3]
    assert tail.rstrip(b"\n") in (tmp_path / "log.jsonl.torn").read_bytes()


def test_a_torn_line_longer_than_one_read_block_is_cut_whole(tmp_path: Path) -> None:
    log = JsonlLog(tmp_path / "log.jsonl")
    log.append({"step": 1, "text": "x" * 200_000})
    with log.path.open("ab") as file:
        file.write(b'{"text": "' + b"y" * 200_000)
    log.append({"step": 2})
    assert [row["step"] for row in log.read()] == [1, 2]


def test_a_corrupt_middle_line_is_an_error_with_its_number(tmp_path: Path) -> None:
    log = JsonlLog(tmp_path / "log.jsonl")
    log.path.write_bytes(b'{"step":1}\n{"step":\n{"step":3}\n')
    with pytest.raises(StateCorrupted, match=r"log\.jsonl:2"):
        log.read()


def test_unicode_line_separators_stay_inside_their_record(tmp_path: Path) -> None:
    log = JsonlLog(tmp_path / "log.jsonl")
    log.path.write_bytes('{"text":"a\u2028b\u2029c\u0085d"}\n{"text":"second"}\n'.encode())
    assert [row["text"] for row in log.read()] == ["a\u2028b\u2029c\u0085d", "second"]
    log.append({"text": "third\u2028"})
    assert len(log.read()) == 3


def test_keep_where_drops_rows_and_heals_the_tail(tmp_path: Path) -> None:
    log = JsonlLog(tmp_path / "metrics.jsonl")
    log.append_many([{"step": step} for step in range(5)])
    assert log.keep_where(lambda row: row["step"] <= 2) == 2
    assert [row["step"] for row in log.read()] == [0, 1, 2]
    assert log.keep_where(lambda row: True) == 0
    assert JsonlLog(tmp_path / "absent.jsonl").keep_where(lambda row: False) == 0


def test_an_absent_log_is_empty_and_an_empty_append_creates_nothing(tmp_path: Path) -> None:
    log = JsonlLog(tmp_path / "log.jsonl")
    log.append_many([])
    assert log.read() == []
    assert not log.path.exists()


def test_a_file_where_a_folder_should_be_and_the_reverse_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match=r"file/state\.json: a file stands where a folder is needed; move it away"):
        write_json_atomic(tmp_path / "file" / "state.json", {})
    (tmp_path / "metrics.jsonl").mkdir()
    log = JsonlLog(tmp_path / "metrics.jsonl")
    with pytest.raises(UserError, match=r"cannot read .*metrics\.jsonl: Is a directory; "):
        log.read()
    with pytest.raises(UserError, match=r"metrics\.jsonl: a folder stands in its place; move it away"):
        log.append({"step": 1})
    with pytest.raises(UserError, match="the name is too long; choose a shorter one"):
        write_json_atomic(tmp_path / ("x" * 300) / "state.json", {})
