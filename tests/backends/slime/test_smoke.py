"""The integration test: slime's real loop with a real SGLang server, killed and continued."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from intraskill.skills.curriculum import draw_assignment, parse_curriculum
from intraskill.storage.documents import read_json
from intraskill.storage.jsonl import JsonlLog

pytestmark = [pytest.mark.slime, pytest.mark.slow, pytest.mark.timeout(3600)]
KEY = "secret-key-of-a-test"
ROOT = Path(__file__).resolve().parents[3]


def smoke(out: Path, *words: str) -> str:
    if not (ROOT / "intraskill" / "assets" / "tiny" / "model.safetensors").exists():
        pytest.skip("the package holds no tiny checkpoint")
    slime = os.environ.get("SLIME_DIR", str(ROOT / "third_party" / "slime"))
    command = [sys.executable, "-m", "intraskill", "slime", "smoke", "--out", str(out), "--slime-dir", slime]
    command += ["--job-path", os.environ.get("SLIME_JOB_PATH", ""), *words]
    environment = {**os.environ, "WANDB_API_KEY": KEY}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def drawn(out: Path) -> list[tuple]:
    logs = sorted(out.glob("smoke/rounds/*/groups.jsonl"))
    rows = [row for log in logs for row in JsonlLog(log).read()]
    return [(row["step"], row["group_index"], row["task_id"], row["skill_free"]) for row in rows]


def assignments_follow_from_the_curriculum(out: Path) -> bool:
    """A group's chunks depend on its round's curriculum and its index, not on how often the job was started."""
    for folder in sorted(out.glob("smoke/rounds/round-*")):
        curriculum = parse_curriculum(read_json(folder / "curriculum.json"), str(folder))
        for row in JsonlLog(folder / "groups.jsonl").read():
            drawn = draw_assignment(curriculum, row["group_index"])
            if (row["skill_free"], tuple(row["skill_ids"])) != (drawn.skill_free, drawn.skill_ids):
                return False
    return True


def test_killed_and_continued_it_draws_what_an_unkilled_run_draws(tmp_path):
    assert "smoke run passed" in smoke(tmp_path / "whole")
    smoke(tmp_path / "killed", "--stop-after", "3")
    smoke(tmp_path / "killed", "--stop-after", "4")  # the last checkpoint is there, its gate is not
    assert "smoke run passed" in smoke(tmp_path / "killed")
    assert drawn(tmp_path / "killed") == drawn(tmp_path / "whole")
    assert assignments_follow_from_the_curriculum(tmp_path / "killed")
    assert "nothing to do" in smoke(tmp_path / "whole")
    for out in ("whole", "killed"):
        assert len({path.name.split("-", 3)[3] for path in (tmp_path / out).rglob("offline-run-*")}) == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    shutil.rmtree(tmp_path)
