"""What an analyst knows in private never reaches W&B."""

from collections.abc import Callable

import pytest

from intraskill.report.wandb_log import raw_records
from intraskill.report.wandb_sink import WandbSink
from intraskill.settings.models import RunSettings
from intraskill.storage.documents import write_json_atomic
from intraskill.storage.jsonl import JsonlLog

SECRET = "norvik-oak-shelf-100200300400"
ALLOWED = {"contributions.json", "selected_skill_bank.json", "selected_skill.md", "candidates.json"}


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_DIR", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)


def test_only_the_gates_files_and_the_candidates_are_uploaded(make_run: Callable) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    builder = make_run().run(2)
    for index in (0, 1):
        folder = builder.path / f"rounds/round-{index:03d}"
        for name in ("cards.jsonl", "notes.jsonl"):
            JsonlLog(folder / "analysis" / name).append({"privileged_audit": {"goal": SECRET}})
        JsonlLog(folder / "retries.jsonl").append({"goal": SECRET})
        write_json_atomic(folder / "analysis/candidates.json", {"schema": "intraskill-candidates-v1", "candidates": []})
    builder.metrics.append(
        {"kind": "analysis", "round": 1, "step": 2, "rollout/step": 2, "analysis/card_count": 3, "note": SECRET}
    )
    with WandbSink(builder.path, RunSettings(name="demo")) as sink:
        sink.push()
    uploaded = set()
    for file in builder.path.glob("wandb/offline-run-*/*.wandb"):
        for raw in raw_records(file.read_bytes()):
            record = Record()
            record.ParseFromString(raw)
            uploaded |= {entry.path for entry in record.request.log_artifact.artifact.manifest.contents}
            uploaded |= {entry.path for entry in record.artifact.manifest.contents}
    files = {path for path in uploaded if not path.endswith(".table.json")}
    assert {"candidates.json", "contributions.json"} <= files <= ALLOWED
    for file in builder.path.glob("wandb/**/*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes()
