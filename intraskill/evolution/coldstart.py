"""A first bank from nothing: cards of skill-free episodes, a draft, and two gates.

1. `analyze`: the untrained policy plays training tasks without any skill. Successes and failures are both analysed: a
   success tells what it rested on, a failure what it lacked.
2. `compile`: the cards of the two channels are clustered apart, then aligned by mechanism, and become at most 16 draft
   chunks. The bank is marked `draft_only`: training refuses it.
3. `gate`: Gate A measures the draft on validation tasks, exactly as a round's gate measures a bank, and writes the bank
   that training may start from. Gate B, with the final-test flag, then compares that frozen bank with no bank on the
   test tasks; it selects nothing.

Everything lies in one folder that belongs to one set of settings; every stage continues where it was stopped.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from intraskill.core.errors import IntraSkillError, UserError
from intraskill.core.progress import Reporter
from intraskill.core.records import EpisodeJob
from intraskill.core.seeds import stable_seed
from intraskill.evolution.analysts.checked import checked_card
from intraskill.evolution.cards import Lesson, card_record, read_cards
from intraskill.evolution.compiler import (
    Cluster,
    Compiled,
    Limits,
    aligned,
    candidate_record,
    clusters,
    compile_candidates,
    dropped_record,
)
from intraskill.evolution.firewall import release
from intraskill.families.analysis import Analyst, Card, Case, Channel, Evolution, Mechanisms
from intraskill.families.base import TaskFamily
from intraskill.gate.protocol import GateProtocol
from intraskill.gate.result import GateResult
from intraskill.gate.run import run_gate
from intraskill.rollout.jobs import Outcome, PlannedEpisode, run_jobs
from intraskill.rollout.runner import EpisodeRunner
from intraskill.settings.models import RunSettings
from intraskill.skills.bank import Bank, read_bank, write_bank
from intraskill.stats.paired_record import paired_record, unit_bounds
from intraskill.storage.store import JsonlLog, describe_difference, fingerprint, read_json, write_json_atomic

SCHEMA = "intraskill-coldstart-v1"
DRAFT_CHUNKS = 16
WAVE = 400  # episodes


class ColdStart:
    """One cold start in one folder. `checkpoint` names the weights that play."""

    def __init__(
        self,
        settings: RunSettings,
        folder: Path,
        runner: EpisodeRunner,
        family: TaskFamily,
        evolution: Evolution,
        checkpoint: str,
        reporter: Reporter,
    ) -> None:
        self.settings, self.folder, self.runner, self.family = settings, folder, runner, family
        self.checkpoint, self.reporter = checkpoint, reporter
        self.evolution, self.facts, self.mechanisms = evolution, evolution.facts(), evolution.mechanisms
        _claim(folder, settings, checkpoint)

    async def analyze(self, failures: Analyst, tasks: int, successes: Analyst | None = None) -> dict[str, Any]:
        """Play and analyse the first `tasks` training tasks; returns counts. One analyst may serve both channels."""
        analysts: dict[Channel, Analyst] = {"failure": failures, "success": successes or failures}
        ids = self.family.splits().train[:tasks]
        await self._play("episodes", ids, "train", Bank())
        log = JsonlLog(self.folder / "cards.jsonl")
        known = {row["card_id"] for row in log.read()}
        cases = [case for case in self._cases(set(ids)) if case.card_id(analysts[case.channel].name) not in known]
        size = self.settings.analyst.concurrency
        with self.reporter.bar("analysis", len(cases)) as bar:
            for start in range(0, len(cases), size):
                batch = cases[start : start + size]
                cards = await asyncio.gather(
                    *(checked_card(analysts[case.channel], case, self.facts) for case in batch)
                )
                log.append_many(map(card_record, cards))
                bar.advance(len(batch))
        for analyst in analysts.values():
            await analyst.close()
        return _counts(self._cards())

    def compile(self) -> dict[str, Any]:
        """Write the draft bank; returns what is in it and what was left out."""
        cards = self._cards()
        if not cards:
            raise UserError(f"{self.folder}: there are no cards yet; run `intraskill coldstart analyze` first")
        released = (release(card, self.facts)[0] for card in cards)
        lessons = [lesson for lesson in released if lesson is not None]
        limits = Limits(DRAFT_CHUNKS, self.settings.analyst.min_cards, self.settings.policy.style)
        drafts = draft_clusters(lessons, self.mechanisms)
        groups: list[tuple[Cluster, None]] = [(cluster, None) for cluster in drafts]
        compiled = compile_candidates(lessons, Bank(), (), self.facts, self.mechanisms, limits, groups)
        if not compiled.candidates:
            raise UserError(f"{self.folder}: no mechanism has {limits.min_cards} cards; analyze more tasks")
        write_bank(self.folder / "draft_bank.json", draft_bank(compiled, self.checkpoint))
        record = {
            "candidates": [candidate_record(item) for item in compiled.candidates],
            "dropped": [dropped_record(item) for item in compiled.dropped],
        }
        write_json_atomic(self.folder / "candidates.json", {"schema": "intraskill-candidates-v1", **record})
        return {
            "draft_bank": str(self.folder / "draft_bank.json"),
            "chunks": [item.chunk.title for item in compiled.candidates],
            "dropped": {item.mechanism: item.reason for item in compiled.dropped},
        }

    async def gate(self, final_test: bool = False) -> dict[str, Any]:
        """Gate A on validation tasks; with `final_test` also Gate B on the test tasks."""
        path = self.folder / "draft_bank.json"
        if not path.exists():
            raise UserError(f"{path}: there is no draft yet; run `intraskill coldstart compile` first")
        result = await self._gate_a(read_bank(path))
        if not result.complete or result.selection is None:
            raise IntraSkillError(
                f"{self.folder}: Gate A is incomplete, so the draft stays a draft; mend what made episodes fail and "
                "start the same command again: only those are run"
            )
        bank_path = self.folder / "selected_skill_bank.json"
        write_bank(bank_path, result.bank)
        record: dict[str, Any] = {"bank": str(bank_path), "selected": list(result.bank.ids), "gate_b": None}
        if final_test:
            record["gate_b"] = await self._gate_b(result.bank)
        return record

    async def _gate_a(self, draft: Bank) -> GateResult:
        self._reserve("gate_a/draft_bank.json", draft)
        gate = self.settings.gate
        plan = GateProtocol(
            task_ids=tuple(self.family.splits().val[: gate.tasks]),
            budget=gate.budget,
            estimator=gate.estimator,
            seed=self.settings.seed,
            round_index=-1,
            step=0,
            checkpoint=self.checkpoint,
            wave_size=WAVE,
        )
        return await run_gate(self.runner, draft, (), plan, self.folder / "gate_a", self.reporter)

    async def _gate_b(self, bank: Bank) -> dict[str, Any]:
        """The frozen bank against no bank, on the test tasks; the result decides nothing here."""
        self._reserve("gate_b/frozen_bank.json", bank)
        tasks = self.family.splits().test
        bare = await self._play("gate_b/bare", tasks, "test", Bank())
        equipped = await self._play("gate_b/equipped", tasks, "test", bank)
        pairs = [(a, b) for a, b in zip(bare, equipped) if a.completed and b.completed]
        record: dict[str, Any] = {"schema": "intraskill-gate-b-v1", "bank_sha256": bank.sha256, "tasks": len(tasks)}
        columns = ("reward", [a.reward for a, _ in pairs], [b.reward for _, b in pairs])
        outcomes = ("success", [float(a.success) for a, _ in pairs], [float(b.success) for _, b in pairs])
        for name, first, second in (columns, outcomes):
            bounds = unit_bounds(first, second)
            record[name] = paired_record(first, second, seed=self.settings.seed, bounds=bounds)
        write_json_atomic(self.folder / "gate_b" / "comparison.json", record)
        return record

    def _reserve(self, name: str, bank: Bank) -> None:
        """Tie a gate's folder to the bank it measures. Raises `UserError` when it holds episodes of another one."""
        path = self.folder / name
        if not path.exists():
            write_bank(path, bank)
        elif read_bank(path) != bank:
            raise UserError(f"{path.parent} measured another bank than this one; move it away and start again")

    async def _play(self, name: str, tasks: Sequence[str], split: str, bank: Bank) -> list[Outcome]:
        seed = self.settings.seed
        jobs = [EpisodeJob(task, 0, stable_seed("coldstart", name, seed, task), split) for task in tasks]
        plans = [PlannedEpisode(job, bank.chunks) for job in jobs]
        provenance = {**self.runner.protocol(), "checkpoint": self.checkpoint}
        with self.reporter.bar(f"cold start: {name}", len(plans)) as bar:
            return await run_jobs(self.runner, plans, JsonlLog(self.folder / f"{name}.jsonl"), provenance, WAVE, bar)

    def _cases(self, task_ids: set[str]) -> list[Case]:
        rows = JsonlLog(self.folder / "episodes.jsonl").read()
        played = [row for row in rows if row["status"] == "completed" and str(row["job"]["task_id"]) in task_ids]
        return [
            Case(row, Bank(), self.checkpoint, 0, row["job"]["task_id"], _channel(row["final"]["success"]))
            for row in played
        ]

    def _cards(self) -> list[Card]:
        return read_cards(JsonlLog(self.folder / "cards.jsonl"))


def draft_clusters(lessons: Sequence[Lesson], mechanisms: Mechanisms) -> list[Cluster]:
    """Clusters of each channel by itself, then those of one mechanism joined across the channels."""
    channels = [[item for item in lessons if item.channel == name] for name in ("failure", "success")]
    found = (cluster for channel in channels for cluster in clusters(channel, mechanisms))
    return aligned(found, mechanisms)


def draft_bank(compiled: Compiled, checkpoint: str) -> Bank:
    """The candidates as a bank that no gate has seen."""
    chunks = tuple(
        replace(item.chunk, skill_id=f"chunk-{hashlib.sha256(item.chunk.skill_id.encode()).hexdigest()[:12]}")
        for item in compiled.candidates
    )
    notes = f"Draft of a cold start at checkpoint {checkpoint}; no gate has measured it."
    return Bank(chunks, draft_only=True, notes=notes)


def _channel(success: bool) -> Channel:
    return "success" if success else "failure"


def _counts(cards: Sequence[Card]) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    for channel in ("success", "failure"):
        own = [card for card in cards if card.channel == channel]
        proposals = [card for card in own if card.outcome != "NO_PROPOSAL"]
        counts[channel] = {"cards": len(own), "proposals": len(proposals)}
    return counts


def _claim(folder: Path, settings: RunSettings, checkpoint: str) -> None:
    """Tie the folder to the settings. Raises `UserError` when it belongs to others."""
    meaning: Mapping[str, Any] = {"settings": settings.semantic(), "checkpoint": checkpoint}
    path = folder / "coldstart.json"
    if path.exists():
        found = read_json(path, SCHEMA)
        if found["fingerprint"] != fingerprint(meaning):
            changes = "; ".join(describe_difference(found["meaning"], meaning))
            raise UserError(f"{folder} belongs to a cold start with other settings ({changes}); choose another folder")
        return
    write_json_atomic(path, {"schema": SCHEMA, "meaning": meaning, "fingerprint": fingerprint(meaning)})
