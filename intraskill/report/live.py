"""What a training run shows while it goes on: a table after every gate, and the curves in W&B."""

from __future__ import annotations

from pathlib import Path

from intraskill.core.progress import Reporter
from intraskill.report.tables import round_table
from intraskill.report.wandb_sink import WandbSink
from intraskill.settings.models import RunSettings


class LiveReport:
    """Called by the training loop whenever new records are on disk."""

    def __init__(self, path: Path, settings: RunSettings, reporter: Reporter) -> None:
        self._path, self._reporter = path, reporter
        self._sink = WandbSink(path, settings)

    def stepped(self) -> None:
        self._sink.push()

    def gated(self, index: int) -> None:
        self._reporter.console.print(round_table(self._path, index))
        self._sink.push()

    def ended(self) -> None:
        self._sink.close()
