"""Opening worlds, and how trouble with the shop service is sorted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from shopsimulator.catalog import read_catalog, write_catalog
from shopsimulator.client import ShopClient
from shopsimulator.engine import ShopSettings as Rules
from shopsimulator.engine import ShopWorld
from shopsimulator.split_files import write_splits
from shopsimulator.splits import Splits

from intraskill.core.errors import EnvironmentUnavailable, UserError
from intraskill.families.base import TaskSplits
from intraskill.families.shop import environment as shop
from intraskill.families.shop.environment import HttpShop, open_world
from intraskill.families.shop.settings import ShopSettings, WorldSettings

SMALL = ShopSettings(world=WorldSettings(generate="small"))


@pytest.fixture(scope="module")
def small_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worlds")


@pytest.fixture
def world_files(tmp_path: Path) -> WorldSettings:
    """A catalog of two products with its split manifest."""
    records = [
        {
            "asin": f"10000000000{n}",
            "title": f"{name} shelf",
            "pricing": [20],
            "instructions": [{"task_id": n, "instruction": f"a {name} shelf", "attributes": [name]}],
        }
        for n, name in enumerate(["oak", "pine"])
    ]
    write_catalog(tmp_path / "catalog.json", records)
    write_splits(tmp_path / "splits.json", Splits((0,), (1,), ()), read_catalog(tmp_path / "catalog.json"), seed=0)
    return WorldSettings(generate=None, catalog=tmp_path / "catalog.json", splits=tmp_path / "splits.json")


def in_world(files: WorldSettings, **changes: Any) -> ShopSettings:
    return ShopSettings(world=files, **changes)


def test_a_generated_world_opens_and_is_generated_once(small_cache, monkeypatch):
    first = open_world(SMALL, small_cache)
    monkeypatch.setattr(shop, "generate_world", lambda *arguments: pytest.fail("generated a second time"))
    second = open_world(SMALL, small_cache)
    assert first.identity() == second.identity()
    assert first.splits().train
    assert set(first.splits().val) <= set(map(str, first.catalog.tasks))
    reset = asyncio.run(first.new_environment().reset(first.splits().train[0]))
    assert reset.extra["user_persona"]


def test_a_generation_cut_short_leaves_nothing_behind(tmp_path, monkeypatch):
    def crash(out: Path, *rest: Any) -> None:
        (out / "catalog.json.gz").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(shop, "generate_world", crash)
    with pytest.raises(KeyboardInterrupt):
        open_world(SMALL, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_runs_generating_at_once_share_the_result(tmp_path, small_cache, monkeypatch):
    open_world(SMALL, small_cache)
    (ready,) = small_cache.iterdir()

    def slower_than_the_other(out: Path, *rest: Any) -> None:
        other = tmp_path / ready.name
        other.mkdir()
        for file in ready.iterdir():
            (other / file.name).write_bytes(file.read_bytes())
        (out / "catalog.json.gz").write_bytes(b"late")

    monkeypatch.setattr(shop, "generate_world", slower_than_the_other)
    assert open_world(SMALL, tmp_path).identity() == open_world(SMALL, small_cache).identity()
    assert [path.name for path in tmp_path.iterdir()] == [ready.name]


def test_seed_and_language_make_other_worlds(small_cache):
    other = ShopSettings(world=WorldSettings(generate="small", seed=1))
    assert open_world(other, small_cache).identity() != open_world(SMALL, small_cache).identity()
    chinese = ShopSettings(world=WorldSettings(generate="small", language="zh"))
    assert open_world(chinese, small_cache).identity()["language"] == "zh"


def test_an_unusable_cache_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file"):
        open_world(SMALL, tmp_path / "file" / "cache")


def test_settings_reach_the_pages(world_files, tmp_path):
    source = open_world(in_world(world_files, page_size=1, max_steps=3, rendering="full"), tmp_path)
    identity = source.identity()
    assert (identity["page_size"], identity["max_steps"], identity["rendering"]) == (1, 3, "full")
    assert source.splits() == TaskSplits(("0",), ("1",), ())


@pytest.mark.parametrize("missing", ["catalog", "splits"])
def test_a_missing_file_is_named(world_files, tmp_path, missing):
    nowhere = world_files.model_copy(update={missing: tmp_path / "nowhere.json"})
    with pytest.raises(UserError, match=r"nowhere\.json"):
        open_world(in_world(nowhere), tmp_path)


def test_splits_of_another_catalog_are_refused(world_files, tmp_path):
    manifest = orjson.loads(world_files.splits.read_bytes())
    manifest["splits"]["test"] = {"task_ids": [77]}
    world_files.splits.write_bytes(orjson.dumps(manifest))
    with pytest.raises(UserError, match="77"):
        open_world(in_world(world_files), tmp_path)


def test_a_service_with_the_same_meaning_is_accepted_and_used(world_files, tmp_path, serve):
    local = open_world(in_world(world_files), tmp_path)
    served = ShopWorld(local.catalog, Rules(page_size=4, rendering="compact", max_steps=10))
    url = serve(served).url
    source = open_world(in_world(world_files, url=url), tmp_path)
    assert source.identity() == local.identity()
    environment = source.new_environment()
    assert isinstance(environment, HttpShop)

    async def buy() -> float:
        await environment.reset("0")
        for action in ["search[oak]", "click[100000000000]"]:
            await environment.step(action)
        result = await environment.step("click[buy now]")
        await environment.close()
        return result.reward

    assert asyncio.run(buy()) == 1.0


def test_a_service_that_means_something_else_is_refused(world_files, tmp_path, serve):
    catalog = read_catalog(world_files.catalog)
    url = serve(ShopWorld(catalog, Rules(page_size=5, rendering="compact", max_steps=10))).url
    with pytest.raises(UserError, match="page_size 5, the settings say 4"):
        open_world(in_world(world_files, url=url), tmp_path)


def test_no_service_at_the_url_is_a_technical_failure_and_a_wrong_url_is_not(world_files, tmp_path):
    with pytest.raises(EnvironmentUnavailable, match="no answer"):
        open_world(in_world(world_files, url="http://127.0.0.1:9"), tmp_path)
    with pytest.raises(UserError, match="URL"):
        open_world(in_world(world_files, url="127.0.0.1:9"), tmp_path)


async def test_a_reclaimed_lease_is_a_technical_failure(world_files, serve):
    world = ShopWorld(read_catalog(world_files.catalog))
    url = serve(world, slots=1, lease_ttl_s=1.0).url
    async with ShopClient(url) as client:
        environment = HttpShop(client, world.identity())
        await environment.reset("0")
        await asyncio.sleep(1.2)
        with pytest.raises(EnvironmentUnavailable, match="lease"):
            await environment.step("search[oak]")
        await environment.close()
        await environment.reset("0")
        assert (await environment.step("search[oak]")).feedback["valid"]


async def test_an_environment_left_open_by_a_dead_client_gives_its_slot_to_the_next(world_files, serve):
    world = ShopWorld(read_catalog(world_files.catalog))
    url = serve(world, slots=1, lease_ttl_s=0.3).url
    async with ShopClient(url) as dead:
        await HttpShop(dead, world.identity()).reset("0")
    async with ShopClient(url) as alive:
        assert (await asyncio.wait_for(HttpShop(alive, world.identity()).reset("1"), 10)).task_id == "1"


async def test_a_service_that_dies_is_a_technical_failure_and_close_stays_quiet(world_files, serve):
    world = ShopWorld(read_catalog(world_files.catalog))
    server = serve(world)
    async with ShopClient(server.url) as client:
        environment = HttpShop(client, world.identity())
        await environment.reset("0")
        server.stop()
        with pytest.raises(EnvironmentUnavailable, match="no answer"):
            await environment.step("search[oak]")
        await environment.close()
