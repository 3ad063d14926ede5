"""A small world and a policy that plays it from the page text alone, without a model."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from shopsimulator.actions import option_action
from shopsimulator.search import SearchIndex

from intraskill.agent.episode import EpisodeSettings
from intraskill.core.progress import Reporter
from intraskill.core.records import Sampling
from intraskill.evolution.candidates import NoCandidates
from intraskill.families.shop.family import open_shop
from intraskill.families.shop.settings import ShopSettings, WorldSettings
from intraskill.policies.scripted import call_text, turn_of
from intraskill.rollout.runner import EpisodeRunner
from intraskill.settings.models import RunSettings
from intraskill.skills.bank import Bank, Chunk
from intraskill.storage.run_folder import RunFolder
from intraskill.training.driver import RoundDriver
from intraskill.training.run import Run


class Killed(BaseException):
    """Stands for a kill: nothing on the way up may catch it."""


def any_choice(page: str, draw: random.Random) -> str:
    """What to click on a compact page: one of the first two results, any value of an open axis, or the buy button."""
    lines = page.splitlines()
    chosen = {line.partition("=")[0] for line in lines if line.endswith(" *")}
    values = [line for line in lines if "=" in line and line.partition("=")[0] not in chosen]
    if values:
        first = values[0].partition("=")[0]
        return draw.choice([line for line in values if line.startswith(first)])
    return (
        "buy now" if "buy now" in lines else draw.choice([line.split()[0] for line in lines if line[:1].isdigit()][:2])
    )


class PagePolicy:
    """Buys the first thing it finds; shown the chunk about care it compares, shown the one about haste it errs."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.turns = 0
        self.fail_after = fail_after

    async def generate(self, request):
        self.turns += 1
        if self.fail_after is not None and self.turns > self.fail_after:
            raise Killed
        length = len(request.messages)
        return replace(
            turn_of(self._reply(request, random.Random(request.seed))),
            prompt_ids=tuple(range(length)) if request.previous is None else _longer(request.previous),
            token_ids=(7, 8),
            log_probs=(-0.5, -0.25),
            weight_version="scripted",
        )

    def _reply(self, request, draw) -> str:
        system, page = request.messages[0]["content"], request.messages[-1]["content"]
        if "hurry" in system and draw.random() < 0.5:
            return "I would rather talk."
        if page.endswith("search"):
            words = re.findall(r"[a-z]+", request.messages[1]["content"].splitlines()[0])
            return call_text("search", query=" ".join(words) if "carefully" in system else words[-1])
        return call_text("click", value=any_choice(page, draw))

    async def score(self, token_ids):
        raise NotImplementedError

    def open_session(self, session):
        pass

    def close_session(self, session):
        pass

    def identity(self):
        return {"model": "page-policy"}


def _longer(previous):
    return (*previous.prompt_ids, *previous.token_ids, 9)


CARE = Chunk("care", title="Care", applies_when="always", procedure=("search carefully",))
HASTE = Chunk("haste", title="Haste", applies_when="always", procedure=("hurry",))


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    settings = ShopSettings(world=WorldSettings(generate="small"))
    return open_shop(settings, tmp_path_factory.mktemp("worlds"))


@pytest.fixture
def bank() -> Bank:
    return Bank((CARE, HASTE))


@pytest.fixture
def make_runner(world):
    def make(policy=None) -> EpisodeRunner:
        limits = EpisodeSettings(10, Sampling(1.0, 1.0, -1, 32), "static")
        return EpisodeRunner(world, policy or PagePolicy(), world.prompt("compact"), limits)

    return make


@pytest.fixture
def settings() -> RunSettings:
    return RunSettings.model_validate(
        {
            "name": "test",
            "rounds": 2,
            "steps_per_round": 2,
            "rollout": {"group_size": 4, "generated_groups": 6, "kept_groups": 4},
            "gate": {"tasks": 40},
            "report": {"wandb": "disabled"},
        }
    )


@pytest.fixture
def make_driver(world, make_runner, settings, bank):
    def make(path: Path, policy=None, **changes) -> RoundDriver:
        run = Run(
            settings=settings.model_copy(update=changes),
            folder=RunFolder(path),
            runner=make_runner(policy),
            splits=world.splits(),
            bank=bank,
            proposer=NoCandidates(),
            reporter=Reporter(quiet=True),
            wave_size=10,
        )
        driver = RoundDriver(run)
        driver.checkpoint = "scripted"
        return driver

    return make


@pytest.fixture
def page_policy():
    return PagePolicy


@pytest.fixture
def killed():
    return Killed


@pytest.fixture
def skills() -> Bank:
    """Three chunks whose mechanisms the rules know; nothing about the usual brand."""

    def chunk(name, applies_when, *procedure):
        return Chunk(name, 1, name, applies_when, procedure, metadata={"mechanism": name})

    return Bank(
        (
            chunk("recent", "searched material", "search with the last searched word"),
            chunk("colour", "my colour", "search with the colour i like", "choose it"),
            chunk("budget", "price limit", "open the cheapest result", "too dear: choose another size"),
        )
    )


@pytest.fixture
def analyst_world(world):
    from intraskill.families.shop.analysts.world import AnalystWorld

    return AnalystWorld(world.world, world.new_environment)


@pytest.fixture
def briefing(analyst_world):
    from intraskill.families.shop.analysts.briefing import ShopBriefing

    return ShopBriefing(analyst_world)


@pytest.fixture(scope="session")
def evolution(world):
    return world.evolution()


@pytest.fixture(scope="session")
def facts(evolution):
    return evolution.facts()


@pytest.fixture
def play(world):
    """play(task_id, actions) -> the trace row of an episode with exactly these actions (None: a reply without call)."""
    from intraskill.agent.episode import run_episode
    from intraskill.agent.trace import episode_trace
    from intraskill.core.records import EpisodeJob
    from intraskill.policies.scripted import ScriptedPolicy

    async def make(task_id, actions, *, step=1, group=0, split="train", max_steps=10, source=None):
        left = list(actions)

        def reply(state, messages):
            action = left.pop(0) if left else None
            if action is None:
                return "hm"
            verb, _, value = action.rstrip("]").partition("[")
            return call_text(verb, **{"query" if verb == "search" else "value": value})

        policy = ScriptedPolicy(reply)
        family = source or world
        env = policy.watch(family.new_environment())
        job = EpisodeJob(str(task_id), 4, group, split)
        limits = EpisodeSettings(max_steps, Sampling(), "static")
        episode = await run_episode(job, family, env, policy, family.prompt("compact"), (), limits, "g")
        trace = episode_trace(episode, {"checkpoint": "ck-1"})
        return {"step": step, "group_index": group, **trace}

    return make


class Shopper:
    """What a careless shopper does on a task of the small world, and what the task asks for."""

    def __init__(self, world) -> None:
        self.catalog = world.catalog
        self.index = SearchIndex(world.catalog)
        self.train = world.splits().train
        self.titles = {word for product in world.catalog.products.values() for word in product.title.split()}

    def stated(self, task_id):
        task = self.catalog.tasks[int(task_id)]
        return " ".join(word for word in task.instruction_simple.split() if word in self.titles)

    def tasks(self, phrase):
        """Training tasks with exactly one need, recognised by a phrase of the instruction."""
        marks = ("usual brand", "last", "colour", "under")
        wishes = {task_id: self.catalog.tasks[int(task_id)].instruction_simple for task_id in self.train}
        return [t for t, wish in wishes.items() if [mark for mark in marks if mark in wish] == [phrase]]

    def first_of_all(self, world, task_id, query=None):
        """Search, open the first result, click the first value of every axis, buy."""
        query = query or self.stated(task_id)
        asin = self.found(query)
        return [f"search[{query}]", f"click[{asin}]", *self.first_values(asin), "click[buy now]"]

    def found(self, query, position=0):
        """The asin of a result."""
        return self.index.asins(query, 4)[position]

    def first_values(self, asin):
        options = self.catalog.products[asin].options
        return [f"click[{option_action(axis, values[0].value)}]" for axis, values in options.items()]


@pytest.fixture(scope="session")
def shopper(world):
    return Shopper(world)
