"""Progress for people: bars on a terminal, one plain line per finished piece of work elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

LOG_WIDTH = 120  # columns; a log file has no width of its own


class Bar:
    """One running piece of work; `advance` may be called from callbacks."""

    def __init__(self, progress: Progress | None, task: int | None) -> None:
        self._progress = progress
        self._task = task

    def advance(self, count: int = 1, note: str = "") -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, advance=count, note=note)  # type: ignore[arg-type]


class Reporter:
    """Owns the console of one command. `quiet` shows nothing at all."""

    def __init__(self, quiet: bool = False) -> None:
        width = None if sys.stderr.isatty() else LOG_WIDTH
        self.console = Console(file=sys.stderr, quiet=quiet, highlight=False, width=width)

    def say(self, message: str) -> None:
        """One plain line above the bars."""
        self.console.print(message)

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Bar]:
        """A bar of `total` units; off a terminal, one line with the time it took when done."""
        if self.console.is_terminal and not self.console.quiet:
            columns = (
                SpinnerColumn("line"),  # the one that every terminal can draw
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[note]}"),
            )
            with Progress(*columns, console=self.console, transient=True) as progress:
                yield Bar(progress, progress.add_task(label, total=total, note=""))
            return
        started = time.monotonic()
        yield Bar(None, None)
        self.say(f"{label}: {total} done in {time.monotonic() - started:.1f} s")
