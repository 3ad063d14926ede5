"""What an analyst gets and gives.

An analyst looks at one finished episode, in private: it may know the catalog, the task's goal and the reward. It
returns one `Card`. It proposes something only when a real purchase in a fresh session has proved the repair. Whatever
goes wrong in an analyst is the analyst's problem: it becomes a card without a proposal, never an error of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from shopsimulator.catalog import Catalog, Product, PurchaseTask
from shopsimulator.wording import Rendering, Words, words

from intraskill.core.errors import TechnicalFailure
from intraskill.core.protocol import Environment
from intraskill.core.records import Reset, StepResult
from intraskill.evolution.cards import Card, Channel, PrivilegedAudit, card_id, card_record
from intraskill.evolution.firewall import Facts, held_back, release
from intraskill.skills.bank import Bank
from intraskill.storage.store import encode


@dataclass(frozen=True)
class Case:
    """One finished episode to look at: its trace, the bank of its time, and where it happened."""

    trace: Mapping[str, Any]
    bank: Bank
    checkpoint: str
    step: int
    group_index: int
    channel: Channel = "failure"

    @property
    def task_id(self) -> str:
        return str(self.trace["job"]["task_id"])

    @property
    def actions(self) -> list[str | None]:
        """The action of each step; None where a reply never reached the environment."""
        return [step["action"] for step in self.trace["steps"]]

    def states(self) -> list[dict[str, Any]]:
        """The page each step was decided on."""
        state, states = self.trace["reset"]["observation_state"], []
        for step in self.trace["steps"]:
            states.append(state)
            if step["action"] is not None and step["environment"] is not None:
                state = step["environment"]["observation_state"]
        return states

    def card_id(self, analyst: str) -> str:
        episode = str(self.trace["episode_id"])
        return card_id(self.checkpoint, self.channel, analyst, self.step, self.group_index, episode)


@dataclass(frozen=True)
class AnalystWorld:
    """The world as an analyst sees it: everything in the catalog, and fresh sessions to try things in."""

    catalog: Catalog
    new_environment: Callable[[], Environment]
    max_steps: int

    def task(self, task_id: str) -> PurchaseTask:
        return self.catalog.tasks[int(task_id)]

    def goal(self, task_id: str) -> Product:
        return self.catalog.products[self.task(task_id).asin]

    @cached_property
    def words(self) -> Words:
        """The words on the pages' buttons."""
        identity = self.new_environment().identity()
        rendering: Rendering = "compact" if identity.get("rendering") == "compact" else "full"
        return words(self.catalog.language, rendering)


class Analyst(Protocol):
    """Finds out what one episode lacked (or, for a success, what it rested on)."""

    name: str

    async def analyse(self, case: Case) -> Card: ...

    async def close(self) -> None:
        """Give back what the analyst holds."""


class ReplayDiverged(TechnicalFailure):
    """A replayed action did not lead where it led in the trace: the world is another one."""

    def __init__(self, message: str) -> None:
        super().__init__("replay", message)


def no_proposal(case: Case, analyst: str, reason: str, audit: PrivilegedAudit | None = None) -> Card:
    """The card of a case that led to nothing."""
    return Card(
        card_id=case.card_id(analyst),
        channel=case.channel,
        analyst=analyst,
        checkpoint=case.checkpoint,
        step=case.step,
        group_index=case.group_index,
        outcome="NO_PROPOSAL",
        reason=reason,
        target=None,
        privileged_audit=audit or bare_audit(case),
    )


async def checked_card(analyst: Analyst, case: Case, facts: Facts) -> Card:
    """The analyst's card after the firewall; the only place where an analyst's failure is caught."""
    try:
        card = await analyst.analyse(case)
        _, hits = release(card, facts)
        card = held_back(card, hits) if hits else card
        encode(card_record(card))  # half a character, which a model can write in JSON, fits into no file
    except Exception as error:  # whatever an analyst does wrong must not end a run
        said = " ".join(str(error).split()).encode("utf-8", "replace").decode("utf-8")
        return no_proposal(case, analyst.name, f"analyst_failed: {type(error).__name__}: {said}")
    return card


def bare_audit(case: Case) -> PrivilegedAudit:
    final = case.trace["final"] or {}
    return PrivilegedAudit(
        task_id=case.task_id,
        episode_id=str(case.trace["episode_id"]),
        split=str(case.trace["job"]["split"]),
        goal=dict(final.get("goal") or {}),
    )


async def replay(env: Environment, case: Case, count: int) -> Reset | StepResult:
    """Play the first `count` steps of the trace in `env`. Raises `ReplayDiverged` when a page differs."""
    page: Reset | StepResult = await env.reset(case.task_id)
    for step in case.trace["steps"][:count]:
        if step["action"] is None:
            continue
        page = await env.step(step["action"])
        if page.observation != step["environment"]["observation"]:
            raise ReplayDiverged(f"{case.trace['episode_id']}, step {step['step']}: the page differs from the trace")
    return page
