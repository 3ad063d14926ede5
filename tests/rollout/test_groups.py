"""Siblings draw their own luck; those whose environment broke down get a second chance, and nobody else does."""

import asyncio

import pytest

from intraskill.agent.episode import EpisodeSettings
from intraskill.core.records import Assignment, Sampling
from intraskill.families.shop.family import Shop
from intraskill.families.shop.settings import ShopSettings
from intraskill.policies.scripted import call_text
from intraskill.policies.token import TokenPolicy
from intraskill.rollout.groups import PlannedGroup, run_group
from intraskill.rollout.runner import EpisodeRunner
from intraskill.skills.bank import Bank

BUY = [call_text("search", query="shelf"), call_text("click", value="1"), call_text("click", value="buy")]
PLAN = PlannedGroup(3, "7", Assignment(3, True, ()))


class Shops(Shop):
    """Hands out environments that fail where `faults` say, one entry each, and sound ones afterwards."""

    def __init__(self, shop, faults):
        super().__init__(ShopSettings(), None)
        self.shop, self.faults, self.made = shop, list(faults), []

    def new_environment(self, job=None):
        self.made.append(self.shop(fail_at=self.faults.pop(0) if self.faults else None))
        return self.made[-1]


@pytest.fixture
def run(chat, replay_engine, toy_shop):
    async def go(faults, replies=BUY * 4, size=1, deadline_s=None, engine=None, plan=PLAN, seed=1):
        source = Shops(toy_shop, faults)
        policy = TokenPolicy(chat, engine or replay_engine(chat, replies))
        limits = EpisodeSettings(10, Sampling(max_tokens=200), "static", deadline_s)
        runner = EpisodeRunner(source, policy, source.prompt("compact"), limits)
        return await run_group(runner, plan, Bank(()), size, seed), source

    return go


async def test_no_two_siblings_of_a_run_share_their_luck(run):
    """The task that comes round again in another group is attempted anew, not replayed; so it is under another seed."""
    seen = {}
    for index, seed in ((3, 1), (4, 1), (3, 2)):
        plan = PlannedGroup(index, PLAN.task_id, Assignment(index, True, ()))
        group, _ = await run([], BUY * 3, size=3, plan=plan, seed=seed)
        again, _ = await run([], BUY * 3, size=3, plan=plan, seed=seed)
        seeds = [episode.job.seed for episode in group.episodes]
        assert seeds == [episode.job.seed for episode in again.episodes]
        seen[index, seed] = seeds
    assert len({one for seeds in seen.values() for one in seeds}) == 9


@pytest.mark.parametrize("fault", ["reset", "click[1]"])
async def test_an_environment_that_comes_back_costs_nothing(run, fault):
    replies = BUY if fault == "reset" else BUY[:2] + BUY
    group, source = await run([fault], replies)
    assert group.scorable
    assert group.episodes[0].reward == 1.0
    assert len(source.made) == 2
    assert all(shop.diary[-1] == "close" for shop in source.made)


async def test_an_environment_that_stays_away_makes_the_group_technical(run):
    group, source = await run(["reset"] * 4, size=2)
    assert not group.scorable
    assert [episode.error["stage"] for episode in group.episodes] == ["environment"] * 2
    assert len(source.made) == 4


async def test_a_hanging_sibling_is_given_up_and_not_repeated(run, replay_engine, chat):
    class Hanging(replay_engine):
        async def generate(self, *args, **named):
            await asyncio.sleep(60)

    engine = Hanging(chat, [])
    group, source = await run([], engine=engine, deadline_s=0.2)
    (episode,) = group.episodes
    assert episode.error["stage"] == "deadline"
    assert "not finished after 0.2 s" in episode.error["message"]
    assert len(source.made) == 1
    assert source.made[0].diary[-1] == "close"
    assert engine.sessions[-1].startswith("close")
