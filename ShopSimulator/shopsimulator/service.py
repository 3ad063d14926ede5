"""The shop over HTTP: `POST /api/shop_agent` for episodes, `GET /healthz` for what is served, `GET /docs` to read.

Every request is a JSON object with an `action`; every answer is `{"result": {...}}`, and an error is the text
`result.error` in it. Statuses are those of the published service:

    200  an answer; also the error that the body is no JSON
    400  a malformed request: unknown action, a reset with env_idx, a missing or malformed env_idx or lease_id
    409  a lease that is unknown, stale or released
    500  what the engine refuses: unknown task, mode or reason, no response, anything after the end

Four things are ours and don't disturb a client of the published service: an idle lease is reclaimed after a
time-to-live; a reset may bound its waiting (`wait_s`, then 503); `batch` carries many requests in one; errors also
carry a `code`. A reset that cannot succeed is refused before it waits for a slot, and one whose client hangs up gives
its place in the queue away.

The engine answers in well under a millisecond, so everything runs on one event loop and nothing needs a lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from shopsimulator import ENVIRONMENT_VERSION, OBSERVATION_VERSION, PRIMARY_REWARD
from shopsimulator.engine import ShopSession, ShopWorld
from shopsimulator.errors import EpisodeOver, ShopError, StaleLease, UnknownTask
from shopsimulator.openapi import docs_page, openapi_document
from shopsimulator.sessions import Lease, SessionPool

DEFAULT_PORT = 5700
DEFAULT_SLOTS = 64
DEFAULT_LEASE_TTL_S = 1800.0
KEEP_ALIVE_S = 120  # longer than clients keep idle connections, so that no request meets a closing one

Body = dict[str, Any]


class BadRequest(ShopError):
    """The request itself is malformed."""


class NoFreeSlot(ShopError):
    """No slot became free within the time the client was willing to wait."""


_REFUSALS: dict[type[ShopError], tuple[int, str]] = {
    BadRequest: (400, "bad_request"),
    StaleLease: (409, "stale_lease"),
    NoFreeSlot: (503, "no_free_slot"),
    UnknownTask: (500, "unknown_task"),
    EpisodeOver: (500, "episode_over"),
}


def create_app(world: ShopWorld, slots: int = DEFAULT_SLOTS, lease_ttl_s: float = DEFAULT_LEASE_TTL_S) -> Starlette:
    """The ASGI application serving `world` from `slots` leased sessions."""
    service = ShopService(world, SessionPool(world.new_session, slots, lease_ttl_s))
    return Starlette(
        routes=[
            Route("/api/shop_agent", service.shop_agent, methods=["POST"]),
            Route("/healthz", service.health, methods=["GET"]),
            Route("/openapi.json", service.openapi, methods=["GET"]),
            Route("/docs", service.docs, methods=["GET"]),
        ]
    )


def run_service(
    world: ShopWorld,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    slots: int = DEFAULT_SLOTS,
    lease_ttl_s: float = DEFAULT_LEASE_TTL_S,
    announce: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until interrupted; `announce` gets the URL once it accepts connections (port 0 takes any free port).

    Raises `ShopError` when the address cannot be used.
    """
    app = create_app(world, slots, lease_ttl_s)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=2
    )
    with _listen(host, port) as listener:
        announce(f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}")
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    if not host:  # the system takes it for every address of the machine
        raise ShopError("the host is empty; give an address such as 127.0.0.1, or 0.0.0.0 for every one")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise ShopError(f"cannot listen on {host}:{port}: {error}; choose another address or port") from error
    # Inherited by every connection. asyncio does not see to it for sockets it did not open itself, and a body that
    # waits for the acknowledgement of its headers costs 40 ms a step.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class ShopService:
    """The handlers; all state is the session pool."""

    def __init__(self, world: ShopWorld, pool: SessionPool) -> None:
        self._world = world
        self._pool = pool
        self._actions: dict[str, Callable[[Body, Request], Awaitable[Body]]] = {
            "reset": self._reset,
            "interact": self._interact,
            "terminate": self._terminate,
            "release_one": self._release_one,
            "release_all": self._release_all,
            "batch": self._batch,
        }

    async def health(self, request: Request) -> Response:
        return _json(
            {
                "ready": True,
                "environment_slots": self._pool.slots,
                "free_slots": self._pool.free_slots,
                "tasks": len(self._world.catalog.tasks),
                "environment_version": ENVIRONMENT_VERSION,
                "primary_reward": PRIMARY_REWARD,
                "observation_version": OBSERVATION_VERSION,
                "debug_ui": "/docs",
                "replay_ui": None,
                "lease_ttl_s": self._pool.ttl_s,
                "identity": self._world.identity(),
            }
        )

    async def openapi(self, request: Request) -> Response:
        return _json(openapi_document())

    async def docs(self, request: Request) -> Response:
        return HTMLResponse(docs_page())

    async def shop_agent(self, request: Request) -> Response:
        try:
            body = orjson.loads(await request.body())
        except orjson.JSONDecodeError as error:
            return _json({"result": _error("bad_request", f"the request body is not JSON in UTF-8: {error}")})
        status, result = await self._answer(body, request)
        return _json({"result": result}, status)

    async def _answer(self, body: Any, request: Request) -> tuple[int, Body]:
        """Status and result of one request."""
        try:
            if not isinstance(body, dict):
                raise BadRequest("the request body must be a JSON object with an `action`")
            action = body.get("action")
            handler = self._actions.get(action) if isinstance(action, str) else None
            if handler is None:
                raise BadRequest(f"action {action!r} is unknown; use one of {', '.join(self._actions)}")
            return 200, await handler(body, request)
        except ShopError as error:
            status, code = _REFUSALS.get(type(error), (500, "refused"))
            return status, _error(code, str(error))

    async def _reset(self, body: Body, request: Request) -> Body:
        if body.get("env_idx") is not None:
            raise BadRequest("reset must not carry env_idx: it takes a free slot; release_one gives a slot back")
        task_id, mode = body.get("idx"), str(body.get("interaction_mode", "single_turn"))
        if not isinstance(task_id, int) or isinstance(task_id, bool):
            raise ShopError(f"`idx` must be the whole number of a task, found {task_id!r}")
        self._world.task(task_id)  # what cannot start is refused before it waits for a slot
        self._world.step_limit(mode)
        lease = await self._acquire(request, body.get("wait_s"))
        payload = lease.session.reset(
            task_id, bool(body.get("if_persona", False)), bool(body.get("include_private_goal", False)), mode
        )
        return payload | {"lease_id": lease.lease_id}

    async def _acquire(self, request: Request, wait_s: Any) -> Lease:
        """A lease, unless the client hangs up or its patience ends while it waits."""
        if wait_s is not None and (isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or wait_s < 0):
            raise BadRequest(f"wait_s is {wait_s!r}; give a number of seconds, 0 or more")
        lease = self._pool.acquire_free()
        if lease is not None:
            return lease
        grant = asyncio.ensure_future(self._pool.acquire())
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait([grant, gone], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            if grant.done() and gone.done():  # granted to nobody: do not wait for the time-to-live
                self._pool.release(grant.result().slot, grant.result().lease_id)
            elif grant.done():
                return grant.result()
            raise NoFreeSlot(f"all {self._pool.slots} slots are taken; try again, or start the service with more slots")
        finally:
            grant.cancel()
            gone.cancel()

    async def _interact(self, body: Body, request: Request) -> Body:
        session, lease_id = self._leased(body)
        response = body.get("response")
        if not isinstance(response, str):
            raise ShopError(f"`response` must be a text that holds an action, found {response!r}")
        return session.interact(response) | {"lease_id": lease_id}

    async def _terminate(self, body: Body, request: Request) -> Body:
        session, lease_id = self._leased(body)
        return session.terminate(str(body.get("termination_reason", "action_limit"))) | {"lease_id": lease_id}

    async def _release_one(self, body: Body, request: Request) -> Body:
        slot, lease_id = _lease_of(body)
        self._pool.release(slot, lease_id)
        return {"message": f"Environment {slot} has been released"}

    async def _release_all(self, body: Body, request: Request) -> Body:
        return {"message": "All environments have been initialized", "released": self._pool.release_all()}

    async def _batch(self, body: Body, request: Request) -> Body:
        """Many requests in one, each answered as if it had come alone; steps are executed in their order."""
        requests = body.get("requests")
        if not isinstance(requests, list) or any(isinstance(item, dict) and "requests" in item for item in requests):
            raise BadRequest("`requests` must be a list of requests, none of them a batch")
        answers = await asyncio.gather(*(self._answer(item, request) for item in requests))
        return {"answers": [{"status": status, "result": result} for status, result in answers]}

    def _leased(self, body: Body) -> tuple[ShopSession, str]:
        slot, lease_id = _lease_of(body)
        return self._pool.session(slot, lease_id), lease_id


async def _disconnected(request: Request) -> None:
    """Returns when the client has hung up; the body has been read, so nothing else can arrive."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _lease_of(body: Body) -> tuple[int, str]:
    slot, lease_id = body.get("env_idx"), body.get("lease_id")
    if not isinstance(slot, int) or isinstance(slot, bool) or not lease_id:
        raise BadRequest(f"{body['action']} needs the env_idx (a whole number) and the lease_id that reset returned")
    return slot, str(lease_id)


def _error(code: str, message: str) -> Body:
    return {"error": message, "code": code}


def _json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
