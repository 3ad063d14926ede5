"""Mirrors `metrics.jsonl` into Weights & Biases, each row exactly once, without ever holding up training.

`metrics.jsonl` is the truth and W&B a copy of it. Row number i of the file is logged as W&B event i, so how far the
copy got can be read back: from the local `.wandb` files in offline mode, from the server in online mode. A killed
run therefore continues the same W&B run (its id is kept in `wandb/intraskill.json`) with exactly the rows that are
missing. Curves are drawn over `rollout/step` and `train/step`, never over the event counter.

Everything happens in one background thread: `push()` only wakes it. If W&B fails, one warning is given, training
goes on, and the metrics are still in `metrics.jsonl`. With `wandb: disabled` nothing happens and wandb is not imported.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, cast, get_args

from intraskill.core.errors import UserError
from intraskill.report.run_data import GateFile, gate_dir, read_gate
from intraskill.report.wandb_log import logged_steps
from intraskill.settings.models import ReportSettings, RunSettings, WandbMode
from intraskill.storage.documents import read_json, write_json_atomic
from intraskill.storage.jsonl import JsonlLog

SCHEMA = "intraskill-wandb-v1"

_HELPER_LIFETIME_S = 3.0  # wandb's helper outlives a killed run by up to two seconds and may still write
_FLUSH_INTERVAL_S = 1.0
_CLOSE_TIMEOUT_S = 60.0
_TABLE_COLUMNS: list[str | int] = [
    "round",
    "step",
    "intervention_id",
    "title",
    "kind",
    "rank",
    "status",
    "coefficient",
    "standard_error",
    "standard_error_hc3",
]


def wandb_mode(report: ReportSettings) -> WandbMode:
    """How a run is copied: as `WANDB_MODE` says where it is set, else as the settings do. Raises `UserError`."""
    said = os.environ.get("WANDB_MODE")
    if not said:
        return report.wandb
    for mode in get_args(WandbMode):
        if said == mode:
            return cast(WandbMode, mode)
    raise UserError(f"WANDB_MODE is {said!r}; set it to online, offline or disabled, or unset it")


def warn_on_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


class WandbSink:
    """One training run's W&B copy. Use as a context manager; call `push()` whenever rows were written."""

    def __init__(
        self,
        run_dir: Path | str,
        settings: RunSettings,
        warn: Callable[[str], None] = warn_on_stderr,
    ) -> None:
        self._run_dir = Path(run_dir).resolve()
        self._settings = settings
        self._mode = wandb_mode(settings.report)
        self._warn = warn
        self._started = time.monotonic()
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    def push(self) -> None:
        """Ask for all new rows to be logged; returns at once."""
        if self._mode == "disabled":
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._guarded_work, name="wandb-sink", daemon=True)
            self._thread.start()
        self._wake.set()

    def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Log what is left and finish the W&B run; gives up with a warning after `timeout_s`."""
        self._closing = True  # before the thread may start: with nothing new to log it opens no W&B run
        self.push()
        if self._thread is None:
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._warn(f"W&B did not finish within {timeout_s:g} s; the metrics are in {self._metrics_path}")

    def __enter__(self) -> WandbSink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _metrics_path(self) -> Path:
        return self._run_dir / "metrics.jsonl"

    def _guarded_work(self) -> None:
        """The thread's body and its only error boundary: a copy of the metrics must not end a training run."""
        try:
            self._work()
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            self._warn(f"W&B logging stopped ({reason}); training goes on, the metrics are in {self._metrics_path}")

    def _work(self) -> None:
        marker = Marker(self._run_dir)
        log = JsonlLog(self._metrics_path)
        if self._closing and len(log.read()) <= marker.rows:
            return  # nothing new, for example a finished run that was started again
        with _local_staging(self._run_dir):
            done = max(marker.rows, self._rows_on_disk(marker.run_id))
            run = _start_run(self._run_dir, self._settings, self._mode, marker.run_id)
            if self._mode == "online":
                done = max(done, int(run.step))
            while True:
                closing = self._closing
                self._wake.clear()
                done = self._log_new(run, log.read(), done)
                if closing:
                    break
                self._wake.wait()
            run.finish()
        marker.save(done)

    def _rows_on_disk(self, run_id: str) -> int:
        """How many rows earlier offline processes of this run got onto the disk."""
        files = sorted(self._run_dir.glob(f"wandb/offline-run-*-{run_id}/run-{run_id}.wandb"))
        if not files:
            return 0
        time.sleep(max(0.0, self._started + _HELPER_LIFETIME_S - time.monotonic()))
        return max((step + 1 for file in files for step in logged_steps(file)), default=0)

    def _log_new(self, run: Any, rows: list[dict[str, Any]], done: int) -> int:
        for index in range(done, len(rows)):
            row = rows[index]
            payload: dict[str, Any] = wandb_payload(row)
            if row.get("kind") == "gate":
                payload |= _gate_extras(run, self._run_dir, int(row["round"]))
            run.log(payload, step=index, commit=True)
        return max(done, len(rows))


class Marker:
    """`wandb/intraskill.json`: the W&B run id, and how many rows are known to be logged."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "wandb" / "intraskill.json"
        if self._path.exists():
            document = read_json(self._path, SCHEMA)
            self.run_id, self.rows = str(document["id"]), int(document["rows"])
        else:
            self.run_id, self.rows = secrets.token_hex(4), 0
            self.save(0)

    def save(self, rows: int) -> None:
        write_json_atomic(self._path, {"schema": SCHEMA, "id": self.run_id, "rows": rows})


def wandb_payload(row: Mapping[str, Any]) -> dict[str, float]:
    """One metrics row under its W&B names: numbers only, with the x-axis it belongs to."""
    payload: dict[str, float] = {"rollout/step": row["step"], "round": row.get("round", 0)}
    if row.get("kind") == "update":
        payload = {}
    prefix = f"eval/{row['condition']}/" if row.get("kind") == "evaluation" else ""
    for key, value in row.items():
        if key not in ("kind", "step", "round", "condition") and isinstance(value, (int, float)):
            payload[prefix + key] = float(value) if isinstance(value, bool) else value
    return payload


def _start_run(run_dir: Path, settings: RunSettings, mode: WandbMode, run_id: str) -> Any:
    """A quiet wandb run: no console capture, no code, git, machine or process probing."""
    import wandb

    quiet = wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        disable_job_creation=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        x_transaction_log_flush_interval=_FLUSH_INTERVAL_S,
    )
    run = wandb.init(
        project=settings.report.project,
        id=run_id,
        name=run_dir.name,
        dir=run_dir,
        mode=mode,
        resume="allow" if mode == "online" else None,
        config=settings.model_dump(mode="json"),
        reinit="create_new",
        settings=quiet,
    )
    name_axes(run)
    return run


def name_axes(run: Any) -> None:
    """Draw every family over the step it belongs to, never over W&B's own count of logging calls."""
    for axis in ("rollout/step", "train/step", "round"):
        run.define_metric(axis, hidden=True)
    run.define_metric("train/*", step_metric="train/step")
    for names in ("rollout/*", "gate/*", "eval/*", "analysis/*", "timing/*"):
        run.define_metric(names, step_metric="rollout/step")


def name_axes_of_current_run() -> None:
    """The same for a run that somebody else started in this process, if there is one."""
    import wandb

    if wandb.run is not None:
        name_axes(wandb.run)


def _gate_extras(run: Any, run_dir: Path, round_index: int) -> dict[str, Any]:
    """The contributions table of one gate; its files go along as an artifact, the round's candidates with them.

    Nothing else is ever uploaded: cards and traces hold goals and what users told and stay on this machine.
    """
    import wandb

    directory = gate_dir(run_dir, round_index)
    gate = read_gate(directory)
    if gate is None:
        return {}
    artifact = wandb.Artifact(f"gate-{run.id}", type="gate", metadata={"round": gate.round, "step": gate.step})
    for name in ("contributions.json", "selected_skill_bank.json", "selected_skill.md"):
        if (directory / name).exists():
            artifact.add_file(str(directory / name), name=name, policy="immutable")
    candidates = directory.parent / "analysis" / "candidates.json"
    if round_index >= 0 and candidates.exists():
        artifact.add_file(str(candidates), name=candidates.name, policy="immutable")
    run.log_artifact(artifact)
    return {"gate/contributions": wandb.Table(columns=_TABLE_COLUMNS, data=_table_rows(gate))}


def _table_rows(gate: GateFile) -> list[list[Any]]:
    shared = {"round": gate.round, "step": gate.step}
    return [[(shared | row).get(str(column)) for column in _TABLE_COLUMNS] for row in gate.contributions]


@contextmanager
def _local_staging(run_dir: Path) -> Iterator[None]:
    """While open, wandb stages artifacts inside the run directory instead of the home directory."""
    wanted = {
        "WANDB_DATA_DIR": str(run_dir / "wandb" / "data"),
        "WANDB_CACHE_DIR": str(run_dir / "wandb" / "cache"),
        "WANDB_ERROR_REPORTING": "false",
    }
    ours = [name for name in wanted if name not in os.environ]
    os.environ.update({name: wanted[name] for name in ours})
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
