"""Recorded episodes, slime-like arguments, a fake SGLang server, and a small job without slime."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
import time
from types import SimpleNamespace

import pytest

from intraskill.records import Assignment, Episode, EpisodeJob, EpisodeStep, Group, Turn


def pytest_collection_modifyitems(items):
    """Tests marked `slime` need slime itself (and what it imports)."""
    missing = [name for name in ("slime", "ray") if importlib.util.find_spec(name) is None]
    for item in items:
        if missing and item.get_closest_marker("slime"):
            item.add_marker(pytest.mark.skip(reason=f"{', '.join(missing)} not installed; docs/four_gpus.md says how"))


def make_turn(prompt, sampled, version="7", text="", cached=0) -> Turn:
    logs = tuple(-0.1 * (position + 1) for position in range(len(sampled)))
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(sampled), "cached_tokens": cached}
    return Turn(text, "", "", (), "stop", tuple(prompt), tuple(sampled), logs, None, version, usage)


def make_episode(reward, turns, task_id=1, sample_id=0, status="completed", termination="purchase") -> Episode:
    return Episode(
        job=EpisodeJob(task_id, sample_id, 0, "train"),
        status=status,
        skill_ids=(),
        reset=None,
        messages=(),
        steps=tuple(EpisodeStep(turn, None, None) for turn in turns),
        reward=reward,
        success=reward == 1.0,
        detail={},
        termination=termination,
        error=None if status == "completed" else {"stage": "policy", "type": "x", "message": "x"},
    )


def make_group(index, episodes) -> Group:
    return Group(index, 1, Assignment(index, True, ()), tuple(episodes))


@pytest.fixture(scope="session")
def recorded():
    """Builders of recorded turns, episodes and groups."""
    return SimpleNamespace(turn=make_turn, episode=make_episode, group=make_group)


class FakeSGLang:
    """A server that answers `/generate` like SGLang does; `faults` are consumed first, one a request.

    A fault is a status code, a (status, body) pair, "drop" (the connection is cut) or "hang".
    """

    def __init__(self, tokens=(5, 6, 2)) -> None:
        from starlette.applications import Starlette
        from starlette.routing import Route

        self.tokens, self.version, self.faults = tokens, "3", []
        self.requests: list[dict] = []
        self.keys: list[str | None] = []
        self.aborted: list[str] = []
        self.peers: list[str] = []
        self.is_router = True
        routes = [
            Route("/generate", self._generate, methods=["POST"]),
            Route("/abort_request", self._abort, methods=["POST"]),
            Route("/workers", self._workers),
        ]
        self._app, self._server, self.port = Starlette(routes=routes), None, 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        import uvicorn

        config = uvicorn.Config(self._app, port=self.port, log_level="critical", timeout_graceful_shutdown=0)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self._server.started:
            assert time.monotonic() < deadline, "the fake server did not start"
            time.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(timeout=10)

    async def _generate(self, request):
        from starlette.responses import JSONResponse

        body = await request.json()
        self.requests.append(body)
        self.keys.append(request.headers.get("x-smg-routing-key"))
        fault = self.faults.pop(0) if self.faults else None
        if fault == "hang":
            await asyncio.sleep(30)
        if fault == "drop":
            raise RuntimeError("cut")
        if isinstance(fault, tuple):
            return JSONResponse(fault[1], status_code=fault[0])
        if isinstance(fault, int):
            return JSONResponse({"error": {"message": "broken"}}, status_code=fault)
        return JSONResponse(self._answer(body))

    def _answer(self, body):
        params = body["sampling_params"]
        sampled = list(self.tokens)[: params["max_new_tokens"]]
        kind = "stop" if len(sampled) == len(self.tokens) else "length"
        meta = {
            "finish_reason": {"type": kind},
            "output_token_logprobs": [[-0.5, token, None] for token in sampled],
            "input_token_logprobs": [[None if i == 0 else -1.0 - i, t, None] for i, t in enumerate(body["input_ids"])],
            "weight_version": self.version,
            "cached_tokens": 4,
        }
        return {"text": "", "meta_info": meta}

    async def _abort(self, request):
        from starlette.responses import JSONResponse

        self.aborted.append((await request.json())["rid"])
        return JSONResponse({})

    async def _workers(self, request):
        from starlette.responses import JSONResponse

        if not self.is_router:
            return JSONResponse({}, status_code=404)
        return JSONResponse({"workers": [{"url": self.url}, *({"url": peer} for peer in self.peers)]})


@pytest.fixture
def fake_sglang():
    """`fake_sglang(tokens=..)` -> a running fake server."""
    servers: list[FakeSGLang] = []

    def make(**options) -> FakeSGLang:
        servers.append(FakeSGLang(**options))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()
