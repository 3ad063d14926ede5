"""A model server on loopback whose every answer a test decides."""

import json
import socket
import threading
import time

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


class ModelServer:
    """Serves `/v1/chat/completions`. `answers` are Response objects, JSON bodies, or async functions of the request;
    the last one repeats. `requests` and `headers` keep what came in."""

    def __init__(self, answers) -> None:
        self.answers = list(answers)
        self.requests: list[dict] = []
        self.headers: list[dict] = []
        self.asked, self.disconnected = threading.Event(), threading.Event()
        app = Starlette(routes=[Route("/v1/chat/completions", self._answer, methods=["POST"])])
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(timeout=10)

    async def _answer(self, request):
        self.requests.append(json.loads(await request.body()))
        self.headers.append(dict(request.headers))
        self.asked.set()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer) and not hasattr(answer, "status_code"):
            return await answer(request)
        return JSONResponse(answer) if isinstance(answer, dict) else answer

    async def hang(self, request):
        """Never answers; notes when the client goes away."""
        if (await request.receive())["type"] == "http.disconnect":
            self.disconnected.set()
        return JSONResponse({})


@pytest.fixture
def model_server():
    servers: list[ModelServer] = []

    def start(*answers) -> ModelServer:
        servers.append(ModelServer(answers))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
