"""One step's groups: submit waves, judge what finishes, stop when the trainer has enough.

In `submission` order a whole wave runs and its groups are judged in the order they were submitted: deterministic and
without bias. In `completion` order the first to finish is judged first and what still runs when the batch is full is
aborted, its tasks handed back: faster on a cluster, but it favours short episodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from intraskill.core.records import Group
from intraskill.rollout.filter import GroupFilter, Verdict
from intraskill.rollout.groups import PlannedGroup

NextWave = Callable[[], Sequence[PlannedGroup]]
RunGroup = Callable[[PlannedGroup], Coroutine[Any, Any, Group]]


@dataclass
class Collected:
    """All finished groups of a step with the filter's verdict on each, and those that were aborted."""

    groups: list[Group] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    aborted: list[PlannedGroup] = field(default_factory=list)

    @property
    def kept(self) -> list[Group]:
        return [group for group, verdict in zip(self.groups, self.verdicts) if verdict == "kept"]


async def collect_in_submission_order(run: RunGroup, next_wave: NextWave, judge: GroupFilter) -> Collected:
    """Run whole waves, judge in submission order."""
    collected = Collected()
    while judge.wave_due:
        planned = next_wave()
        judge.submit(len(planned))
        for group in await asyncio.gather(*(run(one) for one in planned)):
            collected.groups.append(group)
            collected.verdicts.append(judge.judge(group))
    return collected


async def collect_in_completion_order(run: RunGroup, next_wave: NextWave, judge: GroupFilter) -> Collected:
    """Judge groups as they finish; abort the rest once the batch is full. Ends short of it after the last wave."""
    collected = Collected()
    running: dict[asyncio.Task[Group], PlannedGroup] = {}
    try:
        while not judge.complete and (running or judge.wave_due):
            if judge.wave_due:
                planned = next_wave()
                judge.submit(len(planned))
                running |= {asyncio.ensure_future(run(one)): one for one in planned}
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda task: running[task].index):
                running.pop(task)
                collected.groups.append(task.result())
                collected.verdicts.append(judge.judge(task.result()))
    finally:
        collected.aborted = sorted(running.values(), key=lambda planned: planned.index)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return collected
