"""Documents and logs survive kills, full disks and strange bytes; one process per run directory."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intraskill.core.errors import StateCorrupted, UserError
from intraskill.storage import store
from intraskill.storage.store import (
    JsonlLog,
    RunLock,
    describe_difference,
    fingerprint,
    lock_holder,
    read_json,
    write_json_atomic,
)


def test_a_document_round_trips_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state.json"
    write_json_atomic(path, {"schema": "intraskill-state-v1", "step": np.int64(3), "text": "一\u2028b"})
    assert read_json(path, "intraskill-state-v1") == {"schema": "intraskill-state-v1", "step": 3, "text": "一\u2028b"}
    assert [entry.name for entry in path.parent.iterdir()] == ["state.json"]


def test_a_newer_schema_is_refused_by_name_and_an_older_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_json_atomic(path, {"schema": "intraskill-run-v3"})
    with pytest.raises(UserError, match="intraskill-run-v3 is newer"):
        read_json(path, "intraskill-run-v2")
    assert read_json(path, "intraskill-run-v4")["schema"] == "intraskill-run-v3"
    assert read_json(path)["schema"] == "intraskill-run-v3"


@pytest.mark.parametrize("document", [{"schema": "intraskill-bank-v1"}, {}, []])
def test_a_document_of_another_kind_is_refused(tmp_path: Path, document: object) -> None:
    path = tmp_path / "run.json"
    write_json_atomic(path, document)
    with pytest.raises(StateCorrupted, match=r"run\.json.*expected 'intraskill-run-v1'"):
        read_json(path, "intraskill-run-v1")


def test_a_half_written_document_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(b'{"step": 1,\n"round": ')
    with pytest.raises(StateCorrupted, match=r"state\.json:2"):
        read_json(path, "intraskill-state-v1")


def test_a_missing_document_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.json: no such file"):
        read_json(tmp_path / "nothing.json", None)


@pytest.mark.parametrize(
    ("code", "words"), [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only"), (errno.EACCES, "permission denied")]
)
def test_an_unwritable_disk_is_a_user_error_and_the_old_document_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    path = tmp_path / "state.json"
    write_json_atomic(path, {"step": 1})

    def fail(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(store.os, "fsync", fail)
    with pytest.raises(UserError, match=rf"state\.json: .*{words}"):
        write_json_atomic(path, {"step": 2})
    monkeypatch.undo()
    assert read_json(path) == {"step": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]


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

    monkeypatch.setattr(store.os, "write", half_then_full)
    with pytest.raises(UserError, match="disk is full"):
        log.append({"step": 2})
    monkeypatch.undo()
    assert log.path.read_bytes() == before


def test_unexpected_os_errors_keep_their_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "i/o error")

    monkeypatch.setattr(store.os, "fsync", fail)
    with pytest.raises(OSError, match="i/o error"):
        write_json_atomic(tmp_path / "state.json", {})


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


def test_a_second_process_is_refused_and_named_the_first(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        code = f"from intraskill.storage.store import RunLock\nwith RunLock({str(tmp_path)!r}): pass"
        second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert second.returncode != 0
        assert f"in use by process {os.getpid()}" in second.stderr
    with RunLock(tmp_path):
        pass


def test_a_killed_holder_leaves_no_lock_behind(tmp_path: Path) -> None:
    code = (
        "import os, signal\nfrom intraskill.storage.store import RunLock\n"
        f"with RunLock({str(tmp_path)!r}): os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with RunLock(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


def test_the_holder_is_known_while_the_lock_is_held(tmp_path: Path) -> None:
    assert lock_holder(tmp_path) is None
    with RunLock(tmp_path):
        assert lock_holder(tmp_path) == os.getpid()
    assert lock_holder(tmp_path) is None


def test_fingerprints_ignore_key_order_and_see_values() -> None:
    assert fingerprint({"a": 1, "b": [1, 2]}) == fingerprint({"b": [1, 2], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert fingerprint({"a": "1"}) != fingerprint({"a": 1})


def test_differences_name_the_dotted_key_and_both_values() -> None:
    old = {"train": {"lr": 0.1, "betas": [0.9, 0.95]}, "seed": 1, "gone": True}
    new = {"train": {"lr": 0.2, "betas": (0.9, 0.95)}, "seed": 1, "name": "x"}
    assert describe_difference(old, new) == ["gone: true -> (absent)", 'name: (absent) -> "x"', "train.lr: 0.1 -> 0.2"]
    assert describe_difference(old, old) == []


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
