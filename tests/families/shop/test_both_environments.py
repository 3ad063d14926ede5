"""What the shop's environments promise beside the contract of all families, in process and behind HTTP alike.

`make_environment` gives a factory of environments over one tiny hand-written world, once per kind.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from shopsimulator.catalog import inspect_records
from shopsimulator.client import ShopClient
from shopsimulator.engine import ShopSettings, ShopWorld

from intraskill.core.protocol import Environment
from intraskill.families.shop.environment import HttpShop, InProcessShop

RECORDS: list[dict[str, Any]] = [
    {
        "asin": "100000000001",
        "title": "norvik oak shelf",
        "pricing": [30.0, 55.0],
        "category": "home›storage›shelf",
        "attribute": ["norvik"],
        "customization_options": {
            "colour": [{"value": "rosé"}, {"value": "深蓝色 🌊"}],
            "size": [{"value": "small", "price": 30}, {"value": "large", "price": 55}],
        },
        "instructions": [
            {
                "task_id": 7,
                "instruction": "a norvik shelf in 深蓝色 🌊 below 40, the secret wording",
                "instruction_simple": "a shelf in my colour below 40",
                "attributes": ["norvik"],
                "instruction_options": ["深蓝色 🌊"],
                "price_upper": 40,
            }
        ],
        "user_persona": {"用户ID": "U1", "兴趣偏好": {"商品属性偏好": {"颜色": ["深蓝色 🌊"]}}},
    },
    {
        "asin": "100000000002",
        "title": "tarn pine shelf",
        "pricing": [25],
        "category": "home›storage›shelf",
        "instructions": [
            {"task_id": 8, "instruction": "a tarn shelf", "attributes": ["tarn"], "instruction_options": []}
        ],
    },
]
SETTINGS = ShopSettings(page_size=1, rendering="compact", max_steps=6)
SLOTS = 2


@pytest.fixture(scope="module")
def contract_world() -> ShopWorld:
    inspection = inspect_records(RECORDS)
    assert not inspection.skipped
    return ShopWorld(inspection.catalog, SETTINGS)


@pytest.fixture(params=["in_process", "http"])
async def make_environment(request: pytest.FixtureRequest, contract_world: ShopWorld) -> Any:
    """A factory of environments of one kind; closes what it made."""
    made: list[Environment] = []
    client = None
    if request.param == "http":
        serve = request.getfixturevalue("serve")
        client = ShopClient(serve(contract_world, slots=SLOTS, lease_ttl_s=30).url, timeout_s=20)

    def make() -> Environment:
        made.append(HttpShop(client, contract_world.identity()) if client else InProcessShop(contract_world))
        return made[-1]

    yield make
    for environment in made:
        await environment.close()
    if client is not None:
        await client.close()


async def test_reset_shows_the_public_task_and_the_first_page(make_environment):
    reset = await make_environment().reset("7")
    assert (reset.task_id, reset.instruction) == ("7", "a shelf in my colour below 40")
    assert reset.extra["user_persona"] == RECORDS[0]["user_persona"]
    assert reset.observation == "search"
    assert reset.state["search_available"]
    assert (await make_environment().reset("8")).extra["user_persona"] == {}


async def test_both_kinds_answer_identically(contract_world, serve):
    client = ShopClient(serve(contract_world).url)
    kinds = [InProcessShop(contract_world), HttpShop(client, contract_world.identity())]
    actions = ["search[shelf]", "click[next >]", "click[< prev]", "hm", "click[100000000001]", "click[colour=rosé]"]
    histories = []
    for environment in kinds:
        history: list[Any] = [await environment.reset("7")]
        history += [await environment.step(action) for action in actions]
        histories.append(history)
        await environment.close()
    await client.close()
    assert histories[0] == histories[1]
    assert kinds[0].identity() == kinds[1].identity()


async def test_a_purchase_ends_the_episode_with_its_reward(make_environment):
    environment = make_environment()
    await environment.reset("7")
    for action in ["search[norvik]", "click[100000000001]", "click[colour=深蓝色 🌊]", "click[size=small]"]:
        result = await environment.step(action)
        assert result.feedback["valid"], action
        assert (result.done, result.reward, result.goal, result.termination) == (False, 0.0, None, None)
    result = await environment.step("click[buy now]")
    assert (result.done, result.reward, result.termination) == (True, 1.0, "purchase")
    assert result.success
    assert result.extra["purchase"]["options"] == {"colour": "深蓝色 🌊", "size": "small"}
    assert result.goal["goal_options"] == ["深蓝色 🌊"]


async def test_an_invalid_action_is_answered_not_raised(make_environment):
    environment = make_environment()
    before = await environment.reset("8")
    for action in ["", "think", "click[nothing]", "search[]", "click[\n]"]:
        result = await environment.step(action)
        assert not result.feedback["valid"]
        assert result.feedback["reason"] in ("invalid_format", "unavailable_action", "empty_argument")
        assert result.state["page_type"] == before.state["page_type"]


async def test_more_episodes_than_slots_all_finish(make_environment):
    async def episode() -> float:
        environment = make_environment()
        await environment.reset("8")
        for action in ["search[tarn]", "click[100000000002]"]:
            await environment.step(action)
        result = await environment.step("click[buy now]")
        await environment.close()
        return result.reward

    assert await asyncio.gather(*(episode() for _ in range(4 * SLOTS))) == [1.0] * 4 * SLOTS


async def test_text_that_is_no_unicode_is_an_action_like_any_other(make_environment):
    environment = make_environment()
    await environment.reset("7")
    result = await environment.step("search[tarn \ud800]")
    assert result.feedback["valid"]
    assert result.state["products"][0]["title"] == "tarn pine shelf"
    assert result.state["last_action"]["action"] == "search[tarn ?]"


async def test_identity_names_versions_and_settings(make_environment):
    identity = make_environment().identity()
    assert {"environment", "observation", "action_protocol", "search", "catalog_sha256", "language"} <= identity.keys()
    assert (identity["page_size"], identity["rendering"], identity["max_steps"]) == (1, "compact", 6)
    assert identity == make_environment().identity()


async def test_nothing_private_shows_before_the_end(make_environment):
    environment = make_environment()
    seen = [await environment.reset("7")]
    seen += [await environment.step(action) for action in ["search[pine shelf]", "hm", "click[100000000002]"]]
    text = repr(seen)
    assert "secret wording" not in text
    assert "price_upper" not in text
    assert not any(getattr(item, "goal", None) or getattr(item, "detail", None) for item in seen)
