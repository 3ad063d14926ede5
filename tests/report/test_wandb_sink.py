"""The W&B copy holds every metrics row exactly once, whatever is killed, and never hurts training."""

import json
import os
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intraskill.core.errors import UserError
from intraskill.report.wandb_log import logged_steps, raw_records
from intraskill.report.wandb_sink import WandbSink, wandb_mode, wandb_payload
from intraskill.settings.models import ReportSettings, RunSettings


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)


def settings(wandb: str = "offline", project: str = "intraskill") -> RunSettings:
    return RunSettings(name="demo", report=ReportSettings(wandb=wandb, project=project))


def test_wandb_mode_of_the_environment_comes_before_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wandb_mode(ReportSettings(wandb="online")) == "online"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert wandb_mode(ReportSettings(wandb="online")) == "disabled"
    monkeypatch.setenv("WANDB_MODE", "sometimes")
    with pytest.raises(UserError, match="WANDB_MODE is 'sometimes'; set it to online, offline or disabled"):
        wandb_mode(ReportSettings())


def test_a_run_disabled_from_outside_leaves_no_copy(make_run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    builder = make_run().run(1)
    with WandbSink(builder.path, settings()) as sink:
        sink.push()
    assert not (builder.path / "wandb").exists()


def events(run_dir: Path) -> list[int]:
    return [step for file in sorted(run_dir.glob("wandb/offline-run-*/*.wandb")) for step in logged_steps(file)]


def records(run_dir: Path) -> list[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    found = []
    for file in sorted(run_dir.glob("wandb/offline-run-*/*.wandb")):
        for raw in raw_records(file.read_bytes()):
            found.append(Record())
            found[-1].ParseFromString(raw)
    return found


def test_every_row_is_logged_once_with_its_own_x_axis(make_run: Callable, capfd: pytest.CaptureFixture) -> None:
    builder = make_run().run(2)
    with WandbSink(builder.path, settings(project="shopping")) as sink:
        sink.push()
    rows = builder.metrics.read()
    assert events(builder.path) == list(range(len(rows)))
    found = records(builder.path)
    assert {record.run.project for record in found if record.HasField("run")} == {"shopping"}
    axes = {r.metric.glob_name or r.metric.name: r.metric.step_metric for r in found if r.HasField("metric")}
    assert axes["train/*"] == "train/step"
    assert axes["rollout/*"] == axes["gate/*"] == axes["eval/*"] == "rollout/step"
    logged = [
        {"/".join(i.nested_key) or i.key: i.value_json for i in r.history.item} for r in found if r.HasField("history")
    ]
    factors = json.loads((builder.path / "rounds/round-001/gate/contributions.json").read_bytes())["contributions"]
    assert logged[-1]["gate/contributions/nrows"] == str(len(factors))
    assert capfd.readouterr() == ("", "")


def test_the_same_run_continues_under_its_id_with_only_the_new_rows(make_run: Callable) -> None:
    builder = make_run()
    builder.start()
    builder.step(0, 1)
    with WandbSink(builder.path, settings()):
        pass
    first = len(builder.metrics.read())
    builder.step(0, 2)
    with WandbSink(builder.path, settings()) as sink:
        sink.push()
    assert events(builder.path) == list(range(2 * first))
    assert len({path.name.split("-")[-1] for path in builder.path.glob("wandb/offline-run-*")}) == 1


def test_a_finished_run_started_again_opens_no_new_wandb_run(make_run: Callable) -> None:
    builder = make_run()
    builder.start()
    builder.step(0, 1)
    for _ in range(2):
        with WandbSink(builder.path, settings()):
            pass
    assert len(list(builder.path.glob("wandb/offline-run-*"))) == 1


def test_kills_at_random_moments_lose_no_row_and_repeat_none(make_run: Callable) -> None:
    builder = make_run()
    builder.start()
    code = textwrap.dedent(f"""
        import os, signal, sys, time
        from pathlib import Path
        from intraskill.settings.models import RunSettings
        from intraskill.report.wandb_sink import WandbSink
        from intraskill.storage.jsonl import JsonlLog
        log = JsonlLog({str(builder.metrics.path)!r})
        sink = WandbSink({str(builder.path)!r}, RunSettings(name="demo"))
        sink.push()
        deadline = time.monotonic() + float(sys.argv[1])
        for step in range(len(log.read()), len(log.read()) + 100):
            log.append({{"kind": "step", "round": 0, "step": step, "rollout/x": step}})
            sink.push()
            time.sleep(0.1)
            if time.monotonic() > deadline:
                os.kill(os.getpid(), signal.SIGKILL)
        sink.close()
    """)
    chance = random.Random(5)
    for _ in range(3):
        delay = str(chance.uniform(2.0, 6.0))
        assert subprocess.run([sys.executable, "-c", code, delay], check=False).returncode == -9
    with WandbSink(builder.path, settings()):
        pass
    assert events(builder.path) == list(range(len(builder.metrics.read())))


def test_waking_it_takes_no_time(make_run: Callable) -> None:
    builder = make_run()
    builder.start()
    slowest = 0.0
    with WandbSink(builder.path, settings()) as sink:
        for step in range(1, 21):
            builder.step(0, step)
            started = time.perf_counter()
            sink.push()
            slowest = max(slowest, time.perf_counter() - started)
    assert slowest < 0.2


def test_disabled_does_nothing_and_does_not_import_wandb(make_run: Callable) -> None:
    builder = make_run()
    builder.start()
    builder.step(0, 1)
    code = f"""
import sys
from intraskill.settings.models import ReportSettings, RunSettings
from intraskill.report.wandb_sink import WandbSink
path = {str(builder.path)!r}
with WandbSink(path, RunSettings(name="demo", report=ReportSettings(wandb="disabled"))) as sink:
    sink.push()
assert not [name for name in sys.modules if name.split(".")[0] == "wandb"]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not (builder.path / "wandb").exists()


def test_online_without_an_account_is_one_warning(make_run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = make_run()
    builder.start()
    builder.step(0, 1)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("NETRC", os.devnull)
    warnings: list[str] = []
    with WandbSink(builder.path, settings("online"), warnings.append) as sink:
        sink.push()
    assert len(warnings) == 1
    assert "training goes on" in warnings[0]
    assert "\n" not in warnings[0]


def test_a_broken_metrics_file_is_one_warning(make_run: Callable) -> None:
    builder = make_run()
    builder.start()
    builder.metrics.path.write_bytes(b"not json\n{}\n{}\n")
    warnings: list[str] = []
    with WandbSink(builder.path, settings(), warnings.append):
        pass
    assert len(warnings) == 1
    assert "metrics.jsonl:1" in warnings[0]


def test_payloads_carry_numbers_under_their_published_names() -> None:
    assert wandb_payload({"kind": "update", "step": 3, "train/step": 5, "train/loss": 0.5}) == {
        "train/step": 5,
        "train/loss": 0.5,
    }
    row = {"kind": "evaluation", "round": 1, "step": 40, "condition": "equipped", "success_rate": 0.7, "n": 400}
    assert wandb_payload(row) == {
        "rollout/step": 40,
        "round": 1,
        "eval/equipped/success_rate": 0.7,
        "eval/equipped/n": 400,
    }
    assert wandb_payload({"kind": "gate", "round": -1, "step": 0, "gate/complete": True, "gate/x": None}) == {
        "rollout/step": 0,
        "round": -1,
        "gate/complete": 1.0,
    }


def test_a_torn_wandb_file_reads_as_its_whole_records(make_run: Callable) -> None:
    builder = make_run()
    builder.start()
    for step in range(1, 200):
        builder.step(0, step)
    with WandbSink(builder.path, settings()):
        pass
    (file,) = builder.path.glob("wandb/offline-run-*/*.wandb")
    data = file.read_bytes()
    assert len(data) > 2 * 32 * 1024
    total = logged_steps(file)
    for cut in (len(data) - 3, len(data) // 2, 32 * 1024 + 5, 8, 0):
        file.write_bytes(data[:cut])
        assert logged_steps(file) == total[: len(logged_steps(file))]
