"""slime's data source: the holder of the run, and the hook through which state is saved and loaded.

Tasks are drawn by the round driver from its own stream, together with their skill assignments; tasks of aborted groups
go back to the head of that stream. So slime's way of handing out prompts is not used here and refuses to work, rather
than hand out tasks behind the driver's back.
"""

from __future__ import annotations

from typing import Any

from slime.rollout.data_source import DataSource

from intraskill.backends.slime.run import SlimeRun


class TaskSource(DataSource):
    """One per process; `run` is what `rollout.generate_rollout` works with."""

    def __init__(self, args: Any) -> None:
        self.run = SlimeRun(args)

    def get_samples(self, num_samples: int) -> list[list[Any]]:
        raise RuntimeError(
            "tasks are drawn by the round driver; use --rollout-function-path of intraskill.backends.slime"
        )

    def add_samples(self, samples: list[list[Any]]) -> None:
        raise RuntimeError("tasks go back to the round driver's own stream; there is no buffer to add to")

    def save(self, rollout_id: int) -> None:
        self.run.save(rollout_id)

    def load(self, rollout_id: int | None = None) -> None:
        self.run.load(rollout_id)

    def __len__(self) -> int:
        return len(self.run.driver.run.splits.train)
