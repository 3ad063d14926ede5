"""What goes wrong in a day: engines, environments and rollouts that disappear while a job runs.

Each test asks two things: that the run goes on (or stops with the reason), and that nothing unscored is trained on.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
import zlib
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from intraskill.core.errors import TooManyTechnicalFailures
from intraskill.policies.token import TokenPolicy


def technical(generated) -> int:
    return generated.batch.collected.verdicts.count("technical")


def unscored(generated) -> list:
    return [e for group in generated.batch.collected.groups for e in group.episodes if not e.scorable]


def when(condition, act) -> threading.Thread:
    """Do `act` in a thread of its own as soon as `condition` holds."""

    def wait() -> None:
        deadline = time.monotonic() + 60
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.002)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# Two engines behind a router


@pytest.fixture
def engines(kit, fake_sglang):
    """Two engines with what a router asks them for at the start."""
    made = [fake_sglang(tokens=kit.server.tokens) for _ in range(2)]

    async def fine(request):
        return JSONResponse({"model_path": "tiny", "served_model_name": "tiny", "tp_size": 1, "dp_size": 1})

    for engine in made:
        engine.is_router = False
        paths = ("/health", "/health_generate", "/server_info", "/get_server_info", "/model_info", "/get_model_info")
        engine._app.router.routes.extend(Route(path, fine) for path in paths)
    return made


@pytest.fixture(params=["stand-in", pytest.param("sglang_router", marks=pytest.mark.slime)])
def router_port(request, kit, engines):
    """A router that goes by keys and, like the one slime starts, never gives an engine up."""
    if request.param == "stand-in":
        router = stand_in_router(type(kit.server), engines)
        yield router.port
        router.stop()
        return
    port = free_port()
    command = [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--policy", "manual", "--assignment-mode", "min_group", "--disable-circuit-breaker"]
    command += ["--disable-health-check", "--prometheus-port", str(free_port()), "--log-level", "warn"]
    process = subprocess.Popen(command)
    try:
        register(f"http://127.0.0.1:{port}", engines, process)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def stand_in_router(base, engines):
    class Router(base):
        async def _generate(self, request):
            key, body = request.headers.get("x-smg-routing-key"), await request.body()
            chosen = engines if key is None else [engines[zlib.crc32(key.encode()) % len(engines)]]
            async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as client:
                for engine in chosen:
                    try:
                        answer = await client.post(f"{engine.url}/generate", content=body)
                    except httpx.TransportError:
                        continue
                    return Response(answer.content, answer.status_code, media_type="application/json")
            return JSONResponse({"error": {"code": "call_upstream_request_error"}}, status_code=500)

    return Router()


def register(url: str, engines, process) -> None:
    def ask(call):
        try:
            return call().is_success
        except httpx.HTTPError:
            return False

    def until(call) -> None:
        deadline = time.monotonic() + 60
        while not ask(call):
            assert process.poll() is None
            assert time.monotonic() < deadline, "the router is not ready"
            time.sleep(0.1)

    until(lambda: httpx.get(f"{url}/workers", trust_env=False))
    for engine in engines:
        body = {"url": engine.url, "worker_type": "regular"}
        until(lambda body=body: httpx.post(f"{url}/workers", json=body, trust_env=False))
    deadline = time.monotonic() + 60
    while httpx.get(f"{url}/workers", trust_env=False).json()["total"] < len(engines):
        assert time.monotonic() < deadline, "the router does not take the engines"
        time.sleep(0.1)


@pytest.mark.timeout(300)
def test_one_engine_of_two_dies_and_the_other_finishes_the_step(kit, engines, router_port):
    kit.server = SimpleNamespace(port=router_port)
    job = kit.job()
    job.evaluate(0)
    assert all(engine.requests for engine in engines), "both engines are used"
    first, second = engines
    served = len(first.requests)
    killer = when(lambda: len(first.requests) > served + 2, first.stop)
    generated = job.generate(0)
    killer.join()
    assert technical(generated) == 0
    assert len(generated.batch.kept) == 2
    before = len(second.requests)
    assert technical(job.generate(1)) == 0
    assert len(second.requests) > before


# The environment service


class Service:
    """The environment service of a kit's world, in a process of its own."""

    def __init__(self, kit) -> None:
        command = [sys.executable, "-m", "intraskill", "slime", "environment", str(kit.folder / "config.yaml")]
        command += ["--runs-dir", str(kit.folder / "runs"), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = json.loads(self.process.stdout.readline())["url"]
        self.port = int(self.url.rsplit(":", 1)[1])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Door:
    """An address in front of a service. While it is shut, connections are refused, as without a service."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._listener: socket.socket | None = None
        self._open: list[socket.socket] = []

    def open(self, target: int) -> None:
        self._listener = listener = socket.create_server(("127.0.0.1", self.port), backlog=200)
        threading.Thread(target=self._accept, args=(listener, target), daemon=True).start()

    def shut(self) -> None:
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._open.clear()

    def _accept(self, listener: socket.socket, target: int) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", target))
            except OSError:
                return
            self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def services(kit):
    """Makes services, and ends them."""
    kit.args()  # writes the settings file
    made: list[Service] = []

    def start() -> Service:
        made.append(Service(kit))
        return made[-1]

    yield start
    for service in made:
        service.kill()


@pytest.mark.timeout(300)
def test_an_environment_service_that_is_away_for_ten_seconds_costs_no_group(kit, services):
    """Another process takes its place, which knows nothing of the sessions of the first."""
    first, second, door = services(), services(), Door()
    kit.spec["environment_url"] = door.url
    door.open(first.port)
    job = kit.job()
    job.evaluate(0)
    asked = len(kit.server.requests)

    def outage() -> None:
        first.kill()
        door.shut()
        time.sleep(10)
        door.open(second.port)

    breaker = when(lambda: len(kit.server.requests) > asked + 4, outage)
    started = time.monotonic()
    generated = job.generate(0)
    breaker.join()
    door.shut()
    assert time.monotonic() - started > 10
    assert unscored(generated) == []
    assert len(generated.batch.kept) == 2


def test_an_environment_service_that_stays_away_stops_the_run_with_its_reason(kit, services, monkeypatch):
    service = services()
    kit.spec["environment_url"] = service.url
    job = kit.job()
    job.evaluate(0)
    monkeypatch.setattr("shopsimulator.client._RETRY_DELAY_S", 0.001)
    monkeypatch.setattr("shopsimulator.client._RETRY_CAP_S", 0.002)
    service.kill()
    with pytest.raises(TooManyTechnicalFailures, match="no answer from the shop service") as stopped:
        job.generate(0)
    assert "8 groups in a row" in str(stopped.value)
    assert job.driver.state.step == 0


# The rollout itself


def test_a_request_that_slime_aborts_makes_its_group_technical(kit):
    job = kit.job()
    job.evaluate(0)
    meta = {"finish_reason": {"type": "abort"}, "output_token_logprobs": [], "weight_version": "3"}
    kit.server.faults = [(200, {"text": "", "meta_info": meta})]
    generated = job.generate(0)
    (episode,) = unscored(generated)
    assert "aborted" in episode.error["message"]
    assert technical(generated) == 1
    assert all(e.scorable for group in generated.batch.kept for e in group.episodes)


def test_what_a_full_batch_aborts_goes_back_to_the_head_of_the_tasks(kit, recorded):
    kit.settings["rollout"] = {**kit.settings["rollout"], "order": "completion"}
    job = kit.job()
    job.evaluate(0)
    plain, first = job.driver.run.runner, job.driver.state.next_group
    slow = {f"group-{first + 1}", f"group-{first + 3}"}

    class Scripted(type(plain)):
        async def run(self, job, chunks, group):
            if group in slow:
                await asyncio.Event().wait()
            turns = [recorded.turn((1, 2), (3,))]
            return recorded.episode(float(job.sample_id), turns, job.task_id, job.sample_id)

    job.driver.run = replace(job.driver.run, runner=Scripted(plain.family, plain.policy, plain.prompt, plain.settings))
    aborted = job.generate(0).batch.collected.aborted
    assert {f"group-{plan.index}" for plan in aborted} == slow
    assert job.driver.state.stream["returned"] == [plan.task_id for plan in aborted]


def test_a_sibling_that_hangs_is_given_up_at_its_deadline(kit):
    kit.settings["slime"] = {**kit.settings["slime"], "episode_timeout_s": 77.0}
    job = kit.job()
    job.evaluate(0)
    plain, hanging = job.driver.run.runner, f"group-{job.driver.state.next_group}"
    assert plain.settings.deadline_s == 77.0

    class Hangs(TokenPolicy):
        async def generate(self, request):
            return await asyncio.Event().wait()

    class OneHangs(type(plain)):
        """The deadline is short for the one sibling that needs it: the others may be slow on a busy machine."""

        async def run(self, job, chunks, group):
            if (group, job.sample_id) != (hanging, 0):
                return await super().run(job, chunks, group)
            policy = Hangs(self.policy.chat, self.policy.engine)
            one = replace(self, policy=policy, settings=replace(self.settings, deadline_s=0.5))
            return await super(OneHangs, one).run(job, chunks, group)

    job.driver.run = replace(job.driver.run, runner=OneHangs(plain.family, plain.policy, plain.prompt, plain.settings))
    generated = job.generate(0)
    (failed,) = unscored(generated)
    assert failed.error["stage"] == "deadline"
    assert technical(generated) == 1
    assert len(generated.batch.kept) == 2
