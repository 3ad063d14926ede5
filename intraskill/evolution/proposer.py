"""From a round's failed retries to the gate's candidates: the analyst, the firewall and the compiler in one seat.

`observe` hands in each step's retries as soon as they are on disk. They are analysed one step after another in a
thread of its own, while training goes on; every finished card is appended to `analysis/cards.jsonl` in the order of
the episodes. `candidates` waits for the thread at the round's end, analyses what is still missing (after a kill that
may be all of it), and compiles. `settle` writes the ledger once the gate has judged.

Everything is derived from files: cards that are on disk are not made again, and candidates that were compiled from
exactly these cards are read back. So a run killed anywhere proposes what it would have proposed.

The queue holds failed full-bank retries and nothing else: a retry that succeeded needs no new skill, and one that broke
down for technical reasons says nothing. An analyst that fails makes a card without a proposal; training never stops
for it. After several failures in a row it isn't asked again in that round: an endpoint that hangs would hold up the
round's end by the hour.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from intraskill.core.errors import StateCorrupted, UserError
from intraskill.evolution.analysts.checked import checked_card
from intraskill.evolution.analysts.llm import LlmAnalyst
from intraskill.evolution.analysts.merge import Groups, merge_lessons
from intraskill.evolution.candidates import CandidateSource, NoCandidates, Proposed
from intraskill.evolution.cards import Lesson, card_record, read_cards, text_key
from intraskill.evolution.compiler import (
    Compiled,
    Limits,
    candidate_record,
    compile_candidates,
    dropped_record,
    parse_candidate,
    parse_dropped,
)
from intraskill.evolution.firewall import release
from intraskill.evolution.ledger import Ledger, LedgerRow
from intraskill.families.analysis import Analyst, Card, Case, Evolution, no_proposal
from intraskill.families.base import TaskFamily
from intraskill.gate.interventions import Candidate
from intraskill.gate.result import GateResult
from intraskill.policies.openai import Endpoint, OpenAIPolicy
from intraskill.settings.models import AnalystSettings, RunSettings
from intraskill.skills.bank import Bank
from intraskill.storage.run_folder import RunFolder
from intraskill.storage.store import JsonlLog, fingerprint, read_json, write_json_atomic

Merge = Callable[[Sequence[Lesson], Bank], Coroutine[Any, Any, "Groups | None"]]
Result = TypeVar("Result")
_GIVE_UP_AFTER = 8  # analyses in a row that failed
CANDIDATES_SCHEMA = "intraskill-candidates-v1"
SUMMARY_SCHEMA = "intraskill-analysis-v1"


def failed_retries(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The retries that ended without success, technical failures aside."""
    return [row for row in rows if row["status"] == "completed" and row["final"] and not row["final"]["success"]]


class Proposer:
    """The run's source of candidates, see above. Close it when the run ends."""

    def __init__(
        self,
        folder: RunFolder,
        analyst: Analyst,
        evolution: Evolution,
        limits: Limits,
        concurrency: int = 1,
        merge: Merge | None = None,
    ) -> None:
        self._folder, self._analyst, self._limits = folder, analyst, limits
        self._facts, self._mechanisms = evolution.facts(), evolution.mechanisms
        self._concurrency, self._merge = concurrency, merge
        self._ledger = Ledger(folder.ledger)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="analyst")
        self._running: list[Future[None]] = []
        self._working: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._busy_s = 0.0
        self._failed_in_a_row = 0
        self._observed_round: int | None = None

    def observe(self, round_index: int, bank: Bank, retries: Sequence[Mapping[str, Any]]) -> None:
        """Start analysing one step's retries; returns at once. After a kill, what earlier steps left comes first."""
        if self._observed_round != round_index:
            self._observed_round = round_index
            retries = JsonlLog(self._folder.round_dir(round_index) / "retries.jsonl").read() or retries
        if cases := [_case(row, bank) for row in failed_retries(retries)]:
            self._running.append(self._thread.submit(self._analyse, round_index, cases))

    async def candidates(self, round_index: int, bank: Bank, retries: Sequence[Mapping[str, Any]]) -> Proposed:
        """The round's candidates, after all of its failed retries were analysed."""
        failed = failed_retries(retries)
        missing = [_case(row, bank) for row in failed]
        self._running.append(self._thread.submit(self._analyse, round_index, missing))
        for running in self._running:
            await asyncio.wrap_future(running)
        self._running.clear()
        found = {card.card_id: card for card in self._cards(round_index)}
        cards = [found[case.card_id(self._analyst.name)] for case in missing]
        compiled = await asyncio.wrap_future(self._thread.submit(self._compile, round_index, bank, cards))
        summary = _summary(len(retries), cards, compiled)
        write_json_atomic(self._path(round_index, "summary.json"), {"schema": SUMMARY_SCHEMA, **summary})
        busy, self._busy_s, self._failed_in_a_row = self._busy_s, 0.0, 0
        metrics = {f"analysis/{name}": float(value) for name, value in summary.items() if name != "reasons"}
        return Proposed(compiled.candidates, {**metrics, "timing/analysis_s": busy})

    def settle(self, round_index: int, checkpoint: str, result: GateResult) -> None:
        """Write down what the gate made of the round's candidates, and what was dropped before it."""
        path = self._path(round_index, "candidates.json")
        if path.exists():
            compiled = _parse_compiled(read_json(path, CANDIDATES_SCHEMA), path)
            self._ledger.settle(round_index, ledger_rows(round_index, checkpoint, compiled, result))

    def close(self) -> None:
        """Give up what is still being analysed and wait for the thread to end; finished cards are on disk."""
        working = self._working
        if working is not None:
            loop, task = working
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(task.cancel)
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _analyse(self, round_index: int, cases: Sequence[Case]) -> None:
        """In the analyst's thread: cards for all cases that have none yet, appended in the order of the cases."""
        log = JsonlLog(self._path(round_index, "cards.jsonl"))
        known = {row["card_id"] for row in log.read()}
        new = [case for case in cases if case.card_id(self._analyst.name) not in known]
        if new:
            started = time.monotonic()
            asyncio.run(self._own(self._append(log, new)))
            self._busy_s += time.monotonic() - started

    async def _own(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do the work so that `close` can give it up."""
        task = asyncio.current_task()
        assert task is not None
        self._working = (asyncio.get_running_loop(), task)
        try:
            return await work
        finally:
            self._working = None

    async def _append(self, log: JsonlLog, cases: Sequence[Case]) -> None:
        limit = asyncio.Semaphore(self._concurrency)
        tasks = [asyncio.ensure_future(self._card(case, limit)) for case in cases]
        try:
            for task in tasks:
                log.append(card_record(await task))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._analyst.close()

    async def _card(self, case: Case, limit: asyncio.Semaphore) -> Card:
        async with limit:
            if self._failed_in_a_row >= _GIVE_UP_AFTER:
                reason = f"analyst_failed: not asked, for {_GIVE_UP_AFTER} analyses in a row had failed"
                return no_proposal(case, self._analyst.name, reason)
            card = await checked_card(self._analyst, case, self._facts)
            self._failed_in_a_row = self._failed_in_a_row + 1 if card.reason.startswith("analyst_failed") else 0
            return card

    def _cards(self, round_index: int) -> list[Card]:
        return read_cards(JsonlLog(self._path(round_index, "cards.jsonl")))

    def _compile(self, round_index: int, bank: Bank, cards: Sequence[Card]) -> Compiled:
        """Candidates from these cards: read back when they were compiled before, else made and written."""
        path = self._path(round_index, "candidates.json")
        inputs = fingerprint([[card.card_id for card in cards], bank.sha256])
        if path.exists():
            found = read_json(path, CANDIDATES_SCHEMA)
            if found.get("inputs") == inputs:
                return _parse_compiled(found, path)
        released = (release(card, self._facts)[0] for card in cards)
        lessons: list[Lesson] = [lesson for lesson in released if lesson is not None]
        groups = asyncio.run(self._own(self._merge(lessons, bank))) if self._merge else None
        ledger = self._ledger.rows(round_index)
        facts, mechanisms = self._facts, self._mechanisms
        compiled = compile_candidates(lessons, bank, ledger, facts, mechanisms, self._limits, groups)
        write_json_atomic(
            path,
            {
                "schema": CANDIDATES_SCHEMA,
                "inputs": inputs,
                "candidates": [candidate_record(candidate) for candidate in compiled.candidates],
                "dropped": [dropped_record(item) for item in compiled.dropped],
            },
        )
        return compiled

    def _path(self, round_index: int, name: str) -> Path:
        return self._folder.round_dir(round_index) / "analysis" / name


def open_proposer(settings: RunSettings, folder: RunFolder, family: TaskFamily) -> CandidateSource:
    """The source of candidates that the settings ask for. Raises `UserError` when the family has no such analyst."""
    if settings.analyst.kind == "none":
        return NoCandidates()
    evolution = evolution_of(family)
    analyst = open_analyst(settings, evolution)
    limits = Limits(settings.gate.candidates, settings.analyst.min_cards, settings.policy.style)
    if not isinstance(analyst, LlmAnalyst):
        return Proposer(folder, analyst, evolution, limits)

    async def merge(lessons: Sequence[Lesson], bank: Bank) -> Groups | None:
        try:
            name = f"merge-{bank.sha256[:8]}"
            return await merge_lessons(analyst.policy, analyst.briefing.merging, lessons, bank, name)
        finally:
            await analyst.close()

    return Proposer(folder, analyst, evolution, limits, settings.analyst.concurrency, merge)


def evolution_of(family: TaskFamily) -> Evolution:
    """What lets the family's bank evolve. Raises `UserError` when it has nothing of the kind."""
    evolution = family.evolution()
    if evolution is None:
        name = family.settings.family
        raise UserError(f"analyst.kind: nobody reads the failures of the family {name}; set analyst.kind to none")
    return evolution


def open_analyst(settings: RunSettings, evolution: Evolution) -> Analyst:
    """The analyst of the settings (`rules` where they name none). Raises `UserError` when the family has none such."""
    if settings.analyst.kind != "llm":
        return rules_analyst(settings, evolution)
    briefing = evolution.briefing()
    if briefing is None:
        raise UserError(
            f"analyst.kind: the family {settings.environment.family} has no briefing for a language model; "
            "set analyst.kind to rules"
        )
    return LlmAnalyst(briefing, analyst_policy(settings.analyst), settings.analyst.max_turns)


def rules_analyst(settings: RunSettings, evolution: Evolution) -> Analyst:
    """The analyst that needs no model, also the one that reads successes."""
    analyst = evolution.rules(settings.policy.style)
    if analyst is None:
        raise UserError(
            f"analyst.kind: the family {settings.environment.family} has no rules; set analyst.kind to llm or none"
        )
    return analyst


def analyst_policy(settings: AnalystSettings) -> OpenAIPolicy:
    """The endpoint of the settings. Raises `UserError` when its key is not there."""
    assert settings.url is not None  # the settings see to it
    assert settings.model is not None
    return OpenAIPolicy(Endpoint(settings.url, settings.model, settings.api_key_env, timeout_s=settings.timeout_s))


def ledger_rows(round_index: int, checkpoint: str, compiled: Compiled, result: GateResult) -> list[LedgerRow]:
    """One row a proposal: candidates with the gate's verdict, then what was dropped before it."""
    rows = [_judged(round_index, checkpoint, candidate, result) for candidate in compiled.candidates]
    for item in compiled.dropped:
        text = item.abstraction
        key = text_key(text.applies_when, text.procedure)
        rows.append(
            LedgerRow(
                round=round_index,
                checkpoint=checkpoint,
                candidate_id=f"dropped-{item.operation.lower()}-{item.target or item.mechanism}-{key}",
                operation=item.operation,
                family=item.target or item.mechanism,
                mechanism=item.mechanism,
                cards=item.cards,
                title=text.title,
                applies_when=text.applies_when,
                procedure=text.procedure,
                text_key=key,
                result=f"dropped: {item.reason}",
            )
        )
    return rows


def _judged(round_index: int, checkpoint: str, candidate: Candidate, result: GateResult) -> LedgerRow:
    chunk, name = candidate.chunk, candidate.chunk.skill_id
    estimate = next(iter(result.estimates.values()), None)
    verdicts = result.selection.rows if result.selection else ()
    verdict = next((row for row in verdicts if row.intervention_id == name), None)
    return LedgerRow(
        round=round_index,
        checkpoint=checkpoint,
        candidate_id=name,
        operation=candidate.operation,
        family=candidate.target or name,
        mechanism=str(chunk.metadata.get("mechanism", "")),
        cards=tuple(chunk.metadata.get("cards", ())),
        title=chunk.title,
        applies_when=chunk.applies_when,
        procedure=chunk.procedure,
        text_key=text_key(chunk.applies_when, chunk.procedure),
        result=verdict.status if verdict else "gate_incomplete",
        effect=estimate.coefficients[name] if estimate else None,
        standard_error=estimate.standard_errors[name] if estimate else None,
        rank=verdict.rank if verdict else None,
    )


def _case(row: Mapping[str, Any], bank: Bank) -> Case:
    return Case(row, bank, str(row["provenance"].get("checkpoint", "")), row["step"], row["group_index"])


def _summary(retries: int, cards: Sequence[Card], compiled: Compiled) -> dict[str, Any]:
    """Counts of one round's analysis; `reasons` tells why cards propose nothing."""
    outcomes = Counter(card.outcome for card in cards)
    operations = Counter(candidate.operation for candidate in compiled.candidates)
    proposals = [card for card in cards if card.outcome != "NO_PROPOSAL"]
    return {
        "retry_count": retries,
        "card_count": len(cards),
        "proposal_add_count": outcomes["PROPOSE_ADD"],
        "proposal_rewrite_count": outcomes["PROPOSE_REWRITE"],
        "no_proposal_count": outcomes["NO_PROPOSAL"],
        "verified_rate": sum(card.verified for card in proposals) / len(proposals) if proposals else 0.0,
        "firewall_count": sum(card.reason.startswith("firewall") for card in cards),
        "failure_count": sum(card.reason.startswith("analyst_failed") for card in cards),
        "candidate_add_count": operations["ADD"],
        "candidate_rewrite_count": operations["REWRITE"],
        "dropped_count": len(compiled.dropped),
        "reasons": dict(sorted(Counter(card.reason.split(":")[0] for card in cards if card.reason).items())),
    }


def _parse_compiled(record: Mapping[str, Any], path: Path) -> Compiled:
    """The content of `candidates.json`. Raises `StateCorrupted` when it isn't what was written there."""
    try:
        candidates = tuple(parse_candidate(item) for item in record["candidates"])
        return Compiled(candidates, tuple(parse_dropped(item) for item in record["dropped"]))
    except (KeyError, TypeError) as error:
        raise StateCorrupted(f"{path}: not a list of candidates ({error}); restore or delete the file") from error
