"""What every task family promises, whatever its tasks are about.

A `Specimen` is an opened family with what a test has to know of it: a task and the actions that solve it, an action
that the environment refuses, and replies that the family reads, or doesn't.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest

from intraskill.agent.episode import EpisodeSettings, run_episode
from intraskill.agent.trace import episode_from_trace, episode_trace
from intraskill.core.errors import UserError
from intraskill.core.protocol import Environment
from intraskill.core.records import EpisodeJob, ToolCall, Turn, task_order
from intraskill.families.base import ProtocolError, TaskFamily
from intraskill.families.guess.family import Guess
from intraskill.families.guess.settings import GuessSettings
from intraskill.families.registry import FAMILIES, SETTINGS, kind_of
from intraskill.families.shop.family import Shop, open_shop
from intraskill.families.shop.settings import ShopSettings, WorldSettings
from intraskill.policies.scripted import ScriptedPolicy, call_text
from intraskill.rollout.episode_numbers import read_numbers
from intraskill.skills.bank import Chunk
from intraskill.storage.store import JsonlLog

CHUNK = Chunk("halve", title="Halve", applies_when="always", procedure=("xylophone",))


@dataclass
class Specimen:
    """One family to look at. `solution` solves `task`, `secret` is what nothing public may show before the end."""

    family: TaskFamily
    task: str
    solution: tuple[str, ...]
    idle: str
    refused: str
    readable: Turn
    unreadable: Turn
    replies: tuple[str, ...]  # of a policy that solves the task
    secret: str | None
    open: list[Environment] = field(default_factory=list)

    def environment(self, seed: int = 0) -> Environment:
        self.open.append(self.family.new_environment(self.job(seed)))
        return self.open[-1]

    def job(self, seed: int = 0) -> EpisodeJob:
        return EpisodeJob(self.task, 0, seed, "train")


def turn(content: str = "", *calls: ToolCall) -> Turn:
    return Turn(content, content, "", calls, "stop")


def guess(request: pytest.FixtureRequest) -> Specimen:
    family = Guess(GuessSettings(max_steps=6), request.getfixturevalue("tmp_path"))
    return Specimen(
        family,
        task="7",
        solution=("30", "3", "7"),
        idle="1",
        refused="seven",
        readable=turn("I say 7, or 8"),
        unreadable=turn("hm"),
        replies=("30?", "3 then", "7"),
        secret=None,
    )


def shop(request: pytest.FixtureRequest) -> Specimen:
    cache = request.getfixturevalue("shop_worlds")
    family = open_shop(ShopSettings(world=WorldSettings(generate="small"), max_steps=6), cache)
    return _shop(family)


def served_shop(request: pytest.FixtureRequest) -> Specimen:
    cache, serve = (request.getfixturevalue(name) for name in ("shop_worlds", "serve"))
    local = open_shop(ShopSettings(world=WorldSettings(generate="small"), max_steps=6), cache)
    url = serve(local.source.world, slots=4, lease_ttl_s=30).url
    return _shop(open_shop(local.settings.at(url), cache))


def _shop(family: Shop) -> Specimen:
    """A task that needs no more than finding its product, with any choice of options."""
    tasks = family.catalog.tasks
    needs = {
        task: (tasks[int(task)].instruction_options, tasks[int(task)].price_upper) for task in family.splits().train
    }
    task = next(task for task, (options, price) in needs.items() if not options and price is None)
    goal = family.catalog.products[tasks[int(task)].asin]
    clicks = ["1", *(values[0].value for values in goal.options.values()), "buy"]
    call = ToolCall("search", {"query": goal.title}, "c1")
    return Specimen(
        family,
        task,
        solution=(f"search[{goal.title}]", *(f"click[{value}]" for value in clicks)),
        idle="search[shelf]",
        refused="click[nothing]",
        readable=turn("", call),
        unreadable=turn("no"),
        replies=(call_text("search", query=goal.title), *(call_text("click", value=value) for value in clicks)),
        secret=goal.asin,
    )


SPECIMENS: list[Callable[[pytest.FixtureRequest], Specimen]] = [guess, shop, served_shop]


@pytest.fixture(scope="module")
def shop_worlds(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("worlds")


@pytest.fixture(params=SPECIMENS, ids=lambda make: make.__name__)
async def specimen(request: pytest.FixtureRequest) -> Any:
    made = request.param(request)
    yield made
    for environment in made.open:
        await environment.close()


def test_every_registered_family_is_looked_at():
    assert {make.__name__ for make in SPECIMENS} >= set(FAMILIES)


async def test_an_environment_shows_the_public_task(specimen):
    environment = specimen.environment()
    assert isinstance(environment, Environment)
    reset = await environment.reset(specimen.task)
    assert reset.task_id == specimen.task
    assert reset.instruction
    assert reset.observation


async def test_the_solution_is_a_success_with_its_reward(specimen):
    environment = specimen.environment()
    await environment.reset(specimen.task)
    for action in specimen.solution[:-1]:
        result = await environment.step(action)
        assert result.feedback["valid"], action
        assert (result.done, result.reward, result.success, result.detail) == (False, 0.0, False, {})
        assert (result.goal, result.termination) == (None, None)
    result = await environment.step(specimen.solution[-1])
    assert (result.done, result.reward, result.success) == (True, 1.0, True)
    assert result.goal
    assert result.termination
    assert set(specimen.family.settings.reward_parts) <= result.detail.keys()
    assert all(0 <= result.detail[part] <= 1 for part in specimen.family.settings.reward_parts)


async def test_a_refused_action_is_answered_not_raised(specimen):
    environment = specimen.environment()
    await environment.reset(specimen.task)
    for action in ("", specimen.refused):
        result = await environment.step(action)
        assert not result.feedback["valid"]
        assert result.feedback["reason"] != "executed"
        assert not result.done
    assert (await environment.step(specimen.idle)).feedback["valid"]


async def test_the_budget_ends_the_episode_within_the_step(specimen):
    environment, budget = specimen.environment(), specimen.family.settings.max_steps
    await environment.reset(specimen.task)
    results = [await environment.step(specimen.idle) for _ in range(budget)]
    assert [result.done for result in results] == [False] * (budget - 1) + [True]
    last = results[-1]
    assert (last.reward, last.success, last.termination) == (0.0, False, "action_limit")
    assert last.goal


@pytest.mark.parametrize("reason", ["action_limit", "generation_length"])
async def test_terminate_scores_zero(specimen, reason):
    environment = specimen.environment()
    await environment.reset(specimen.task)
    result = await environment.terminate(reason)
    assert (result.done, result.reward, result.success, result.termination) == (True, 0.0, False, reason)
    assert result.goal


async def test_an_unknown_ending_is_refused_and_changes_nothing(specimen):
    environment = specimen.environment()
    await environment.reset(specimen.task)
    with pytest.raises(UserError, match="boredom"):
        await environment.terminate("boredom")  # type: ignore[arg-type]
    assert (await environment.step(specimen.idle)).feedback["valid"]


async def test_after_the_end_only_reset_is_possible(specimen):
    environment = specimen.environment()
    await environment.reset(specimen.task)
    await environment.terminate("action_limit")
    with pytest.raises(UserError, match="over"):
        await environment.step(specimen.idle)
    with pytest.raises(UserError, match="over"):
        await environment.terminate("action_limit")
    await environment.reset(specimen.task)
    assert (await environment.step(specimen.idle)).feedback["valid"]


async def test_before_reset_and_after_close_there_is_no_episode(specimen):
    environment = specimen.environment()
    with pytest.raises(UserError, match="reset"):
        await environment.step(specimen.idle)
    await environment.reset(specimen.task)
    await environment.close()
    await environment.close()
    with pytest.raises(UserError, match="reset"):
        await environment.step(specimen.idle)
    assert (await environment.reset(specimen.task)).task_id == specimen.task


async def test_reset_in_the_middle_starts_afresh(specimen):
    environment = specimen.environment()
    first = await environment.reset(specimen.task)
    await environment.step(specimen.idle)
    assert await environment.reset(specimen.task) == first


@pytest.mark.parametrize("task", ["", "nobody", "-1", "999999999"])
async def test_an_unknown_task_is_the_users_error(specimen, task):
    environment = specimen.environment()
    with pytest.raises(UserError):
        await environment.reset(task)
    assert (await environment.reset(specimen.task)).task_id == specimen.task


async def test_episodes_of_one_job_are_the_same(specimen):
    """What is random in an environment comes from the job's seed alone."""
    histories = []
    for seed in (5, 5, 6):
        environment = specimen.environment(seed)
        history: list[Any] = [await environment.reset(specimen.task)]
        history += [await environment.step(action) for action in (specimen.refused, *specimen.solution)]
        histories.append(history)
    assert histories[0] == histories[1]
    assert [item.state for item in histories[0]] == [item.state for item in histories[2]]


async def test_episodes_do_not_mix(specimen):
    one, two = specimen.environment(), specimen.environment()
    await asyncio.gather(one.reset(specimen.task), two.reset(specimen.task))
    for action in specimen.solution[:-1]:
        await one.step(action)
    assert (await two.step(specimen.idle)).feedback["valid"]
    assert (await one.step(specimen.solution[-1])).success


async def test_nothing_private_shows_before_the_end(specimen):
    environment = specimen.environment()
    seen: list[Any] = [await environment.reset(specimen.task)]
    seen += [await environment.step(action) for action in (specimen.refused, specimen.idle)]
    assert not any(getattr(item, "goal", None) or getattr(item, "detail", None) for item in seen)
    if specimen.secret is not None:
        assert specimen.secret not in "".join(item.observation for item in seen)


def test_tasks_are_strings_in_order_and_in_one_split_only(specimen):
    splits = specimen.family.splits()
    everything = (*splits.train, *splits.val, *splits.test)
    assert specimen.task in splits.train
    assert all(isinstance(task, str) for task in everything)
    assert len(set(everything)) == len(everything)
    for tasks in (splits.train, splits.val, splits.test):
        assert list(tasks) == sorted(tasks, key=task_order)


def test_identity_is_the_environments_and_can_be_stored(specimen):
    identity = specimen.family.identity()
    assert identity == specimen.environment().identity()
    assert identity["max_steps"] == specimen.family.settings.max_steps
    assert orjson.loads(orjson.dumps(identity)) == identity


def test_settings_come_back_from_a_file_and_name_their_family(specimen):
    settings = specimen.family.settings
    stored = json.loads(settings.model_dump_json())
    assert SETTINGS[settings.family].model_validate(stored) == settings
    assert kind_of({"environment": stored}) is type(settings)
    assert settings.offline().semantic() == settings.semantic()
    prefix = settings.metric_prefix
    assert prefix.startswith("rollout/")
    assert prefix.endswith("/")
    assert prefix.count("/") == 2


@pytest.mark.parametrize("style", ["full", "compact"])
async def test_a_prompt_without_chunks_knows_of_no_skills(specimen, style):
    prompt = specimen.family.prompt(style)
    reset = await specimen.environment().reset(specimen.task)
    bare, told = prompt.messages(reset, ()), prompt.messages(reset, (CHUNK,))
    assert [message["role"] for message in bare] == ["system", "user"]
    assert reset.instruction in bare[1]["content"]
    assert bare[1] == told[1]
    assert CHUNK.procedure[0] in told[0]["content"]
    assert CHUNK.procedure[0] not in bare[0]["content"]
    assert prompt.sha256 == specimen.family.prompt(style).sha256
    assert len(prompt.sha256) == 64


def test_styles_have_prompts_of_their_own(specimen):
    assert specimen.family.prompt("full").sha256 != specimen.family.prompt("compact").sha256


async def test_what_cannot_be_read_is_a_protocol_error_with_feedback(specimen):
    reset = await specimen.environment().reset(specimen.task)
    tools = specimen.family.tools(reset.state, "static")
    decoded = specimen.family.decode(specimen.readable, reset.state, tools)
    assert decoded.action
    assert decoded.call_ids == tuple(call.call_id for call in specimen.readable.tool_calls)
    with pytest.raises(ProtocolError) as refused:
        specimen.family.decode(specimen.unreadable, reset.state, tools)
    prompt = specimen.family.prompt("full")
    assert prompt.protocol_feedback(refused.value, "what stands", tools).endswith("what stands")


async def test_static_tools_never_change(specimen):
    environment = specimen.environment()
    states = [(await environment.reset(specimen.task)).state]
    states += [(await environment.step(action)).state for action in specimen.solution[:-1]]
    offered = {json.dumps(specimen.family.tools(state, "static")) for state in states}
    assert len(offered) == 1


@pytest.mark.parametrize("schema", ["static", "dynamic"])
async def test_a_whole_episode_and_its_trace(specimen, schema, tmp_path):
    replies = ["...", *specimen.replies]
    settings = EpisodeSettings(max_steps=20, tool_schema=schema)
    policy, prompt = ScriptedPolicy(lambda state, messages: replies.pop(0)), specimen.family.prompt("full")
    episode = await run_episode(
        specimen.job(), specimen.family, specimen.environment(), policy, prompt, (CHUNK,), settings, "g"
    )
    assert (episode.success, episode.reward) == (True, 1.0)
    assert [step.action for step in episode.steps] == [None, *specimen.solution]
    log = JsonlLog(tmp_path / "traces.jsonl")
    log.append(episode_trace(episode, {"model": "m"}, (CHUNK,)))
    assert episode_from_trace(log.read()[0]) == episode
    (numbers,) = read_numbers(log)
    assert numbers.final is not None
    assert numbers.final.success
    kinds = {specimen.family.settings.action_kind(step.action) for step in episode.steps if step.action}
    assert all(kind.isidentifier() for kind in kinds)
    assert not any(kind in kinds for kind in specimen.solution)


def test_a_family_that_evolves_has_all_it_takes(specimen):
    evolution = specimen.family.evolution()
    if evolution is None:
        return
    facts = evolution.facts()
    assert facts.train_ids == set(specimen.family.splits().train) <= facts.task_ids
    assert all(
        evolution.mechanisms.of(replace(CHUNK, metadata={"mechanism": n})) == n for n in evolution.mechanisms.names()
    )
    analysts = evolution.rules("compact"), evolution.briefing()
    assert any(analysts)
