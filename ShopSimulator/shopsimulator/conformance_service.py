"""Runners of the cases about the HTTP service and its leases; see `conformance.py`.

The service answers in this process: requests go through the ASGI application, not through a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import httpx
import orjson

from shopsimulator.errors import StaleLease
from shopsimulator.service import create_app
from shopsimulator.sessions import Lease, SessionPool

if TYPE_CHECKING:
    from shopsimulator.conformance import Catalogs

Input = Mapping[str, Any]
_PATIENCE_S = 10.0


def _client(case: Input, catalogs: Catalogs) -> httpx.AsyncClient:
    app = create_app(catalogs.world(case["catalog"]), slots=case["slots"])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop")


def _http(case: Input, catalogs: Catalogs) -> Any:
    """Requests one after the other; `$slot` and `$lease` stand for what the last reset returned."""

    async def run() -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        lease: dict[str, Any] = {}
        async with _client(case, catalogs) as client:
            for call in case["calls"]:
                content = call["raw"].encode() if "raw" in call else orjson.dumps(_filled(call["body"], lease))
                answer = await _post(client, content, call.get("timeout", _PATIENCE_S))
                if "lease_id" in answer.get("result", {}):
                    lease = {"$slot": answer["result"]["env_idx"], "$lease": answer["result"]["lease_id"]}
                answers.append(answer)
        return answers

    return {"answers": asyncio.run(run())}


async def _post(client: httpx.AsyncClient, content: bytes, timeout_s: float) -> dict[str, Any]:
    request = client.post("/api/shop_agent", content=content, headers={"content-type": "application/json"})
    try:
        response = await asyncio.wait_for(request, timeout_s)
    except asyncio.TimeoutError:
        return {"waits": True}
    return {"status": response.status_code, "result": response.json()["result"]}


def _filled(body: Mapping[str, Any], lease: Mapping[str, Any]) -> dict[str, Any]:
    return {key: lease.get(value, value) if isinstance(value, str) else value for key, value in body.items()}


def _healthz(case: Input, catalogs: Catalogs) -> Any:
    async def run() -> Any:
        async with _client(case, catalogs) as client:
            return (await client.get("/healthz")).json()

    return asyncio.run(run())


def _pool(case: Input, catalogs: Catalogs) -> Any:
    """Operations on the slots: `release` gives back the slot acquired last, `reset` ends every lease."""
    pool = SessionPool(lambda slot: catalogs.world("shop").new_session(slot), case["size"], ttl_s=_PATIENCE_S)
    lease: Lease | None = None
    results: list[Any] = []
    for (operation,) in case["ops"]:
        if operation == "acquire":
            granted = pool.acquire_free()
            lease = granted or lease
            results.append(granted.slot if granted else None)
        elif operation == "release":
            assert lease is not None
            results.append(_released(pool, lease))
        elif operation == "reset":
            pool.release_all()
            results.append(None)
        else:
            results.append(pool.list_free())
    return {"results": results}


def _released(pool: SessionPool, lease: Lease) -> bool:
    try:
        pool.release(lease.slot, lease.lease_id)
    except StaleLease:
        return False
    return True


def _http_agrees(expected: Any, ours: Any) -> bool:
    answers = ours.get("answers", [])
    return len(answers) == len(expected["answers"]) and all(map(_answer_agrees, expected["answers"], answers))


def _answer_agrees(expected: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    if "waits" in expected or "waits" in ours:
        return expected.get("waits", False) == ours.get("waits", False)
    result = ours["result"]
    return (
        ours["status"] == expected["status"]
        and result.keys() >= set(expected.get("result_has", ()))
        and result.keys().isdisjoint(expected.get("result_lacks", ()))
        and _holds(expected.get("result", {}), result)
        and _holds(expected.get("state", {}), result.get("observation_state", {}))
    )


def _holds(expected: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    return all(key in ours and ours[key] == value for key, value in expected.items())


def _healthz_agrees(expected: Any, ours: Any) -> bool:
    return ours.keys() >= set(expected["keys"]) and _holds(expected["values"], ours)


RUNNERS: dict[str, Callable[[Input, Catalogs], Any]] = {"http": _http, "healthz": _healthz, "pool": _pool}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"http": _http_agrees, "healthz": _healthz_agrees}
