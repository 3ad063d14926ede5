"""Documents survive kills, full disks and strange bytes."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from intraskill.core.errors import StateCorrupted, UserError
from intraskill.storage.documents import read_json, write_json_atomic


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

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UserError, match=rf"state\.json: .*{words}"):
        write_json_atomic(path, {"step": 2})
    monkeypatch.undo()
    assert read_json(path) == {"step": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]


def test_unexpected_os_errors_keep_their_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "i/o error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="i/o error"):
        write_json_atomic(tmp_path / "state.json", {})
