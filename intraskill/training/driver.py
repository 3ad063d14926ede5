"""The method, as one driver that all backends call.

A backend owns the weights; the driver owns everything else: which tasks, which assignments, which groups are trained
on, what a round's gate says, and what is on disk. The whole run reads:

    await driver.open()                      # Gate A on the initial bank, where it has not been measured yet
    while not driver.finished:
        batch = await driver.generate()      # draw assignments, roll out, filter, retry, triage   (step.py)
        updates = backend.train(batch)       # two optimizer updates on the kept groups, then a checkpoint
        driver.commit(batch, updates)        # records first, then the state that says the step is finished
        if driver.round_due:
            await driver.close_round()       # propose, bare, masked, fit, select, next curriculum   (round.py)

`state.json` moves only in `open`, `commit` and `close_round`, each time after everything it speaks of is on disk, so
calling the same sequence again after a kill continues exactly where the finished work ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from intraskill.skills.bank import Bank
from intraskill.storage.run_folder import RunState
from intraskill.training.round import (
    Round,
    evaluate_bank,
    first_gate_needed,
    gate_bank,
    gate_initial_bank,
    prepare_round,
    read_round,
    validate,
)
from intraskill.training.run import Run
from intraskill.training.step import StepBatch, generate_step, write_step


class RoundDriver:
    """How far a run got. `checkpoint` is set by the backend whenever the policy's weights change."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.checkpoint = ""
        self._round: Round | None = None
        self.state = run.folder.read_state()
        run.folder.roll_back(self.state)

    def rewind(self, step: int) -> None:
        """Continue from an earlier step than the last finished one: the backend's checkpoint is that of `step`."""
        self.state = self.run.folder.rewind(step, self.run.settings.steps_per_round)
        self._round = None
        self.run.folder.roll_back(self.state)

    @property
    def finished(self) -> bool:
        return self.state.finished

    @property
    def round_index(self) -> int:
        return self.state.rounds_closed

    @property
    def round_due(self) -> bool:
        """Whether a whole round of steps is finished and its gate is not."""
        return self.state.step >= self.run.closing_step(self.round_index)

    @property
    def round(self) -> Round:
        """The round in progress. Raises `UserError` when its bank or curriculum is not what it was set up with."""
        if self._round is None or self._round.index != self.round_index:
            self._round = read_round(self.run.folder, self.round_index, self.run.settings.seed)
        return self._round

    async def open(self) -> None:
        """Prepare round 0: gate the initial bank unless its contributions were measured at this very checkpoint."""
        if self.state.opened:
            return
        needed = first_gate_needed(self.run, self.checkpoint)
        bank = await gate_initial_bank(self.run, self.checkpoint) if needed else self.run.bank
        self.set_up_round(0, bank)
        self._advance(replace(self.state, opened=True))

    async def evaluate_start(self) -> None:
        """Score the untrained policy without skills, once; Gate A's bare run is the same thing."""
        done = any(row["kind"] == "evaluation" and row["round"] < 0 for row in self.run.folder.metrics.read())
        if not done:
            await validate(self.run, self.checkpoint, -1, "skill_free", self.run.runner, ())

    async def generate(self) -> StepBatch:
        """Roll out the next step's groups, filter them, retry the all-wrong ones, and measure."""
        return await generate_step(self.run, self.state, self.round, self.checkpoint)

    def commit(self, batch: StepBatch, updates: Sequence[Mapping[str, float]], timing: Mapping[str, float]) -> None:
        """Put the step's records on disk, then the state that counts it as finished."""
        retried = write_step(self.run, batch, updates, timing)
        self._advance(batch.next_state)
        self.run.proposer.observe(batch.round.index, batch.round.bank, retried)

    async def close_round(self) -> None:
        """Gate the bank at the round's end and set up the next round."""
        index = self.round_index
        result = await gate_bank(self.run, self.checkpoint, index, self.round.bank)
        await evaluate_bank(self.run, self.checkpoint, index, result.bank)
        last = index + 1 >= self.run.settings.rounds
        if not last:
            self.set_up_round(index + 1, result.bank)
        self._advance(replace(self.state, rounds_closed=index + 1, finished=last))

    def set_up_round(self, index: int, bank: Bank) -> None:
        """Let round `index` start from this bank."""
        prepare_round(self.run, index, bank)
        self._round = None

    def _advance(self, state: RunState) -> None:
        self.run.folder.write_state(state)
        self.state = state
