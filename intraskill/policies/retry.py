"""One HTTP request to a model server, repeated while repeating can help.

Network errors, 408, 429, 5xx and answers that are no JSON object are retried with exponential backoff and full
jitter, so that many episodes hitting one limit do not come back in step. A server's `Retry-After` wins over our own
wait, up to a cap. Everything else the server refuses (`Refused`) would be refused again, and is raised at once; so is a
request that does not fit the context window, whatever the status (`overflow.py`).
Messages are short and pass through `redact`: whatever a server echoes, the API key does not get into a log or trace.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import orjson

from intraskill.core.errors import PolicyUnavailable
from intraskill.core.foreign_json import decode
from intraskill.policies.overflow import says_too_long

log = logging.getLogger(__name__)

_AGAIN = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how patiently; waits are in seconds, `cap_s` also bounds what a server asks for."""

    attempts: int = 6
    first_s: float = 0.5
    cap_s: float = 60.0

    def wait(self, attempt: int) -> float:
        """Full jitter: anywhere between nothing and the doubled bound."""
        return random.uniform(0.0, min(self.cap_s, self.first_s * 2**attempt))


class Refused(Exception):
    """The server understood and said no; asking again would not change that."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status
        self.message = message


class DoesNotFit(Refused):
    """The request does not fit the model's context window."""


class _Passing(Exception):
    """An answer that may be another one next time. `asked_s` is how long the server asked us to wait, if it did."""

    def __init__(self, problem: str, asked_s: float | None) -> None:
        super().__init__(problem)
        self.asked_s = asked_s


async def post_json(
    client: httpx.AsyncClient,
    url: str,
    body: dict[str, Any] | Callable[[], dict[str, Any]],
    retry: Retry,
    secret: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """POST and return the JSON object. Raises `Refused`, or `PolicyUnavailable` when the last attempt failed.

    A callable `body` is asked anew for every attempt, for servers that must not see one request id twice.
    """
    shown, problem = without_credentials(url), "no attempt was made"
    for attempt in range(retry.attempts):
        pause = retry.wait(attempt)
        try:
            response = await client.post(url, json=body() if callable(body) else body, headers=headers)
            return _answer(response, secret)
        except httpx.TransportError as error:
            problem = f"{type(error).__name__}: {_shortened(redact(str(error), secret))}"
        except _Passing as passing:
            problem = str(passing)
            pause = pause if passing.asked_s is None else min(passing.asked_s, retry.cap_s)
        if attempt + 1 < retry.attempts:
            log.info("%s failed (%s); attempt %d of %d in %.1f s", shown, problem, attempt + 2, retry.attempts, pause)
            await asyncio.sleep(pause)
    raise PolicyUnavailable(f"{shown} failed {retry.attempts} times, last: {problem}")


def _answer(response: httpx.Response, secret: str | None) -> dict[str, Any]:
    """The JSON object of the response. Raises `Refused` or `_Passing`."""
    status, answer = response.status_code, _decoded(response.content) if response.is_success else None
    if isinstance(answer, dict) and not answer.get("error"):  # some gateways wrap failures in a 200
        return answer
    problem = _shortened(redact(response.text, secret))
    failed = response.is_error or isinstance(answer, dict)
    if failed and status not in _AGAIN and says_too_long(response.text):
        raise DoesNotFit(status, problem)
    if response.is_error and status not in _AGAIN and status < 500:
        raise Refused(status, problem)
    raise _Passing(f"HTTP {status}: {problem}", retry_after(response))


def _decoded(content: bytes) -> Any:
    """The JSON value, None for what is none. Half a character, as escape or as bytes, is replaced, not refused."""
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        pass
    try:
        return decode(content.decode("utf-8", "replace"))
    except ValueError:
        return None


def retry_after(response: httpx.Response) -> float | None:
    """Seconds the server asks us to wait (`Retry-After` as seconds or as a date), None when it does not say."""
    value = response.headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def is_loopback(url: str) -> bool:
    """Whether the URL points at this machine; proxy settings must not apply then."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def without_credentials(url: str) -> str:
    """The URL without a user name and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def redact(text: str, secret: str | None) -> str:
    return text.replace(secret, "***") if secret else text


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:297] + "..."
