"""Async client of the shop service.

One `ShopClient` serves many episodes at once, over as many connections as requests overlap. Only what is safe to
repeat is repeated: a `reset` that got lost is tried again a few times, one that found no free slot until `wait_s` is
used up (a lease granted to a lost request expires by itself). `interact` is sent exactly once: when its answer is
lost, nobody knows whether the step was taken, and the episode is given up with `ServiceUnavailable` rather than
stepped twice.

Loopback services are reached directly, whatever proxy the environment names.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from types import TracebackType
from typing import Any

import httpx
import orjson

from shopsimulator.errors import EpisodeOver, ShopError, StaleLease, UnknownTask

_RETRY_DELAY_S = 0.1  # doubled with every lost request, up to the cap
_RETRY_CAP_S = 2.0
_REFUSALS: dict[str, type[ShopError]] = {
    "unknown_task": UnknownTask,
    "stale_lease": StaleLease,
    "episode_over": EpisodeOver,
}


class ServiceUnavailable(Exception):
    """The service cannot be reached, or broke down while it answered."""


class _Busy(ServiceUnavailable):
    """No slot was free in time."""


class ShopClient:
    """Client of the service at `url`.

    `timeout_s` limits one request, `wait_s` a whole `reset`; a `reset` is repeated after `lost_requests` requests
    without an answer at most (4 take three seconds, 20 take half a minute).
    """

    def __init__(self, url: str, *, timeout_s: float = 60.0, wait_s: float = 600.0, lost_requests: int = 4) -> None:
        self.url = _checked(url)
        self._timeout_s = timeout_s
        self._wait_s = wait_s
        self._lost_requests = lost_requests
        # Shared, and made only where it is needed: one takes longer to make than a hundred requests.
        self._verify = httpx.create_ssl_context() if self.url.startswith("https:") else False
        self._idle: list[httpx.AsyncClient] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> ShopClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; the client may be used again."""
        idle, self._idle = self._idle, []
        if self._loop is asyncio.get_running_loop():
            await asyncio.gather(*(http.aclose() for http in idle))

    async def health(self) -> dict[str, Any]:
        return await self._send("GET", "/healthz")

    async def reset(self, task_id: int, include_persona: bool = True) -> dict[str, Any]:
        """Lease a slot and start the task; the answer carries `env_idx` and `lease_id` for the other calls."""
        deadline = time.monotonic() + self._wait_s
        body = {"action": "reset", "idx": task_id, "if_persona": include_persona, "wait_s": self._timeout_s / 2}
        lost = 0
        while True:
            try:
                return await self._call(body)
            except ServiceUnavailable as error:
                lost += isinstance(error.__cause__, httpx.TransportError)
                repeatable = isinstance(error, _Busy) or isinstance(error.__cause__, httpx.TransportError)
                if not repeatable or lost > self._lost_requests or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(min(_RETRY_CAP_S, _RETRY_DELAY_S * 2**lost))

    async def interact(self, env_idx: int, lease_id: str, response: str) -> dict[str, Any]:
        """One step: `search[...]` or `click[...]`."""
        return await self._call({"action": "interact", "env_idx": env_idx, "lease_id": lease_id, "response": response})

    async def terminate(self, env_idx: int, lease_id: str, reason: str) -> dict[str, Any]:
        """End the episode with the zero-reward terminal `action_limit` or `generation_length`."""
        body = {"action": "terminate", "env_idx": env_idx, "lease_id": lease_id, "termination_reason": reason}
        return await self._call(body)

    async def release(self, env_idx: int, lease_id: str) -> None:
        """Give the slot back."""
        await self._call({"action": "release_one", "env_idx": env_idx, "lease_id": lease_id})

    async def release_all(self) -> int:
        """End everybody's leases; returns how many there were."""
        return (await self._call({"action": "release_all"}))["released"]

    async def _call(self, body: dict[str, Any]) -> dict[str, Any]:
        return (await self._send("POST", "/api/shop_agent", body))["result"]

    async def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        content = None if body is None else orjson.dumps(body)
        headers = {"content-type": "application/json"} if content else None
        http = self._connection()
        try:
            response = await http.request(method, self.url + path, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise _no_answer(self.url, error) from error
        finally:
            self._idle.append(http)
        return _answer(self.url, response)

    def _connection(self) -> httpx.AsyncClient:
        """An HTTP client that nobody is using; each ever holds one connection.

        One client with a pool of its own would look at every pair of its connections with each request. Connections
        of an earlier event loop are of no use any more.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._idle, self._loop = [], loop
        if self._idle:
            return self._idle.pop()
        trust_env = not is_loopback(httpx.URL(self.url).host)
        return httpx.AsyncClient(timeout=self._timeout_s, trust_env=trust_env, verify=self._verify)


def read_health(url: str, timeout_s: float = 60.0) -> dict[str, Any]:
    """What `/healthz` of the service at `url` says, for callers without an event loop."""
    base = _checked(url)
    try:
        response = httpx.get(f"{base}/healthz", timeout=timeout_s, trust_env=not is_loopback(httpx.URL(base).host))
    except httpx.HTTPError as error:
        raise _no_answer(base, error) from error
    return _answer(base, response)


def is_loopback(host: str) -> bool:
    """Whether `host` names this machine itself."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked(url: str) -> str:
    """`url` without a trailing slash. Raises `ShopError` when it names no HTTP service."""
    try:
        parsed = httpx.URL(url)
        usable = parsed.scheme in ("http", "https") and bool(parsed.host)
    except httpx.InvalidURL:
        usable = False
    if not usable:
        raise ShopError(f"{url!r} is no URL of a shop service; write it like http://127.0.0.1:8000")
    return url.rstrip("/")


def _no_answer(url: str, error: httpx.HTTPError) -> ServiceUnavailable:
    return ServiceUnavailable(f"no answer from the shop service at {url}: {str(error) or type(error).__name__}")


def _answer(url: str, response: httpx.Response) -> dict[str, Any]:
    """The JSON object of a good answer; raises what a refusal or a breakdown stands for."""
    try:
        answer = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict):
        raise ServiceUnavailable(f"{url} does not answer like a shop service (HTTP status {response.status_code})")
    if response.status_code == 200:
        return answer
    detail, code = str(answer.get("detail")), answer.get("code")
    if code == "no_free_slot":
        raise _Busy(detail)
    if response.status_code >= 500:
        raise ServiceUnavailable(f"the shop service at {url} failed: {detail}")
    raise _REFUSALS.get(str(code), ShopError)(detail)
