"""Which groups reach the trainer: the 32 -> 16 filter of one step, as a pure state machine.

A group that carries no signal (for objectives that compare rewards: all siblings earned the same) teaches nothing, and
one with an unscorable sibling says nothing about the policy. Which groups carry signal, the objective says. So a step
generates more groups than it trains on and judges each as it comes:

* unscorable member: always dropped; `technical_limit` such groups in a row stop the run;
* no signal: dropped while more groups remain than are needed, kept once they are all needed, so that a step
  never pays for a second wave merely because its groups agree;
* otherwise kept, until the target is reached; what comes later is surplus.

`remaining` = submitted - dropped. Another wave is due when `remaining` falls below the target, up to `max_waves`: then
the step trains on what it kept. A world in which every group agrees costs exactly one wave and trains on groups that
say nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from intraskill.core.errors import TooManyTechnicalFailures
from intraskill.core.records import Group

Verdict = Literal["kept", "technical", "zero_std", "surplus"]


class GroupFilter:
    """Judges the groups of one step in the order they are given.

    `carries_signal`: what the objective says of a scorable group; `target`: groups the trainer wants;
    `technical_limit`: unscorable groups in a row that stop the run; `technical_run`: such groups already seen in a row
    before this step; `max_waves`: after so many waves the step has to do with what was kept.
    """

    def __init__(
        self,
        carries_signal: Callable[[Group], bool],
        target: int,
        technical_limit: int,
        technical_run: int = 0,
        max_waves: int | None = None,
    ) -> None:
        self.carries_signal = carries_signal
        self.target = target
        self.technical_limit = technical_limit
        self.technical_run = technical_run
        self.max_waves = max_waves
        self.waves = 0
        self.submitted = 0
        self.kept = 0
        self.dropped = 0

    @property
    def remaining(self) -> int:
        return self.submitted - self.dropped

    @property
    def complete(self) -> bool:
        return self.kept >= self.target

    @property
    def wave_due(self) -> bool:
        return not self.complete and self.remaining < self.target and self.waves != self.max_waves

    def submit(self, groups: int) -> None:
        """Count a wave of `groups` that is about to run."""
        self.waves += 1
        self.submitted += groups

    def judge(self, group: Group) -> Verdict:
        """Decide one finished group. Raises `TooManyTechnicalFailures` at the limit."""
        if not group.scorable:
            self.dropped += 1
            self.technical_run += 1
            if self.technical_run >= self.technical_limit:
                raise TooManyTechnicalFailures(_technical_message(group, self.technical_run))
            return "technical"
        self.technical_run = 0
        if self.complete:
            return "surplus"
        if self.remaining > self.target and not self.carries_signal(group):
            self.dropped += 1
            return "zero_std"
        self.kept += 1
        return "kept"


def _technical_message(group: Group, run: int) -> str:
    errors = [episode.error for episode in group.episodes if episode.error]
    last = errors[-1] if errors else {"stage": "unknown", "message": "no message"}
    return (
        f"{run} groups in a row could not be scored; the last failed at {last['stage']}: {last['message']}. "
        "Mend the cause, then resume the run"
    )
