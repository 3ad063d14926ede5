"""A user's way through a whole run: train, look, start again. Minutes long, so marked slow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from intraskill.report.status import status

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = str(Path(sys.executable).parent / "intraskill")


def intraskill(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of configs/quick.yaml."""
    folder = tmp_path_factory.mktemp("journey")
    (folder / "configs").symlink_to(ROOT / "configs")
    done = intraskill(folder, "train", "configs/quick.yaml")
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "quick"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_four_rounds_end_with_a_better_policy_and_a_report(quick_run: Path) -> None:
    report = status(quick_run)
    assert (report["state"], report["rounds_closed"]) == ("finished", 4)
    assert report["validation_last"]["skill_free"] > report["validation_first"]["skill_free"]
    page = (quick_run / "report" / "index.html").read_text()
    assert page.count("<figure>") == 4
    assert "Brackets are 95 % intervals" in page


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_documented_commands_work_on_the_finished_run(quick_run: Path) -> None:
    folder = quick_run.parent.parent
    before = (quick_run / "metrics.jsonl").read_bytes()
    for command in (("train", "configs/quick.yaml"), ("resume", "runs/quick")):
        again = intraskill(folder, *command)
        assert again.returncode == 0, again.stderr
        assert "already finished" in again.stderr
    assert (quick_run / "metrics.jsonl").read_bytes() == before
    assert "finished" in intraskill(folder, "status", "runs/quick").stdout
    assert intraskill(folder, "report", "runs/quick").returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_file_of_a_run_is_documented(quick_run: Path) -> None:
    text = (ROOT / "docs" / "files.md").read_text()
    skipped = ("wandb", "report", "checkpoints")
    for path in quick_run.rglob("*"):
        if path.is_file() and path.relative_to(quick_run).parts[0] not in skipped:
            stem = path.name
            assert f"`{stem}`" in text or f"/{stem}`" in text or path.stem in text, os.fspath(path)
