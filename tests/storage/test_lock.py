"""One process per run folder."""

import os
import subprocess
import sys
import threading
from pathlib import Path

from intraskill.storage.lock import RunLock, lock_holder


def test_a_second_process_is_refused_and_named_the_first(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        code = f"from intraskill.storage.lock import RunLock\nwith RunLock({str(tmp_path)!r}): pass"
        second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert second.returncode != 0
        assert f"in use by process {os.getpid()}" in second.stderr
    with RunLock(tmp_path):
        pass


def test_a_killed_holder_leaves_no_lock_behind(tmp_path: Path) -> None:
    code = (
        "import os, signal\nfrom intraskill.storage.lock import RunLock\n"
        f"with RunLock({str(tmp_path)!r}): os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with RunLock(tmp_path):
        assert (tmp_path / ".lock-holder").read_text() == f"{os.getpid()}\n"


def test_the_holder_is_known_while_the_lock_is_held(tmp_path: Path) -> None:
    assert lock_holder(tmp_path) is None
    with RunLock(tmp_path):
        assert lock_holder(tmp_path) == os.getpid()
    assert lock_holder(tmp_path) is None


def test_a_dead_holders_name_is_not_reported(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        pass
    assert (tmp_path / ".lock-holder").exists()
    assert lock_holder(tmp_path) is None


def test_looking_at_a_lock_does_not_disturb_who_wants_it(tmp_path: Path) -> None:
    """`status` may be asked at any moment, by several at once."""
    with RunLock(tmp_path):
        pass
    stop = threading.Event()
    seen: list[int | None] = []

    def look() -> None:
        while not stop.is_set():
            seen.append(lock_holder(tmp_path))

    watchers = [threading.Thread(target=look) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    for _ in range(20):
        with RunLock(tmp_path):
            pass
    stop.set()
    for watcher in watchers:
        watcher.join()
    assert set(seen) <= {None, os.getpid()}


def test_a_lock_taken_in_one_thread_is_given_back_in_another(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    taken = threading.Thread(target=lock.__enter__)
    taken.start()
    taken.join()
    lock.__exit__(None, None, None)
    assert lock_holder(tmp_path) is None
