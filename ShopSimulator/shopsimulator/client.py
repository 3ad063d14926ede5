"""Async client of the shop service; it speaks the published protocol, so it can talk to any service that keeps it.

One `ShopClient` serves many episodes at once, over as many connections as requests overlap. Only what is safe to
repeat is repeated: a `reset` that got lost is tried again a few times, one that found no free slot until `wait_s` is
used up (a lease granted to a lost request expires by itself). `interact` is sent exactly once: when its answer is
lost, nobody knows whether the step was taken, and the episode is given up with `ServiceUnavailable` rather than
stepped twice.

A refusal arrives as the error it stands for (`errors.py`); a failure without a `code`, which only our service gives, is
taken for a breakdown, since its cause cannot be told. Loopback services are reached directly, whatever proxy the
environment names.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Sequence
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
    "409": StaleLease,
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
        return _health(self.url, await self._send("GET", "/healthz"))

    async def reset(
        self, task_id: int, *, if_persona: bool = False, interaction_mode: str = "single_turn"
    ) -> dict[str, Any]:
        """Lease a slot and start the task; the answer carries `env_idx` and `lease_id` for the other calls."""
        deadline = time.monotonic() + self._wait_s
        body = {
            "action": "reset",
            "idx": task_id,
            "if_persona": if_persona,
            "interaction_mode": interaction_mode,
            "wait_s": self._timeout_s / 2,
        }
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
        """One step: `search[...]` or `click[...]`, alone or in a line `Action: ...`."""
        return await self._call(_interact(env_idx, lease_id, response))

    async def interact_many(self, steps: Sequence[tuple[int, str, str]]) -> list[dict[str, Any] | ShopError]:
        """Steps (env_idx, lease_id, response) of many episodes in one request; a refused one is its error.

        Ours: a service of the published protocol alone refuses it.
        """
        body = {"action": "batch", "requests": [_interact(*step) for step in steps]}
        answers = (await self._call(body))["answers"]
        return [_outcome(answer["status"], answer["result"]) for answer in answers]

    async def terminate(self, env_idx: int, lease_id: str, reason: str) -> dict[str, Any]:
        """End the episode with the zero-reward terminal `action_limit` or `generation_length`."""
        body = {"action": "terminate", "env_idx": env_idx, "lease_id": lease_id, "termination_reason": reason}
        return await self._call(body)

    async def release(self, env_idx: int, lease_id: str) -> None:
        """Give the slot back."""
        await self._call({"action": "release_one", "env_idx": env_idx, "lease_id": lease_id})

    async def release_all(self) -> int:
        """End everybody's leases; returns how many there were."""
        return (await self._call({"action": "release_all"})).get("released", 0)

    async def _call(self, body: dict[str, Any]) -> dict[str, Any]:
        response = await self._send("POST", "/api/shop_agent", body)
        outcome = _outcome(response.status_code, _content(self.url, response).get("result"), self.url)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        content = None if body is None else orjson.dumps(body)
        headers = {"content-type": "application/json"} if content else None
        http = self._connection()
        try:
            return await http.request(method, self.url + path, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise _no_answer(self.url, error) from error
        finally:
            self._idle.append(http)

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
    return _health(base, response)


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
        raise ShopError(f"{url!r} is no URL of a shop service; write it like http://127.0.0.1:5700")
    return url.rstrip("/")


def _no_answer(url: str, error: httpx.HTTPError) -> ServiceUnavailable:
    return ServiceUnavailable(f"no answer from the shop service at {url}: {str(error) or type(error).__name__}")


def _health(url: str, response: httpx.Response) -> dict[str, Any]:
    content = _content(url, response)
    if response.status_code != 200 or "environment_version" not in content:
        raise _no_shop(url, response)
    return content


def _content(url: str, response: httpx.Response) -> dict[str, Any]:
    """The JSON object of an answer; raises `ServiceUnavailable` if it is none."""
    try:
        content = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        content = None
    if not isinstance(content, dict):
        raise _no_shop(url, response)
    return content


def _no_shop(url: str, response: httpx.Response) -> ServiceUnavailable:
    return ServiceUnavailable(f"{url} does not answer like a shop service (HTTP status {response.status_code})")


def _interact(env_idx: int, lease_id: str, response: str) -> dict[str, Any]:
    return {"action": "interact", "env_idx": env_idx, "lease_id": lease_id, "response": response}


def _outcome(status: int, result: Any, url: str = "the service") -> Any:
    """The result of a good answer, else the error that a refusal or a breakdown stands for."""
    if not isinstance(result, dict):
        return ServiceUnavailable(f"{url} does not answer like a shop service (HTTP status {status})")
    if "error" not in result:
        return result
    message, code = str(result["error"]), result.get("code")
    if code == "no_free_slot":
        return _Busy(message)
    if code is None and status >= 500:
        return ServiceUnavailable(f"the shop service at {url} failed: {message}")
    return _REFUSALS.get(str(code or status), ShopError)(message)
