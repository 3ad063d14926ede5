import email.utils
import time

import httpx
import pytest

from intraskill.policies.retry import Retry, is_loopback, redact, retry_after


def answer(**headers) -> httpx.Response:
    return httpx.Response(429, headers={key.replace("_", "-"): value for key, value in headers.items()})


def test_retry_after_as_seconds_or_date():
    assert retry_after(answer()) is None
    assert retry_after(answer(retry_after="7")) == 7.0
    assert retry_after(answer(retry_after="-3")) == 0.0
    assert retry_after(answer(retry_after="soon")) is None
    ahead = email.utils.formatdate(time.time() + 100, usegmt=True)
    assert 90 < retry_after(answer(retry_after=ahead)) <= 100
    assert retry_after(answer(retry_after="Mon, 01 Jan 2001 00:00:00 GMT")) == 0.0


def test_waits_are_jittered_grow_and_stay_under_the_cap():
    retry = Retry(attempts=9, first_s=1.0, cap_s=10.0)
    early, late = [retry.wait(0) for _ in range(200)], [retry.wait(8) for _ in range(200)]
    assert len(set(early)) > 100
    assert 0 <= min(early) <= max(early) <= 1.0
    assert max(late) <= 10.0
    assert sum(late) > 4 * sum(early)


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://127.9.9.9/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:80/v1", True),
        ("https://api.example.com/v1", False),
        ("http://10.0.0.1/v1", False),
        ("http://localhost.example.com/v1", False),
    ],
)
def test_loopback_is_recognised(url, loopback):
    assert is_loopback(url) is loopback


def test_redaction():
    assert redact("key abc, abc", "abc") == "key ***, ***"
    assert redact("nothing", None) == "nothing"
