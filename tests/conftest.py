"""Shared fixtures: a byte-level tokenizer with chat templates, a toy shop, a shop service, token engines and a fake of
a server behind one."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from pathlib import Path

import hypothesis
import pytest

from intraskill.core.errors import EnvironmentUnavailable, UserError
from intraskill.core.records import EpisodeJob, Reset, Sampling, StepResult

pytest_plugins = ["small_runs", "scripted_server"]

# The same examples on every run, and no time limit for one: the machine may be busy.
hypothesis.settings.register_profile("suite", derandomize=True, deadline=None)
hypothesis.settings.load_profile("suite")

QWEN_LIKE = """{%- if tools or (messages and messages[0].role == 'system') -%}
<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{%- if tools %}
# Tools
{% for tool in tools %}{{ tool.function | tojson }}
{% endfor %}{% endif %}<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}
<|im_start|>user
{{ message.content }}<|im_end|>
{% elif message.role == 'assistant' -%}
<|im_start|>assistant
{% if KEEP and message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>
{% endif %}{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>
<function={{ call.function.name }}>
{% for name, value in call.function.arguments | items %}<parameter={{ name }}>
{{ value }}
</parameter>
{% endfor %}</function>
</tool_call>{% endfor %}<|im_end|>
{% elif message.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user
{% endif %}<tool_response>
{{ message.content }}
</tool_response>
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>
{% else %}
{% endif %}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}"""


_CALL = QWEN_LIKE[QWEN_LIKE.index("<function=") : QWEN_LIKE.index("</function>") + len("</function>")]


@pytest.fixture(scope="session")
def make_tokenizer():
    """make_tokenizer(template) -> a fresh tokenizer: one id per byte, plus control and tag tokens."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")

    def make(template: str | None):
        alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {symbol: index for index, symbol in enumerate(alphabet)}
        core = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
        core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = tokenizers.decoders.ByteLevel()
        core.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
        tags = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
        core.add_tokens([tokenizers.AddedToken(tag, special=False, normalized=False) for tag in tags])
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>"
        )
        tokenizer.chat_template = template
        return tokenizer

    return make


@pytest.fixture(scope="session")
def qwen_template() -> str:
    return QWEN_LIKE.replace("KEEP", "true")


@pytest.fixture(scope="session")
def forgetful_template() -> str:
    """Drops the reasoning of earlier turns, as several published templates do."""
    return QWEN_LIKE.replace("KEEP", "false")


@pytest.fixture(scope="session")
def hermes_template(qwen_template) -> str:
    """Writes calls as JSON, as Qwen2.5 and Qwen3 do."""
    call = '{{ {"name": call.function.name, "arguments": call.function.arguments} | tojson }}'
    return qwen_template.replace(_CALL, call)


@pytest.fixture(scope="session")
def tokenizer(make_tokenizer, qwen_template):
    return make_tokenizer(qwen_template)


@pytest.fixture(scope="session")
def tokenizer_dir(tokenizer, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def chat(tokenizer):
    from intraskill.policies.chat import ChatTemplate

    return ChatTemplate(tokenizer)


@pytest.fixture
def job() -> EpisodeJob:
    return EpisodeJob(task_id="7", sample_id=0, seed=11, split="train")


class ToyShop:
    """search -> results 1 and 2 -> product -> buy. Product 1 is right. Keeps a diary of what was asked of it."""

    def __init__(self, max_steps: int = 30, fail_at: str | None = None) -> None:
        self.max_steps, self.fail_at = max_steps, fail_at
        self.diary: list[str] = []
        self.goal = {"asin": "B000SECRET", "attributes": ["oak"]}
        self.page, self.picked, self.count, self.over = "search", "", 0, False

    async def reset(self, task_id: str) -> Reset:
        self._note("reset")
        if task_id.startswith("-"):
            raise UserError(f"unknown task {task_id}")
        persona = {"用户ID": "U1", "兴趣偏好": {"品牌偏好": [{"品牌名称": "norvik", "偏好程度": "高"}]}}
        return Reset(task_id, "Buy an oak shelf.", self.page, self._state(), {"user_persona": persona})

    async def step(self, action: str) -> StepResult:
        self._note(action)
        assert not self.over, "step after the end"
        self.count += 1
        code = self._act(action)
        if self.over:
            return self._end("purchase", 1.0 if self.picked == "1" else 0.0)
        if self.count >= self.max_steps:
            return self._end("action_limit", 0.0)
        feedback = {"valid": code == "executed", "reason": code, "message": code}
        observation = self.page if code == "executed" else f"{code}\n{self.page}"
        return StepResult(observation, self._state(), False, 0.0, {}, feedback)

    async def terminate(self, reason: str) -> StepResult:
        self._note(f"terminate:{reason}")
        return self._end(reason, 0.0)

    async def close(self) -> None:
        self.diary.append("close")

    def identity(self) -> dict:
        return {"environment": "toy"}

    def _note(self, entry: str) -> None:
        self.diary.append(entry)
        if self.fail_at == entry:
            raise EnvironmentUnavailable(f"gone at {entry}")

    def _act(self, action: str) -> str:
        kind, _, rest = action.partition("[")
        value = rest.removesuffix("]")
        if kind == "search":
            if self.page != "search":
                return "search_unavailable"
            self.page = "results"
            return "executed"
        if value not in self._state()["actions"]:
            return "unavailable_action"
        if self.page == "results":
            self.page, self.picked = "product", value
        else:
            self.over = True
        return "executed"

    def _state(self) -> dict:
        actions = {"search": [], "results": ["1", "2"], "product": ["buy"]}[self.page]
        return {"page_type": self.page, "search_available": self.page == "search", "actions": actions}

    def _end(self, reason: str, reward: float) -> StepResult:
        self.over = True
        purchase = {"asin": self.picked} if reason == "purchase" else None
        feedback = {"valid": True, "reason": "executed", "message": ""}
        detail = {"r_success": int(reward == 1.0)}
        state = self._state() | {"page_type": "terminal", "actions": []}
        extra = {"purchase": purchase}
        return StepResult("done", state, True, reward, detail, feedback, reward == 1.0, reason, extra, self.goal)


@pytest.fixture(scope="session")
def toy_shop() -> type[ToyShop]:
    return ToyShop


@pytest.fixture(scope="session")
def shop_words():
    """The shop as far as telling the policy and reading its replies goes; it has no world."""
    from intraskill.families.shop.family import Shop
    from intraskill.families.shop.settings import ShopSettings

    return Shop(ShopSettings(), None)


class ShopServer:
    """The HTTP shop service on a free loopback port, in a thread of its own."""

    def __init__(self, world, **options) -> None:
        import uvicorn
        from shopsimulator.service import create_app

        app = create_app(world, **options)
        self._server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 10
        while not self._server.started:
            assert time.monotonic() < deadline, "the service did not start"
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)


@pytest.fixture
def serve():
    """`serve(world, slots=.., lease_ttl_s=..)` -> a running service with `url` and `stop()`."""
    servers: list[ShopServer] = []

    def start(world, **options) -> ShopServer:
        servers.append(ShopServer(world, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


class ReplayEngine:
    """A token engine that says prepared replies, one after the other, cut at the sampling limit."""

    def __init__(self, chat, replies) -> None:
        self.chat, self.replies = chat, list(replies)
        self.prompts: list[tuple[int, ...]] = []
        self.seeds: list[int] = []
        self.sessions: list[str] = []

    async def generate(self, prompt_ids, *, sampling: Sampling, seed: int, session: str, group: str):
        from intraskill.policies.token import Generation

        self.prompts.append(prompt_ids)
        self.seeds.append(seed)
        ids = (*self.chat.encode(self.replies.pop(0)), self.chat.end_of_turn_id)
        cut = len(ids) > sampling.max_tokens
        ids = ids[: sampling.max_tokens]
        return Generation(ids, tuple(-0.25 - 0.001 * i for i in range(len(ids))), "length" if cut else "stop", "step-3")

    async def score(self, ids):
        return [-1.0] * (len(ids) - 1)

    def open_session(self, session: str) -> None:
        self.sessions.append(f"open {session}")

    def close_session(self, session: str) -> None:
        self.sessions.append(f"close {session}")

    def identity(self) -> dict:
        return {"model": "replay"}


@pytest.fixture(scope="session")
def replay_engine() -> type[ReplayEngine]:
    return ReplayEngine


class FakeSGLang:
    """A server that answers `/generate` like SGLang does; `faults` are consumed first, one a request.

    A fault is a status code, a (status, body) pair, "drop" (the connection is cut) or "hang". `tokens` are the reply,
    or a function from the prompt's ids to it.
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
        from starlette.responses import JSONResponse, Response

        body = await request.json()
        self.requests.append(body)
        self.keys.append(request.headers.get("x-smg-routing-key"))
        fault = self.faults.pop(0) if self.faults else None
        if fault == "hang":
            await asyncio.sleep(30)
        if fault == "drop":
            raise RuntimeError("cut")
        if isinstance(fault, tuple) and isinstance(fault[1], bytes):
            return Response(fault[1], status_code=fault[0])
        if isinstance(fault, tuple):
            return JSONResponse(fault[1], status_code=fault[0])
        if isinstance(fault, int):
            return JSONResponse({"error": {"message": "broken"}}, status_code=fault)
        return JSONResponse(self._answer(body))

    def _answer(self, body):
        params = body["sampling_params"]
        reply = list(self.tokens(body["input_ids"]) if callable(self.tokens) else self.tokens)
        sampled = reply[: params["max_new_tokens"]]
        kind = "stop" if len(sampled) == len(reply) else "length"
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


@pytest.fixture(scope="session")
def published() -> Path:
    """The folder of published results that reference tests check against; it lies beside the project."""
    default = Path(__file__).resolve().parents[2] / "shared" / "published"
    folder = Path(os.environ.get("INTRASKILL_PUBLISHED", default))
    if not folder.is_dir():
        pytest.skip(f"no published results at {folder}; set INTRASKILL_PUBLISHED to their folder")
    return folder


@pytest.fixture(scope="session")
def published_json(published):
    """Load one of the published JSON files by name."""
    return lambda name: json.loads((published / name).read_text(encoding="utf-8"))
