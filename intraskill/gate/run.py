"""The gate: what is each chunk still worth, at this very checkpoint?

Runs over the same validation tasks: **bare** (no skill, the reported validation score at the same time), **masked**
(random chunks), and in a fold-over design **mirror** (the other chunks). An estimator reads the chunks' effects from
them, a rule decides which chunks stay. All runs must come from one checkpoint under one protocol, so that a
difference can only be the chunks'.

Where the rule leaves chunks undecided and the protocol allows extra episodes, these are spent on contrasts of just
those chunks, in three parts, and the rule is asked again after each. To look several times is to err more often; so
the probability of error that the protocol allows is divided by the number of looks: over all of them together, a gate
says something wrong about one chunk with no more than that probability.

A gate that lacks an episode, or whose estimator finds no answer, selects nothing: the bank stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intraskill.core.progress import Reporter
from intraskill.core.records import EpisodeJob
from intraskill.core.seeds import stable_seed
from intraskill.gate.design import Mask, Masks, draw_design, draw_mirrored
from intraskill.gate.earlier import Earlier
from intraskill.gate.interventions import Candidate, Intervention, build_pool, next_bank, slots
from intraskill.gate.judge import Judgement, judge
from intraskill.gate.protocol import GateProtocol, check_conditions, check_pairing, conditions
from intraskill.gate.result import GateResult, write_gate
from intraskill.gate.table import RunTable, TableRow
from intraskill.rollout.jobs import Outcome, PlannedEpisode, run_jobs
from intraskill.rollout.runner import EpisodeRunner
from intraskill.skills.bank import Bank
from intraskill.skills.curriculum import uniform
from intraskill.storage.documents import write_json_atomic
from intraskill.storage.jsonl import JsonlLog

EXTRA_LOOKS = 3
_NOTHING_EARLIER = Earlier()


async def run_gate(
    runner: EpisodeRunner,
    bank: Bank,
    candidates: Sequence[Candidate],
    protocol: GateProtocol,
    folder: Path,
    reporter: Reporter,
    earlier: Earlier = _NOTHING_EARLIER,
) -> GateResult:
    """Measure, select, and write everything a reader needs to do it again into `folder`."""
    pool = build_pool(bank, candidates)
    gate = _Gate(runner, protocol, pool, folder, reporter)
    judgement: Judgement | None = None
    await gate.measure()
    if pool and gate.complete:
        judgement = await _decide(gate, earlier)
    if judgement is None or judgement.selection is None or not gate.complete:
        chosen = bank  # nothing to select from, or not enough to select by
    else:
        selected, here = judgement.selection.selected_ids, conditions(runner.protocol())
        chosen = next_bank(bank, pool, selected, judgement.coefficients, (protocol.checkpoint, here))
    result = GateResult(chosen, pool, gate.runs, gate.complete, judgement if gate.complete else None)
    write_gate(folder, protocol, result)
    return result


@dataclass
class _Gate:
    """One gate while it runs: what was shown to whom, and what came of it."""

    runner: EpisodeRunner
    protocol: GateProtocol
    pool: tuple[Intervention, ...]
    folder: Path
    reporter: Reporter
    runs: dict[str, tuple[Outcome, ...]] = field(default_factory=dict)
    shown: dict[str, Sequence[Mask]] = field(default_factory=dict)
    assignments: dict[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every planned episode was scored."""
        return all(one.completed for run in self.runs.values() for one in run)

    async def measure(self) -> None:
        """The runs of the design over all tasks."""
        protocol, tasks = self.protocol, self.protocol.task_ids
        seed = stable_seed("masks", protocol.seed, protocol.round_index)
        drawn = draw_design(protocol.design, slots(self.pool), tasks, seed, protocol.name)
        self._write_assignments(drawn)
        await self._run("bare", tasks, [(0,) * len(self.pool)] * len(tasks))
        if self.pool:
            await self._run("masked", tasks, drawn.masks)
            if drawn.mirrors:
                await self._run("mirror", tasks, drawn.mirrors)
        for name, run in self.runs.items():
            if name != "bare" and self.complete:
                check_pairing(self.runs["bare"], run)

    async def contrast(self, undecided: Sequence[str], look: int) -> None:
        """Further pairs on some tasks, in which only the slots of `undecided` texts differ."""
        protocol, size = self.protocol, self.protocol.extra_tasks // (2 * EXTRA_LOOKS)
        ranked = sorted(protocol.task_ids, key=lambda task: uniform("extra", protocol.name, task))
        start = (look - 1) * size
        tasks = [ranked[(start + i) % len(ranked)] for i in range(min(size, len(ranked)))]
        decided = [slot[0] for slot in slots(self.pool) if not set(slot) & set(undecided)]
        drawn = draw_mirrored(slots(self.pool), tasks, f"{protocol.name}/extra-{look}", decided)
        self._write_assignments(drawn, f"extra-{look}", tasks)
        for kind, masks in (("masked", drawn.masks), ("mirror", drawn.mirrors)):
            run = await self._run(f"extra-{look}-{kind}", tasks, masks, look)
            check_conditions(self.runs["bare"], run)

    def table(self, earlier: Earlier) -> RunTable:
        """Every scored episode with what it was shown."""
        rows = [
            TableRow(one.task_id, name.rpartition("-")[2], mask, one.reward)
            for name, run in self.runs.items()
            for one, mask in zip(run, self.shown[name], strict=True)
        ]
        ids = tuple(item.intervention_id for item in self.pool)
        return RunTable(ids, (*rows, *earlier.rows(len(ids))))

    async def _run(
        self, name: str, tasks: Sequence[str], masks: Sequence[Mask], sample: int = 0
    ) -> tuple[Outcome, ...]:
        protocol, planned = self.protocol, []
        for task_id, mask in zip(tasks, masks, strict=True):
            seed = stable_seed(name, protocol.seed, protocol.round_index, task_id)
            chunks = tuple(item.chunk for item, bit in zip(self.pool, mask) if bit)
            planned.append(PlannedEpisode(EpisodeJob(task_id, sample, seed, "val"), chunks))
        provenance = {**self.runner.protocol(), "checkpoint": protocol.checkpoint}
        log = JsonlLog(self.folder / f"{name}.jsonl")
        with self.reporter.bar(f"gate: {name} run", len(planned)) as bar:
            run = tuple(await run_jobs(self.runner, planned, log, provenance, protocol.wave_size, bar))
        self.runs[name], self.shown[name] = run, masks
        return run

    def _write_assignments(self, drawn: Masks, part: str = "", tasks: Sequence[str] = ()) -> None:
        """Put down what will be shown to whom; the extra parts of a gate stand under names of their own."""
        record: dict[str, Any] = {"task_ids": tasks or self.protocol.task_ids, "masks": drawn.masks}
        if drawn.mirrors:
            record["mirrors"] = drawn.mirrors
        if part:
            self.assignments[part] = record
        else:
            self.assignments = {"interventions": [item.intervention_id for item in self.pool], **record}
        write_json_atomic(self.folder / "assignments.json", self.assignments)


async def _decide(gate: _Gate, earlier: Earlier) -> Judgement:
    """Judge, and spend extra episodes while some text is undecided."""
    protocol = gate.protocol
    looks = 1 + EXTRA_LOOKS if protocol.extra_tasks >= 2 * EXTRA_LOOKS else 1
    confidence = 1 - (1 - protocol.confidence) / looks
    judgement = judge(protocol, gate.pool, gate.table(earlier), earlier.beliefs, confidence)
    for look in range(1, looks):
        rows = judgement.selection.rows if judgement.selection else ()
        undecided = [row.intervention_id for row in rows if row.status == "undecided"]
        if not undecided:
            break
        await gate.contrast(undecided, look)
        if not gate.complete:
            break
        judgement = judge(protocol, gate.pool, gate.table(earlier), earlier.beliefs, confidence)
    return judgement
