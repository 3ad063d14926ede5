"""The async client: what it repeats, what it never repeats, and how it names failures."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

import httpx
import pytest
from shopsimulator.client import ServiceUnavailable, ShopClient, is_loopback, read_health
from shopsimulator.errors import EpisodeOver, ShopError, StaleLease, UnknownTask


async def test_an_episode_with_unicode_values(make_world, serve):
    async with ShopClient(serve(make_world(), slots=1).url) as client:
        opened = await client.reset(7)
        lease = (opened["env_idx"], opened["lease_id"])
        await client.interact(*lease, "search[odd mug]")
        await client.interact(*lease, "click[300000000002]")
        answer = await client.interact(*lease, "click[Print=🦊 [rot]]")
        assert answer["observation_state"]["selected_options"] == {"Print": "🦊 [rot]"}
        await client.release(*lease)
        assert (await client.health())["free_slots"] == 1


async def test_refusals_arrive_as_the_errors_they_are(make_world, serve):
    async with ShopClient(serve(make_world(), slots=2).url) as client:
        with pytest.raises(UnknownTask, match="999"):
            await client.reset(999)
        with pytest.raises(StaleLease):
            await client.interact(0, "no such lease", "search[x]")
        opened = await client.reset(7)
        lease = (opened["env_idx"], opened["lease_id"])
        await client.terminate(*lease, "action_limit")
        with pytest.raises(EpisodeOver):
            await client.interact(*lease, "search[x]")
        assert await client.release_all() == 1
        with pytest.raises(StaleLease):
            await client.release(*lease)


async def test_a_reset_asks_for_what_it_is_told(make_world, serve):
    async with ShopClient(serve(make_world(), slots=2).url) as client:
        plain = await client.reset(7)
        assert (plain["task_mode"], plain["interaction_mode"]) == ("standard", "single_turn")
        personal = await client.reset(7, if_persona=True, interaction_mode="multi_turn")
        assert (personal["task_mode"], personal["interaction_mode"]) == ("persona", "multi_turn")


async def test_many_steps_in_one_request(make_world, serve):
    async with ShopClient(serve(make_world(), slots=2).url) as client:
        leases = [(opened["env_idx"], opened["lease_id"]) for opened in [await client.reset(7), await client.reset(8)]]
        steps = [(*lease, "search[shelf]") for lease in leases]
        *answers, refused = await client.interact_many([*steps, (0, "stale", "search[x]")])
        assert [answer["idx"] for answer in answers] == ["slot-0-7", "slot-1-8"]
        assert isinstance(refused, StaleLease)


async def test_more_clients_than_slots_all_get_their_turn(make_world, serve):
    async with ShopClient(serve(make_world(), slots=2).url) as client:

        async def episode(task_id: int) -> float:
            opened = await client.reset(task_id)
            lease = (opened["env_idx"], opened["lease_id"])
            for action in ["search[tarn]", "click[200000000000]", "click[buy now]"]:
                answer = await client.interact(*lease, action)
            await client.release(*lease)
            return answer["reward"]

        assert await asyncio.gather(*(episode(8) for _ in range(12))) == [1.0] * 12


async def test_waiting_for_a_slot_outlasts_one_request(make_world, serve):
    url = serve(make_world(), slots=1).url
    async with ShopClient(url) as holder, ShopClient(url, timeout_s=0.4, wait_s=30) as waiter:
        opened = await holder.reset(7)
        waiting = asyncio.create_task(waiter.reset(8))
        await asyncio.sleep(0.7)
        assert not waiting.done()
        await holder.release(opened["env_idx"], opened["lease_id"])
        assert (await waiting)["idx"] == 8


async def test_patience_for_a_slot_ends(make_world, serve):
    async with ShopClient(serve(make_world(), slots=1).url, timeout_s=0.1, wait_s=0.2) as client:
        await client.reset(7)
        with pytest.raises(ServiceUnavailable, match="slots"):
            await client.reset(8)


@pytest.mark.parametrize(
    ("status", "content", "error"),
    [
        (409, {"result": {"error": "stale or invalid lease"}}, StaleLease),
        (400, {"result": {"error": "unsupported action"}}, ShopError),
        (500, {"result": {"error": "'NoneType' object has no attribute 'replace'"}}, ServiceUnavailable),
        (200, {"result": {"error": "No JSON data provided"}}, ShopError),
        (502, {"detail": "bad gateway"}, ServiceUnavailable),
        (200, ["not a shop"], ServiceUnavailable),
    ],
)
async def test_errors_of_a_service_without_codes_are_told_by_their_status(monkeypatch, status, content, error):
    async def answer(self, method, url, **request) -> httpx.Response:
        return httpx.Response(status, json=content)

    monkeypatch.setattr(httpx.AsyncClient, "request", answer)
    async with ShopClient("http://127.0.0.1:9") as client:
        with pytest.raises(error):
            await client.interact(0, "lease", "search[x]")


class _BrokenService:
    """Accepts connections, reads and hangs up without an answer; counts the requests meant for a shop."""

    def __init__(self) -> None:
        self.requests = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.requests += b"/api/shop_agent" in connection.recv(65536)
                connection.close()

    def stop(self) -> None:
        self._listener.close()


@pytest.fixture
def broken_service():
    service = _BrokenService()
    yield service
    service.stop()


async def test_a_lost_step_is_never_sent_twice(broken_service):
    async with ShopClient(broken_service.url) as client:
        with pytest.raises(ServiceUnavailable):
            await client.interact(0, "lease", "click[buy now]")
        with pytest.raises(ServiceUnavailable):
            await client.terminate(0, "lease", "action_limit")
    assert broken_service.requests == 2


async def test_a_lost_reset_is_tried_again_a_few_times(broken_service, monkeypatch):
    monkeypatch.setattr("shopsimulator.client._RETRY_DELAY_S", 0.001)
    async with ShopClient(broken_service.url) as client:
        with pytest.raises(ServiceUnavailable, match="no answer"):
            await client.reset(7)
    assert broken_service.requests == 5


def test_one_client_serves_several_event_loops(make_world, serve):
    client = ShopClient(serve(make_world(), slots=1).url)

    async def episode() -> int:
        opened = await client.reset(7)
        await client.release(opened["env_idx"], opened["lease_id"])
        return opened["idx"]

    assert [asyncio.run(episode()) for _ in range(2)] == [7, 7]


async def test_loopback_ignores_proxies(make_world, serve, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    url = serve(make_world()).url
    async with ShopClient(url) as client:
        assert (await client.health())["ready"]
    assert read_health(url)["ready"]


def test_loopback_is_told_from_other_hosts():
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.8.0.1", "::1"]))
    assert not any(map(is_loopback, ["10.0.0.1", "shop.example", "0.0.0.0"]))


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://127.0.0.1", "http://", "not a url"])
def test_a_wrong_url_is_named(url):
    with pytest.raises(ShopError, match="URL"):
        ShopClient(url)


def test_another_service_is_not_taken_for_the_shop():
    with pytest.raises(ServiceUnavailable, match="no answer"):
        read_health("http://127.0.0.1:9")
