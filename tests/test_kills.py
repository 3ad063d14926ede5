"""A run killed by the system at random moments ends like one that was never killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_kills_change_nothing_that_a_run_leaves_behind() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "kill_test.py"), "--kills", "20", "--seed", "1"]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kills"] == 20
    assert found["files_compared"] > 20
