"""What a family adds so that its skill bank can evolve, and the evidence it does so with.

A failed episode becomes a **case**; an **analyst** looks at it, in private: it may know the world, the task's goal and
the reward. It returns one **card** in two parts that never mix. The `PrivilegedAudit` says everything: the task, the
goal, the decision that went wrong, what proved the repair. It stays on disk. The `Abstraction` is the deployable part:
a mechanism in general words, written as a chunk would be. An analyst proposes something only when it has proved the
repair in a fresh session.

What must not pass from one part to the other are the family's **facts**: names of things, passages, patterns, and what
belongs to the very task. A family without an `Evolution` can be trained on; its bank is then only measured and pruned.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

from intraskill.core.errors import TechnicalFailure
from intraskill.core.protocol import Environment
from intraskill.core.records import EpisodeJob, Reset, StepResult, Style, Tool, ToolCall
from intraskill.core.words import squeezed
from intraskill.skills.bank import Bank, Chunk

LONG_NAME = 6  # characters from which a name counts inside a longer word

Outcome = Literal["PROPOSE_ADD", "PROPOSE_REWRITE", "NO_PROPOSAL"]
Channel = Literal["failure", "success"]


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
    def job(self) -> EpisodeJob:
        return EpisodeJob.from_record(self.trace["job"])

    @property
    def task_id(self) -> str:
        return self.job.task_id

    @property
    def actions(self) -> list[str | None]:
        """The action of each step; None where a reply never reached the environment."""
        return [step["action"] for step in self.trace["steps"]]

    def states(self) -> list[dict[str, Any]]:
        """The state each step was decided in."""
        state, states = self.trace["reset"]["observation_state"], []
        for step in self.trace["steps"]:
            states.append(state)
            if step["action"] is not None and step["environment"] is not None:
                state = step["environment"]["observation_state"]
        return states

    def card_id(self, analyst: str) -> str:
        """An opaque name of the card; the same evidence has the same name."""
        place = (self.step, self.group_index, self.trace["episode_id"])
        text = "\x1f".join(map(str, (self.checkpoint, self.channel, analyst, *place)))
        return f"card-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class PrivilegedAudit:
    """What only an auditor may read. `repair` are the actions that led to `ending`, judged in `reward_detail`.

    `ending` is what the family says of how the repair ended; `verified` whether it really succeeded.
    """

    task_id: str
    episode_id: str
    split: str
    category: str = ""
    decision_step: int | None = None
    original_action: str | None = None
    repair: tuple[str, ...] = ()
    ending: dict[str, Any] = field(default_factory=dict)
    reward_detail: dict[str, Any] = field(default_factory=dict)
    verified: bool = False
    goal: dict[str, Any] = field(default_factory=dict)
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Abstraction:
    """A mechanism in words for any task: when it applies, what to do, how to check it, what to avoid."""

    mechanism: str
    title: str
    applies_when: str
    procedure: tuple[str, ...]
    verify: str = ""
    avoid: str = ""

    def texts(self) -> dict[str, str]:
        """Every text a reader of the chunk could see, by field."""
        texts = {name: str(getattr(self, name)) for name in ("mechanism", "title", "applies_when", "verify", "avoid")}
        return texts | {f"procedure[{i}]": step for i, step in enumerate(self.procedure)}


@dataclass(frozen=True, slots=True)
class Card:
    """One analysed episode. Without a proposal, `reason` says why."""

    card_id: str
    channel: Channel
    analyst: str
    checkpoint: str
    step: int
    group_index: int
    outcome: Outcome
    reason: str
    target: str | None
    privileged_audit: PrivilegedAudit
    deployable_abstraction: Abstraction | None = None

    @property
    def verified(self) -> bool:
        """Whether an episode that really succeeded stands behind it."""
        return self.privileged_audit.verified


class Analyst(Protocol):
    """Finds out what one episode lacked (or, for a success, what it rested on)."""

    name: str

    async def analyse(self, case: Case) -> Card: ...

    async def close(self) -> None:
        """Give back what the analyst holds."""


class Passages(Protocol):
    """Texts of the world that must not be quoted, such as names of things; looks for them in folded text."""

    def find(self, text: str) -> Iterable[tuple[str, str]]:
        """(reason, the passage) of what stands in the text, also misspelt or in part."""

    def spelt_out(self, whole: str) -> tuple[str, str] | None:
        """(reason, the passage) of what stands in a text without its spaces and punctuation."""


@dataclass(frozen=True, slots=True)
class OwnFacts:
    """What belongs to one task: names that its goal holds, and numbers."""

    names: tuple[str, ...] = ()
    numbers: frozenset[float] = frozenset()


@dataclass(frozen=True)
class Facts:
    """What a family's tasks must keep to themselves. `train_ids` are the only tasks evidence may come from.

    `names` are identifiers (lower case) and `patterns` what no text may match, each by the reason of a hit.
    """

    task_ids: frozenset[str]
    train_ids: frozenset[str]
    names: Mapping[str, frozenset[str]]
    passages: Passages
    patterns: tuple[tuple[str, re.Pattern[str]], ...]
    own: Callable[[PrivilegedAudit], OwnFacts]

    @cached_property
    def long_names(self) -> tuple[tuple[str, str], ...]:
        """(reason, name) of the names that cannot stand inside a longer word by chance, squeezed."""
        squeezed_names = ((reason, squeezed(name)) for reason, names in self.names.items() for name in names)
        return tuple((reason, word) for reason, word in squeezed_names if len(word) >= LONG_NAME)


class Mechanisms(Protocol):
    """The kinds of care that the family has words for; any other name is a mechanism somebody made up."""

    def names(self) -> Collection[str]: ...

    def wordings(self, name: str, title: str, style: Style) -> Sequence[tuple[str, tuple[str, ...]]]:
        """(applies_when, procedure) of every wording of the mechanism of this name and title; empty if unknown."""

    def of(self, chunk: Chunk) -> str | None:
        """The mechanism a chunk is about, as far as can be told."""


class Briefing(Protocol):
    """What a language model is told and offered when it analyses this family's failures.

    `verify` says how an agent can check a repair in time, `unproven` is the answer to a proposal that no trial of its
    own has proved.
    """

    system: str
    merging: str  # for putting lessons together
    verify: str
    unproven: str
    tools: tuple[Tool, ...]

    def account(self, case: Case) -> str:
        """The failed attempt as the model reads it."""

    def new_environment(self, case: Case) -> Environment:
        """A fresh session to try things in."""

    def action(self, case: Case, call: ToolCall) -> str:
        """The environment's action. Raises `ValueError` with what the model has to mend."""

    def inspect(self, case: Case, call: ToolCall) -> str | None:
        """The answer to a call that acts on nothing; None where the call is an action."""


class Evolution(Protocol):
    """What lets a family's bank evolve."""

    @property
    def mechanisms(self) -> Mechanisms: ...

    def facts(self) -> Facts:
        """Made once a run."""

    def rules(self, style: Style) -> Analyst | None:
        """The analyst that needs no language model, its wordings in this style; None where the family has none."""

    def briefing(self) -> Briefing | None:
        """For the analyst that asks a language model; None where the family has not written one."""


class ReplayDiverged(TechnicalFailure):
    """A replayed action did not lead where it led in the trace: the world is another one."""

    def __init__(self, message: str) -> None:
        super().__init__("replay", message)


async def replay(env: Environment, case: Case, count: int) -> Reset | StepResult:
    """Play the first `count` steps of the trace in `env`. Raises `ReplayDiverged` when an observation differs."""
    page: Reset | StepResult = await env.reset(case.task_id)
    for step in case.trace["steps"][:count]:
        if step["action"] is None:
            continue
        page = await env.step(step["action"])
        if page.observation != step["environment"]["observation"]:
            raise ReplayDiverged(f"{case.trace['episode_id']}, step {step['step']}: the page differs from the trace")
    return page


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


def bare_audit(case: Case) -> PrivilegedAudit:
    """What is known of a case before anybody looked at it."""
    final = case.trace["final"] or {}
    return PrivilegedAudit(
        task_id=case.task_id,
        episode_id=str(case.trace["episode_id"]),
        split=str(case.trace["job"]["split"]),
        goal=dict(final.get("goal") or {}),
    )
