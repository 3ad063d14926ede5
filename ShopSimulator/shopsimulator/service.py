"""The shop over HTTP: one endpoint for episodes, one for health.

`POST /api/shop_agent` takes a JSON object with an `action` and answers `{"result": {...}}`:

    reset        idx, if_persona (default true), wait_s       -> env_idx, lease_id and the public task and page
    interact     env_idx, lease_id, response ("search[..]")   -> the next page, over/done, reward, ...
    terminate    env_idx, lease_id, termination_reason        -> the zero-reward terminal
    release_one  env_idx, lease_id                            -> the slot is free again
    release_all                                               -> every slot is free again

`reset` waits for a free slot: as long as the client stays connected, or `wait_s` seconds if it says so (then 503).
Refusals are `{"detail": one line, "code": ...}`: 400 for a malformed request or a missing lease, 404 for an unknown
task, 409 for a stale lease and for an action after the end. `GET /healthz` tells versions, slots and what is loaded.

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
from starlette.responses import Response
from starlette.routing import Route

from shopsimulator.engine import ShopSession, ShopWorld
from shopsimulator.errors import EpisodeOver, ShopError, StaleLease, UnknownTask
from shopsimulator.sessions import Lease, SessionPool

PRIMARY_REWARD = "r_strict"
DEFAULT_SLOTS = 64
DEFAULT_LEASE_TTL_S = 600.0
KEEP_ALIVE_S = 120  # longer than clients keep idle connections, so that no request meets a closing one

Body = dict[str, Any]


class BadRequest(ShopError):
    """The request itself is malformed."""


class NoFreeSlot(ShopError):
    """No slot became free within the time the client was willing to wait."""


_REFUSALS: dict[type[ShopError], tuple[int, str]] = {
    BadRequest: (400, "bad_request"),
    UnknownTask: (404, "unknown_task"),
    StaleLease: (409, "stale_lease"),
    EpisodeOver: (409, "episode_over"),
    NoFreeSlot: (503, "no_free_slot"),
}


def create_app(world: ShopWorld, slots: int = DEFAULT_SLOTS, lease_ttl_s: float = DEFAULT_LEASE_TTL_S) -> Starlette:
    """The ASGI application serving `world` from `slots` leased sessions."""
    service = ShopService(world, SessionPool(world.new_session, slots, lease_ttl_s))
    return Starlette(
        routes=[
            Route("/healthz", service.health, methods=["GET"]),
            Route("/api/shop_agent", service.shop_agent, methods=["POST"]),
        ]
    )


def run_service(
    world: ShopWorld,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
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
        self._actions: dict[str, Callable[[Body, Request], Awaitable[Any]]] = {
            "reset": self._reset,
            "interact": self._interact,
            "terminate": self._terminate,
            "release_one": self._release_one,
            "release_all": self._release_all,
        }

    async def health(self, request: Request) -> Response:
        identity = self._world.identity()
        return _json(
            {
                "ready": True,
                "slots": self._pool.slots,
                "free_slots": self._pool.free_slots,
                "tasks": len(self._world.catalog.tasks),
                "primary_reward": PRIMARY_REWARD,
                "versions": {key: identity[key] for key in ("environment", "observation", "action_protocol", "search")},
                "identity": identity,
            }
        )

    async def shop_agent(self, request: Request) -> Response:
        try:
            body = _parse(await request.body())
            action = _field(body, "action", str)
            if action not in self._actions:
                raise BadRequest(f"action {action!r} is unknown; use one of {', '.join(self._actions)}")
            return _json({"result": await self._actions[action](body, request)})
        except ShopError as error:
            status, code = _REFUSALS.get(type(error), (400, "bad_request"))
            return _json({"detail": str(error), "code": code}, status)

    async def _reset(self, body: Body, request: Request) -> Any:
        if body.get("env_idx") is not None:
            raise BadRequest("reset must not carry env_idx: it takes a free slot; release_one gives a slot back")
        task_id = _field(body, "idx", int)
        include_persona = bool(body.get("if_persona", True))
        self._world.task(task_id)  # an unknown task is refused before it waits for a slot
        lease = await self._acquire(request, body.get("wait_s"))
        payload = lease.session.reset(task_id, include_persona)
        return {"env_idx": lease.slot, "lease_id": lease.lease_id, **payload}

    async def _acquire(self, request: Request, wait_s: Any) -> Lease:
        """A lease, unless the client hangs up or its patience ends while it waits."""
        if wait_s is not None and (isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or wait_s < 0):
            raise BadRequest(f"wait_s is {wait_s!r}; give a number of seconds, 0 or more")
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

    async def _interact(self, body: Body, request: Request) -> Any:
        session = self._leased(body)
        return session.step(_field(body, "response", str))

    async def _terminate(self, body: Body, request: Request) -> Any:
        session = self._leased(body)
        return session.terminate(_field(body, "termination_reason", str))

    async def _release_one(self, body: Body, request: Request) -> Any:
        slot, lease_id = _lease_of(body)
        self._pool.release(slot, lease_id)
        return {"env_idx": slot, "released": True}

    async def _release_all(self, body: Body, request: Request) -> Any:
        return {"released": self._pool.release_all()}

    def _leased(self, body: Body) -> ShopSession:
        return self._pool.session(*_lease_of(body))


async def _disconnected(request: Request) -> None:
    """Returns when the client has hung up; the body has been read, so nothing else can arrive."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _parse(raw: bytes) -> Body:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the request body is not JSON in UTF-8: {error}") from None
    if not isinstance(body, dict):
        raise BadRequest("the request body must be a JSON object with an `action`")
    return body


def _lease_of(body: Body) -> tuple[int, str]:
    if body.get("env_idx") is None or body.get("lease_id") is None:
        raise BadRequest("env_idx and lease_id are missing; send the ones that reset returned")
    return _field(body, "env_idx", int), _field(body, "lease_id", str)


def _field(body: Body, name: str, kind: type) -> Any:
    value = body.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        found = "nothing" if value is None else repr(value)
        raise BadRequest(f"`{name}` must be {'a whole number' if kind is int else 'a string'}, found {found}")
    return value


def _json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
