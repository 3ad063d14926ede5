"""A token engine behind SGLang: one server, or a router with several behind it. Token ids go in, token ids come out.

What a long training job needs beyond one HTTP request:

* **Aborting.** SGLang goes on sampling after its client has gone. So every request carries an id of its own, and a
  request whose episode was cancelled or closed is aborted by that id on every server.
* **Patience.** An engine that restarts, a router that has no worker yet (503), a lost connection: asked again with a
  new id, with backoff. A prompt that does not fit the context window is no such error: it is a reply of length zero.
* **One engine per group.** Siblings share their prompt. All their requests carry one routing key, so that a router
  that goes by keys sends them to one engine, which prefills the shared prompt once. A router may hold on to an engine
  that died (slime starts it without health checks), so a key under which a request was lost is not used again.
* **One version.** `pin` starts a stretch of work that must come from one set of weights, for example one training
  step or one gate. The first reply says which; a later reply of another version is a technical failure.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from intraskill.core.errors import PolicyUnavailable
from intraskill.core.records import FinishReason, Sampling
from intraskill.policies.retry import DoesNotFit, Refused, Retry, post_json, without_credentials
from intraskill.policies.token import Generation

ROUTING_HEADER = "X-SMG-Routing-Key"

_FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length", "abort": "abort"}
_ABORT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class SGLangServer:
    """Where the engines answer and how hard to lean on them. `model` names what they serve, for fingerprints.

    `stop_ids` end a reply beside those that the engines know of.
    """

    url: str
    model: str
    context_length: int
    stop_ids: tuple[int, ...] = ()
    concurrency: int = 256
    routing: Literal["group", "episode", "none"] = "group"
    timeout_s: float = 1800.0
    retry: Retry = field(default_factory=lambda: Retry(attempts=10, first_s=0.5, cap_s=20.0))


class SGLangEngine:
    """A `TokenEngine`. `cached_tokens` and `prompt_tokens` count over its life, for the prefix-cache hit rate."""

    def __init__(self, server: SGLangServer) -> None:
        self.server = server
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self._base = server.url.rstrip("/")
        self._version: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx.AsyncClient | None = None
        self._slots: asyncio.Semaphore | None = None
        self._lost_keys: set[str] = set()
        self._running: dict[str, tuple[set[str], asyncio.Task[Generation]]] = {}
        self._background: set[asyncio.Task[None]] = set()

    async def generate(
        self, prompt_ids: tuple[int, ...], *, sampling: Sampling, seed: int, session: str, group: str
    ) -> Generation:
        """Sample one continuation. The seed is not sent: engines batch freely, and batches change the numbers."""
        room = self.server.context_length - len(prompt_ids)
        if room <= 0:
            return Generation((), (), "length", self._version or "")
        request_ids: set[str] = set()
        task = asyncio.ensure_future(self._sample(prompt_ids, sampling, room, session, group, request_ids))
        self._running[session] = (request_ids, task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._running.get(session, (None, None))[1] is task:
                self._abort(request_ids)
                raise  # our caller was cancelled, and the request with it
            return Generation((), (), "abort", self._version or "")
        finally:
            if self._running.get(session, (None, None))[1] is task:
                del self._running[session]

    async def score(self, ids: Sequence[int]) -> list[float]:
        """Log-probs (nats, temperature 1) of `ids[1:]` under the current weights."""
        body = {
            "input_ids": list(ids),
            "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
            "return_logprob": True,
            "logprob_start_len": 0,
        }
        try:
            answer = await self._post(lambda: {**body, "rid": uuid.uuid4().hex}, {})
        except DoesNotFit as refused:
            raise PolicyUnavailable(f"{len(ids)} tokens cannot be scored: {refused}") from refused
        entries = answer.get("meta_info", {}).get("input_token_logprobs")
        if not isinstance(entries, list) or len(entries) != len(ids):
            raise PolicyUnavailable(f"{self._base} answered a scoring request without {len(ids)} log-probs")
        return [float(entry[0]) for entry in entries[1:]]

    def open_session(self, session: str) -> None:
        """Nothing to prepare: the engines' prefix cache finds shared prompts by itself."""

    def close_session(self, session: str) -> None:
        """Abort what still runs for the session."""
        request_ids, task = self._running.pop(session, (set(), None))
        if task is not None:
            task.cancel()
            self._abort(request_ids)

    def pin(self) -> None:
        """From now on accept one weight version only: the one of the next reply."""
        self._version = None
        self._lost_keys.clear()

    @property
    def version(self) -> str:
        """The weight version accepted since `pin`; empty before the first reply."""
        return self._version or ""

    def identity(self) -> dict[str, Any]:
        """The model. Not the weights' version: the servers' counter starts anew when a job is resumed."""
        return {"backend": "sglang", "model": self.server.model, "context_length": self.server.context_length}

    async def close(self) -> None:
        """Wait for the aborts under way and close the connections."""
        await asyncio.gather(*self._background, return_exceptions=True)
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def workers(self) -> list[str]:
        """The servers behind the router; the server itself when it is no router."""
        client = self._connect()
        for path, urls in (("/workers", _urls_of_workers), ("/list_workers", _urls_listed)):
            try:
                response = await client.get(self._base + path, timeout=_ABORT_TIMEOUT_S)
                found = urls(response.json()) if response.is_success else []
            except (httpx.HTTPError, ValueError):
                continue
            if found:
                return found
        return [self._base]

    async def _sample(
        self,
        prompt_ids: tuple[int, ...],
        sampling: Sampling,
        room: int,
        session: str,
        group: str,
        request_ids: set[str],
    ) -> Generation:
        limit = min(sampling.max_tokens, room)
        body = {
            "input_ids": list(prompt_ids),
            "sampling_params": {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                "max_new_tokens": limit,
                "stop_token_ids": list(self.server.stop_ids),
                "skip_special_tokens": False,
                "spaces_between_special_tokens": False,
                "no_stop_trim": True,
            },
            "return_logprob": True,
            "stream": False,
        }

        key = {"group": group, "episode": session, "none": None}[self.server.routing]
        headers = {ROUTING_HEADER: key} if key and key not in self._lost_keys else {}

        def new_body() -> dict[str, Any]:
            if request_ids:  # the attempt before this one was lost, but may still be running
                self._abort(set(request_ids))
                if headers:
                    self._lost_keys.add(headers.pop(ROUTING_HEADER))
            request_ids.add(request_id := uuid.uuid4().hex)
            return {**body, "rid": request_id}

        try:
            answer = await self._post(new_body, headers)
        except DoesNotFit:
            return Generation((), (), "length", self._version or "")
        generation = read_generation(answer)
        self._check_version(generation)
        self.prompt_tokens += len(prompt_ids)
        self.cached_tokens += generation.cached_tokens
        return generation

    def _check_version(self, generation: Generation) -> None:
        if self._version is None and generation.finish_reason != "abort":
            self._version = generation.weight_version
        if self._version is not None and generation.weight_version != self._version:
            raise PolicyUnavailable(
                f"a reply came from weights {generation.weight_version!r} while {self._version!r} are being sampled"
            )

    async def _post(self, body: Callable[[], dict[str, Any]], headers: Mapping[str, str]) -> dict[str, Any]:
        """POST; `body` is asked before each attempt and may change `headers` for it. Raises `DoesNotFit`."""
        client, slots = self._connect(), self._slots
        assert slots is not None
        try:
            async with slots:
                return await post_json(client, f"{self._base}/generate", body, self.server.retry, headers=headers)
        except DoesNotFit:
            raise
        except Refused as refused:
            raise PolicyUnavailable(f"{without_credentials(self._base)} refuses a request: {refused}") from refused

    def _abort(self, request_ids: set[str]) -> None:
        """Abort requests on every server, without waiting for it. Unknown ids do nothing there."""
        if request_ids:
            task = asyncio.ensure_future(self._send_aborts(set(request_ids)))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _send_aborts(self, request_ids: set[str]) -> None:
        client = self._connect()
        sends: list[Coroutine[Any, Any, Any]] = [
            client.post(f"{url}/abort_request", json={"rid": request_id}, timeout=_ABORT_TIMEOUT_S)
            for url in await self.workers()
            for request_id in request_ids
        ]
        await asyncio.gather(*sends, return_exceptions=True)  # a server that is gone runs nothing

    def _connect(self) -> httpx.AsyncClient:
        """The client of the running event loop (connections cannot move between loops)."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._loop = loop
            self._slots = asyncio.Semaphore(self.server.concurrency)
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(self.server.timeout_s, connect=10.0, pool=None),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=self.server.concurrency),
                trust_env=False,  # engines of one's own cluster never sit behind a proxy
            )
        return self._client


def read_generation(answer: Mapping[str, Any]) -> Generation:
    """What a `/generate` answer says. Raises `PolicyUnavailable` when it does not have the promised shape."""
    meta = answer.get("meta_info")
    if not isinstance(meta, dict) or not isinstance(meta.get("output_token_logprobs"), list):
        raise PolicyUnavailable("the engine answered without log-probs of the sampled tokens")
    reason = meta.get("finish_reason") or {}
    entries = meta["output_token_logprobs"]
    return Generation(
        token_ids=tuple(int(entry[1]) for entry in entries),
        log_probs=tuple(float(entry[0]) for entry in entries),
        finish_reason=_FINISH.get(str(reason.get("type")), "abort"),
        weight_version=str(meta.get("weight_version") or ""),
        cached_tokens=int(meta.get("cached_tokens") or 0),
    )


def _urls_of_workers(answer: Any) -> list[str]:
    workers = answer.get("workers", []) if isinstance(answer, dict) else []
    return [str(worker["url"]).rstrip("/") for worker in workers if isinstance(worker, dict) and worker.get("url")]


def _urls_listed(answer: Any) -> list[str]:
    urls = answer.get("urls", []) if isinstance(answer, dict) else []
    return [str(url).rstrip("/") for url in urls]
