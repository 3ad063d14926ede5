"""A deterministic shopper (as a policy, and behind an OpenAI-compatible server that can be told to fail), and runs."""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from small_runs import any_choice

from intraskill.core.errors import PolicyUnavailable
from intraskill.core.progress import Reporter
from intraskill.evaluate.run import run_evaluation
from intraskill.evaluate.settings import EvalSettings
from intraskill.policies.scripted import call_text, turn_of
from intraskill.skills.bank import Bank, Chunk, write_bank

CARE = Chunk("care", title="Care", applies_when="always", procedure=("search carefully",))
HASTE = Chunk("haste", title="Haste", applies_when="always", procedure=("hurry",))


def shop(messages, seed: int) -> tuple[str, str] | None:
    """The next call as (tool, argument), from the page text alone; None for a reply without a call."""
    draw = random.Random(seed)
    system = messages[0]["content"] if messages[0]["role"] == "system" else ""
    user = next(message["content"] for message in messages if message["role"] == "user")
    page = messages[-1]["content"]
    if "hurry" in system and draw.random() < 0.5:
        return None
    if page.endswith("search"):
        words = re.findall(r"[a-z]+", user.splitlines()[0])
        return "search", " ".join(words) if "carefully" in system else words[-1]
    return "click", any_choice(page, draw)


class Shopper:
    """`shop` as a policy. `fails` decides from the session's name and its attempt whether a turn is a failure."""

    def __init__(self, fails=lambda session, attempt: False) -> None:
        self.fails = fails
        self.attempts: Counter[str] = Counter()
        self.running = self.most_running = 0

    async def generate(self, request):
        await asyncio.sleep(0)  # let the others run in between
        if self.fails(request.session, self.attempts[request.session]):
            raise PolicyUnavailable("told to fail")
        call = shop(request.messages, request.seed)
        name = {"search": "query", "click": "value"}
        text = "I would rather talk." if call is None else call_text(call[0], **{name[call[0]]: call[1]})
        return turn_of(text, {"prompt_tokens": 100, "completion_tokens": 7})

    async def score(self, token_ids):
        raise NotImplementedError

    def open_session(self, session):
        self.attempts[session] += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)

    def close_session(self, session):
        self.running -= 1

    def identity(self):
        return {"model": "shopper"}


@pytest.fixture
def shopper():
    return Shopper


@pytest.fixture(scope="session")
def runs_dir(tmp_path_factory) -> Path:
    """One folder for all tests, so that the world is generated once; every test uses names of its own."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def name(request) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")


@pytest.fixture
def make_settings(name):
    """make_settings(**changes) -> settings of an evaluation in the small world."""

    def make(**changes) -> EvalSettings:
        plain = {"name": name, "environment": {"world": {"generate": "small"}}, "concurrency": 8}
        plain["policy"] = {"base_url": "http://127.0.0.1:9/v1", "model": "shopper", "attempts": 1}
        return EvalSettings.model_validate(plain | changes)

    return make


@pytest.fixture
def evaluate(runs_dir, make_settings):
    """evaluate(actor, final_test=..., **settings) -> (folder, summary)."""

    def run(actor=None, final_test=False, **changes):
        settings = make_settings(**changes)
        path = runs_dir / settings.name
        summary = run_evaluation(settings, path, Reporter(quiet=True), final_test=final_test, policy=actor or Shopper())
        return path, summary

    return run


@pytest.fixture
def care_bank(tmp_path) -> Path:
    write_bank(tmp_path / "care.json", Bank((CARE,)))
    return tmp_path / "care.json"


@pytest.fixture
def read_traces():
    return lambda path: [json.loads(line) for line in (path / "traces.jsonl").read_text().splitlines()]


class ModelServer:
    """An OpenAI-compatible server around `shop`; `fault(body)` may answer instead, None lets it pass."""

    def __init__(self) -> None:
        self.requests = 0
        self.fault = lambda body: None
        self.delay_s = 0.0
        self.bodies: list[dict] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.requests += 1
                server.bodies.append(body)
                time.sleep(server.delay_s)
                fault = server.fault(body)
                if fault == "drop":
                    self.close_connection = True
                    return
                status, headers, answer = fault or (200, {}, server.answer(body))
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *arguments: None  # a client that was killed
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def answer(self, body) -> dict:
        call = shop(body["messages"], body["seed"])
        message: dict = {"role": "assistant", "content": "I would rather talk." if call is None else None}
        if call is not None:
            arguments = json.dumps({"query" if call[0] == "search" else "value": call[1]})
            message["tool_calls"] = [
                {"id": f"c{self.requests}", "type": "function", "function": {"name": call[0], "arguments": arguments}}
            ]
        usage = {"prompt_tokens": 50, "completion_tokens": 5}
        return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def model_server():
    server = ModelServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def tiny_model(tokenizer, tmp_path_factory) -> Path:
    """A model directory with random weights: it talks nonsense, deterministically."""
    pytest.importorskip("torch")
    from transformers import Qwen3Config

    from intraskill.backends.embedded.models import build_model

    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=4096,
        eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
        tie_word_embeddings=True,
    )
    directory = tmp_path_factory.mktemp("model")
    build_model(config, seed=0).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
