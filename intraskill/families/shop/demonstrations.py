"""Scripted demonstrations: episodes of a shopper who does what the chunks in the prompt say, and little else.

The warm-up checkpoint must be a policy for which skill text matters and which has something left to learn. So each
demonstrated episode shows a random set of chunks, and a need of the task is taken care of with probability
`FOLLOWED` if its chunk is visible, `UNPROMPTED` if not; the chunk that urges to haste is obeyed with probability
`HASTE_OBEYED` and then nothing is taken care of. Wordings and order of the chunks vary, so that their meaning is
learned rather than their spelling. Some episodes contain a **slip**, an action that is wrong or impossible, which the
shopper then recovers from; slips are context, never learned.

Episodes run through the real environment, prompt template and episode loop, and are kept as token ids with a mask.
As the demonstrator is random, no model can predict it with certainty. `floor` is its own surprise: minus the
log-probability of the learned actions under the demonstrator, which a trained model's cross-entropy cannot beat.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any

import numpy as np
from shopsimulator.actions import BACK, BUY, NEXT, PREVIOUS, option_action
from shopsimulator.words import ENGLISH

from intraskill.agent.demonstration import Demonstration
from intraskill.agent.episode import EpisodeSettings, run_episode
from intraskill.agent.segments import segments
from intraskill.core.protocol import Environment
from intraskill.core.records import Episode, EpisodeJob, Message, Reset
from intraskill.families.shop.family import Shop
from intraskill.families.shop.mechanisms import MECHANISMS
from intraskill.families.shop.prompts import PromptTemplate
from intraskill.families.shop.shopper import Action, Errand, Need, Tried, next_action, read_errand
from intraskill.families.shop.tools import PARAMETER_OF
from intraskill.policies.chat import ChatTemplate
from intraskill.policies.scripted import ScriptedPolicy, call_text
from intraskill.skills.bank import Bank, Chunk

FOLLOWED, UNPROMPTED, HASTE_OBEYED = 0.95, 0.15, 0.25
SLIP_SHARE = 0.15  # of the episodes
INVALID_SHARE = 0.6  # of the slips; the others are possible, but wrong
NO_CHUNKS, ALL_CHUNKS = 0.2, 0.1  # shares of the episodes; in the others each chunk is visible with probability 1/2
# How a tool call begins, and the buttons: one token each in a vocabulary made for the shop.
WHOLE = (
    *(f"<tool_call>\n<function={tool}>\n<parameter={name}>\n" for tool, name in PARAMETER_OF.items()),
    *(BACK, PREVIOUS, NEXT, BUY),
)
OWN_WORDING = 0.5  # how often a chunk is shown as the bank words it

# Other wordings of what a chunk can say: (applies_when, procedure). Those of useful mechanisms are the rules analyst's
# own, so that a model of this size understands what evolution proposes to it.
PARAPHRASES: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    name: tuple((wording.applies_when, wording.procedure) for wording in MECHANISMS[name].short)
    for name in ("brand", "recent", "colour", "budget")
} | {
    "idle": (
        ("every page", ("read it twice",)),
        ("any page", ("look at all of it",)),
        ("always", ("read with care",)),
    ),
    "haste": (
        ("every task", ("click the first of all", "buy fast")),
        ("always", ("save steps", "take the first result and the first options")),
        ("any task", ("do not compare", "buy the first thing")),
    ),
}


@dataclass(frozen=True)
class Stage:
    """Where demonstrations are played, and the seed of all their draws."""

    family: Shop
    task_ids: Sequence[str]
    bank: Bank
    template: PromptTemplate
    settings: EpisodeSettings
    seed: int

    def play(self, number: int, chat: ChatTemplate | None = None) -> tuple[Episode, Script]:
        """Demonstration `number`, a pure function of the stage; tasks take turns."""
        rng = random.Random(f"demonstration/{self.seed}/{number}")
        script = Script(rng, shown_chunks(rng, self.bank), self.settings.max_steps, slips=rng.random() < SLIP_SHARE)
        job = EpisodeJob(self.task_ids[number % len(self.task_ids)], number, number, "train")
        return asyncio.run(demonstrate(self.family, job, script, self.template, self.settings, chat)), script


def demonstrations(stage: Stage, chat: ChatTemplate, numbers: range) -> Iterator[Demonstration]:
    """The demonstrations with these numbers as training data."""
    for number in numbers:
        yield _demonstration(*stage.play(number, chat))


def shown_texts(stage: Stage, numbers: range) -> Iterator[str]:
    """Everything read or written in these demonstrations, message by message: what a vocabulary is made of."""
    for number in numbers:
        episode, _ = stage.play(number)
        for message in episode.messages:
            yield str(message.get("content") or "")
            for call in message.get("tool_calls", ()):
                yield from json.loads(call["function"]["arguments"]).values()


async def demonstrate(
    family: Shop,
    job: EpisodeJob,
    script: Script,
    template: PromptTemplate,
    settings: EpisodeSettings,
    chat: ChatTemplate | None = None,
) -> Episode:
    """Play one episode by script through the ordinary episode loop."""
    policy = ScriptedPolicy(script.reply, chat)
    env = _Briefed(policy.watch(family.new_environment(job)), script)
    group = f"demonstration-{job.sample_id}"
    return await run_episode(job, family, env, policy, template, script.chunks, settings, group)


def shown_chunks(rng: random.Random, bank: Bank) -> tuple[Chunk, ...]:
    """A random selection of the bank's chunks in random wordings, half of the time in another order."""
    kind = rng.random()
    if kind < NO_CHUNKS:
        return ()
    everything = kind < NO_CHUNKS + ALL_CHUNKS
    shown = [_reworded(rng, chunk) for chunk in bank.chunks if everything or rng.random() < 0.5]
    if rng.random() < 0.5:
        rng.shuffle(shown)
    return tuple(shown)


def _reworded(rng: random.Random, chunk: Chunk) -> Chunk:
    if rng.random() < OWN_WORDING:
        return chunk
    applies_when, procedure = rng.choice(PARAPHRASES[mechanism(chunk)])
    return replace(chunk, applies_when=applies_when, procedure=procedure)


def mechanism(chunk: Chunk) -> str:
    """What the chunk is about; scripted behaviour needs it said in the metadata."""
    return str(chunk.metadata["mechanism"])


def care_probability(care: frozenset[Need], needs: Sequence[Need], visible: frozenset[str]) -> float:
    """Probability that the demonstrator takes care of exactly `care` out of `needs`, given the visible mechanisms."""
    hasty = HASTE_OBEYED if "haste" in visible else 0.0
    attentive = math.prod(
        rate if need in care else 1 - rate for need in needs for rate in (FOLLOWED if need in visible else UNPROMPTED,)
    )
    return hasty * (not care) + (1 - hasty) * attentive


class Script:
    """The demonstrator's side of one episode: its care, its slip if any, and a record of what it did."""

    def __init__(self, rng: random.Random, chunks: tuple[Chunk, ...], max_steps: int, *, slips: bool = False) -> None:
        self.chunks = chunks
        self._rng = rng
        self._max_steps = max_steps
        self._slip_at = rng.randrange(5) if slips else None
        self._visible = frozenset(map(mechanism, chunks))
        self._tried = Tried()
        self._weights: dict[frozenset[Need], float] = {}  # of each care that explains the actions so far
        self._care: frozenset[Need] = frozenset()
        self._errand: Errand | None = None
        self.slipped: list[bool] = []  # per step

    @property
    def floor(self) -> float:
        """Minus the log-probability of all actions except slips, given everything seen."""
        return -math.log(sum(self._weights.values()))

    def brief(self, reset: Reset) -> None:
        """Read the errand and draw the care taken of it."""
        self._errand = read_errand(reset)
        needs = self._errand.needs
        cares = [frozenset(care) for care in chain.from_iterable(combinations(needs, n) for n in range(len(needs) + 1))]
        self._weights = {care: care_probability(care, needs, self._visible) for care in cares}
        self._care = self._rng.choices(cares, weights=list(self._weights.values()))[0]

    def reply(self, state: dict[str, Any], messages: Sequence[Message]) -> str:
        """The next tool call."""
        assert self._errand is not None
        steps = self._max_steps - len(self.slipped)
        planned = {care: next_action(self._errand, care, state, self._tried, steps) for care in self._weights}
        slip = len(self.slipped) == self._slip_at
        action = _slip(self._rng, self._errand, self._care, state) if slip else planned[self._care]
        if not slip:
            self._weights = {care: weight for care, weight in self._weights.items() if planned[care] == action}
        self.slipped.append(slip)
        self._tried.note(action, state)
        return _written(action)


def _written(action: Action) -> str:
    """The call, its words spelled as they are read: brands and materials after a blank, a colour after its `colour=`.

    So they are the same tokens in both places; the shop drops the blank.
    """
    tool, argument = action
    if tool == "click":
        return call_text("click", value=argument)
    blank = "" if argument.split()[0] in ENGLISH.colours else " "
    return call_text("search", query=f"{blank}{argument}")


def _slip(rng: random.Random, errand: Errand, care: frozenset[Need], state: dict[str, Any]) -> Action:
    """An action that is impossible on this page, or possible and wrong."""
    if rng.random() < INVALID_SHARE:
        return _impossible(rng, errand, care, state)
    if state["search_available"]:
        query = errand.query(care).split()
        query[rng.randrange(len(query))] = rng.choice((*ENGLISH.brands, *ENGLISH.materials, *ENGLISH.colours))
        return "search", " ".join(query)
    return "click", rng.choice([value for value in state["actions"] if value != BUY])


def _impossible(rng: random.Random, errand: Errand, care: frozenset[Need], state: dict[str, Any]) -> Action:
    """Something that cannot be clicked here, often a product's number miscopied; or a search where there is none."""
    if not state["search_available"] and rng.random() < 0.1:
        return "search", errand.query(care)
    numbers = [row["asin"] for row in state.get("products", ())]
    if numbers and rng.random() < 0.7:
        number = f"{rng.choice(numbers)[:-2]}{rng.randrange(100):02d}"
        if number not in numbers:
            return "click", number
    options = [option_action(ENGLISH.colour_axis, colour) for colour in ENGLISH.colours]
    options += [option_action(ENGLISH.size_axis, size) for size in ENGLISH.sizes]
    return "click", rng.choice([word for word in (*options, BACK, PREVIOUS, NEXT, BUY) if word not in state["actions"]])


class _Briefed:
    """An environment whose reset is also read by the script."""

    def __init__(self, env: Environment, script: Script) -> None:
        self._env = env
        self._script = script
        self.step, self.terminate, self.close, self.identity = env.step, env.terminate, env.close, env.identity

    async def reset(self, task_id: str) -> Reset:
        reset = await self._env.reset(task_id)
        self._script.brief(reset)
        return reset


def _demonstration(episode: Episode, script: Script) -> Demonstration:
    (segment,) = segments(episode, 0)
    learned = np.array(segment.loss_mask, dtype=bool)
    for step, slipped in zip(episode.steps, script.slipped):
        if slipped:
            start = len(step.turn.prompt_ids)
            learned[start : start + len(step.turn.token_ids)] = False
    token_ids = np.array(segment.token_ids, dtype=np.int32)
    return Demonstration(episode.job.task_id, token_ids, learned, script.floor, episode.success)
