import asyncio
import json
import logging
import time
from dataclasses import replace

import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from intraskill.agent.episode import EpisodeSettings, run_episode
from intraskill.core.errors import PolicyUnavailable, UserError
from intraskill.core.records import Sampling, Turn, TurnRequest
from intraskill.families.shop.tools import build_tools
from intraskill.policies.openai import Endpoint, OpenAIPolicy
from intraskill.policies.retry import Retry
from intraskill.storage.documents import encode

KEY = "sk-very-secret-value"
QUICK = Retry(attempts=3, first_s=0.0, cap_s=0.05)
MESSAGES = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Buy oak."})
REQUEST = TurnRequest(MESSAGES, build_tools({}, "static"), Sampling(0.6, max_tokens=64), 2**62 + 5, "s", "g")
LATER = replace(REQUEST, previous=Turn("", "", "", (), "stop"))


def call(name="click", arguments='{"value": "1"}', call_id="c1"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def reply(*calls, content=None, finish="tool_calls", **more):
    message = {"role": "assistant", "content": content, "tool_calls": list(calls) or None}
    message |= {key: more.pop(key) for key in ("reasoning_content", "reasoning") if key in more}
    return {"id": "r1", "choices": [{"index": 0, "message": message, "finish_reason": finish}], **more}


def policy(server_or_url, **settings) -> OpenAIPolicy:
    url = getattr(server_or_url, "url", server_or_url)
    return OpenAIPolicy(Endpoint(url, "qwen", **{"retry": QUICK, "timeout_s": 5.0, **settings}))


async def test_a_reply_becomes_a_turn(model_server):
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}
    server = model_server(reply(call(), reasoning_content="hm", usage=usage, metadata={"weight_version": "7"}))
    turn = await policy(server).generate(REQUEST)
    (made,) = turn.tool_calls
    assert (made.name, made.arguments, made.call_id) == ("click", {"value": "1"}, "c1")
    assert (turn.reasoning, turn.content, turn.finish_reason, turn.parse_error) == ("hm", "", "stop", None)
    assert turn.usage == {"prompt_tokens": 9, "completion_tokens": 4, "cached_tokens": 3}
    assert turn.weight_version == "7"
    assert turn.token_ids == turn.prompt_ids == ()
    assert json.loads(turn.text)["tool_calls"][0]["id"] == "c1"


async def test_what_is_asked(model_server, monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY)
    server = model_server(reply(call()))
    extra = {"chat_template_kwargs": {"enable_thinking": True}}
    await policy(server, api_key_env="SOME_KEY", extra_body=extra, checkpoint_id="step-20").generate(REQUEST)
    (sent,) = server.requests
    assert sent["messages"] == list(MESSAGES)
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["search", "click"]
    assert (sent["model"], sent["tool_choice"], sent["temperature"], sent["max_tokens"]) == ("qwen", "auto", 0.6, 64)
    assert sent["seed"] == (2**62 + 5) % 2**31
    assert sent["chat_template_kwargs"] == {"enable_thinking": True}
    assert "top_k" not in sent
    assert "step-20" not in json.dumps(sent)
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("stop", "stop"),
        ("tool_calls", "stop"),
        ("function_call", "stop"),
        ("content_filter", "stop"),
        (None, "stop"),
        ("length", "length"),
        ("MAX_TOKENS", "length"),
        ("model_length", "length"),
        ("error", "abort"),
        ("abort", "abort"),
    ],
)
async def test_finish_reasons(model_server, finish, expected):
    assert (await policy(model_server(reply(call(), finish=finish))).generate(REQUEST)).finish_reason == expected


@pytest.mark.parametrize(
    ("answer", "calls", "content", "broken"),
    [
        (reply(content="just text", finish="stop"), 0, "just text", False),
        (reply(content=[{"type": "text", "text": "parts"}]), 0, "parts", False),
        (reply(content=""), 0, "", False),
        (reply(call(), call(call_id="c2")), 2, "", False),
        (reply(call(arguments={"value": "1"})), 1, "", False),
        (reply(call(arguments='{"value": ')), 0, 'click({"value": )', True),
        (reply(call(arguments="[1]")), 0, "click([1])", True),
        (reply(call(arguments="")), 0, "click()", True),
        (reply(call(), call(arguments="no"), content="hm"), 1, "hm\nclick(no)", True),
        (reply(call(arguments='{"value": NaN}')), 0, 'click({"value": NaN})', True),
        (reply(call(arguments='{"value": "1", "value": "2"}')), 0, 'click({"value": "1", "value": "2"})', True),
        (reply(call(arguments="[" * 5000)), 0, f"click({'[' * 5000})", True),
    ],
)
async def test_what_the_policy_got_wrong_is_never_asked_for_again(model_server, answer, calls, content, broken):
    server = model_server(answer)
    turn = await policy(server).generate(REQUEST)
    assert (len(turn.tool_calls), turn.content, turn.parse_error is not None) == (calls, content, broken)
    assert len(server.requests) == 1


FAULTS = {
    "429": JSONResponse({"error": "slow down"}, 429),
    "500": JSONResponse({}, 500),
    "502 html": PlainTextResponse("<html>bad gateway</html>", 502),
    "503": JSONResponse({}, 503),
    "408": JSONResponse({}, 408),
    "200 without JSON": PlainTextResponse("<html>login</html>"),
    "200 with a list": PlainTextResponse("[]"),
    "200 with endless nesting": PlainTextResponse("[" * 50_000 + "]" * 50_000),
    "200 with NaN": PlainTextResponse('{"choices": [{"message": {"content": NaN}}]}'),
    "429 about tokens a minute": JSONResponse({"error": "Request too large: context size, tokens per min"}, 429),
    "200 with an error": JSONResponse({"error": {"message": "upstream overloaded"}}),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_passing_faults_are_retried(model_server, fault):
    server = model_server(fault, fault, reply(call()))
    assert len((await policy(server).generate(REQUEST)).tool_calls) == 1
    assert len(server.requests) == 3


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_lasting_faults_are_a_technical_failure(model_server, fault):
    server = model_server(fault)
    with pytest.raises(PolicyUnavailable, match="failed 3 times"):
        await policy(server).generate(REQUEST)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("answer", "where"),
    [
        ({}, "choices"),
        ({"choices": []}, "length >= 1"),
        ({"choices": [None]}, r"\$.choices\[0\]"),
        ({"choices": [{"message": "hi"}]}, "message"),
        (reply("click"), r"tool_calls\[0\]"),
        (reply({"function": "click"}), r"tool_calls\[0\].function"),
        (reply(call(), usage="12"), "usage"),
        (reply(call(), usage={"prompt_tokens": "many"}), "usage.prompt_tokens"),
    ],
)
async def test_an_answer_of_another_shape_is_a_technical_failure(model_server, answer, where):
    with pytest.raises(PolicyUnavailable, match=f"gave no chat completion .*{where}"):
        await policy(model_server(answer)).generate(REQUEST)


async def test_numbers_beyond_64_bits_can_be_kept(model_server):
    """A model may write any number; the trace that tells of its mistake must be writable."""
    turn = await policy(model_server(reply(call(arguments=f'{{"value": {10**30}}}')))).generate(REQUEST)
    encode(turn.tool_calls[0].arguments)


async def test_retry_after_is_honoured(model_server):
    server = model_server(JSONResponse({}, 429, {"Retry-After": "0.3"}), reply(call()))
    clock = time.perf_counter()
    await policy(server, retry=Retry(attempts=2, first_s=0.0, cap_s=5.0)).generate(REQUEST)
    assert time.perf_counter() - clock >= 0.3


async def test_retry_after_is_capped(model_server):
    server = model_server(JSONResponse({}, 503, {"Retry-After": "86400"}), reply(call()))
    await asyncio.wait_for(policy(server).generate(REQUEST), timeout=5)


async def test_a_dropped_connection_is_retried():
    seen = []

    async def drop(reader, writer):
        seen.append(await reader.read(100))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{")
        writer.close()

    server = await asyncio.start_server(drop, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        with pytest.raises(PolicyUnavailable, match="RemoteProtocolError"):
            await policy(url).generate(REQUEST)
    assert len(seen) == 3


async def test_nobody_listening_is_a_technical_failure():
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    server.close()
    with pytest.raises(PolicyUnavailable, match="ConnectError"):
        await policy(url).generate(REQUEST)


async def test_a_server_that_never_answers_times_out(model_server):
    server = model_server(reply(call()))
    server.answers = [server.hang]
    with pytest.raises(PolicyUnavailable, match="ReadTimeout"):
        await policy(server, timeout_s=0.1).generate(REQUEST)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("status", "body", "error", "says"),
    [
        (400, "bad schema", PolicyUnavailable, "HTTP 400: bad schema"),
        (422, "no", PolicyUnavailable, "HTTP 422"),
        (401, "bad key", UserError, "API key"),
        (403, "not yours", UserError, "refuses access"),
        (404, "model not found", UserError, "knows no 'qwen'"),
    ],
)
async def test_a_refusal_is_not_retried(model_server, status, body, error, says):
    server = model_server(PlainTextResponse(body, status))
    with pytest.raises(error, match=says):
        await policy(server).generate(REQUEST)
    assert len(server.requests) == 1


HALVES = {
    "escape": (rb"oak \ud83e", "oak \ufffd"),
    "low half": (rb"\ude91oak", "\ufffdoak"),
    "halves the wrong way round": (rb"\ude91\ud83e", "\ufffd\ufffd"),
    "a whole one beside a half": (rb"\ud83e\ude91\ud83e", "\U0001fa91\ufffd"),
    "bytes that are no UTF-8": (b"oak \xf0\x9f", "oak \ufffd"),
}


@pytest.mark.parametrize(("written", "read"), HALVES.values(), ids=HALVES.keys())
async def test_half_a_character_is_replaced_and_the_episode_goes_on(model_server, written, read):
    """In the text, the reasoning and the arguments; nothing of it is asked for again, and all of it can be stored."""
    arguments = json.dumps({"value": "HERE"})
    said = reply(call(arguments=arguments), content="HERE", reasoning_content="HERE")
    server = model_server(Response(json.dumps(said).encode().replace(b"HERE", written), media_type="application/json"))
    turn = await policy(server).generate(REQUEST)
    assert (turn.content, turn.reasoning, turn.tool_calls[0].arguments) == (read, read, {"value": read})
    encode([turn.text, turn.content, turn.reasoning, turn.tool_calls[0].arguments])
    assert len(server.requests) == 1


async def test_half_a_character_inside_of_written_arguments_is_replaced(model_server):
    """Arguments are JSON inside of JSON: the escape of the half may itself be escaped."""
    turn = await policy(model_server(reply(call(arguments='{"va\\ud83d": "oak \\ud83d"}')))).generate(REQUEST)
    assert turn.tool_calls[0].arguments == {"va\ufffd": "oak \ufffd"}


OVERFLOWS = {
    "OpenAI": (400, "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000."),
    "OpenAI code": (400, '{"error": {"code": "context_length_exceeded"}}'),
    "OpenAI new": (400, "Your input exceeds the context window of this model."),
    "vLLM": (400, "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"),
    "vLLM max_tokens": (400, "'max_tokens' or 'max_completion_tokens' is too large: 64. This model's maximum context "
                        "length is 96 tokens and your request has 40 input tokens (64 > 96 - 40)."),
    "vLLM input": (400, "You passed 4033 input tokens and requested 64 output tokens. However, the model's context "
                   "length is only 4096 tokens, resulting in a maximum input length of 4032 tokens."),
    "SGLang": (400, "The input (5000 tokens) is longer than the model's context length (4096 tokens)."),
    "SGLang total": (400, "Requested token count exceeds the model's maximum context length of 4096 tokens."),
    "llama.cpp": (400, '{"error": {"code": 400, "message": "the request exceeds the available context size, try '
                  'increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 1407, "n_ctx": 256}}'),
    "llama.cpp, older": (500, '{"error": {"code": 500, "message": "Context size has been exceeded."}}'),
    "TGI": (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4090 and 64"),
    "TGI input": (422, "Input validation error: `inputs` must have less than 4096 tokens. Given: 4545"),
    "Gemini": (400, "The input token count (3475108) exceeds the maximum number of tokens allowed (1048576)."),
    "Anthropic": (400, "prompt is too long: 208310 tokens > 200000 maximum"),
    "Anthropic total": (400, "input length and `max_tokens` exceed context limit: 190000 + 64 > 200000"),
    "Mistral": (400, "Prompt contains 65673 tokens, too large for model with 32768 maximum context length"),
    "a gateway": (200, '{"error": {"code": 400, "message": "maximum context length is 4096 tokens"}}'),
    "413": (413, "Prompt too long"),
}  # fmt: skip


@pytest.mark.parametrize(("status", "message"), OVERFLOWS.values(), ids=OVERFLOWS.keys())
async def test_an_outgrown_context_is_the_policys_failure(model_server, status, message):
    server = model_server(PlainTextResponse(message, status))
    turn = await policy(server).generate(LATER)
    assert (turn.finish_reason, turn.tool_calls) == ("length", ())
    assert ["max_tokens" in sent for sent in server.requests] == [True, False]


@pytest.mark.parametrize(("status", "message"), OVERFLOWS.values(), ids=OVERFLOWS.keys())
async def test_a_first_prompt_that_does_not_fit_is_for_the_user_to_mend(model_server, status, message):
    server = model_server(PlainTextResponse(message, status))
    with pytest.raises(UserError, match=r"first prompt and 64 sampled tokens .*smaller policy\.sampling\.max_tokens"):
        await policy(server).generate(REQUEST)
    assert len(server.requests) == 1


async def test_near_the_end_of_the_window_the_window_bounds_a_reply(model_server):
    server = model_server(PlainTextResponse(OVERFLOWS["vLLM input"][1], 400), reply(call()))
    turn = await policy(server).generate(LATER)
    assert len(turn.tool_calls) == 1
    first, second = server.requests
    assert second == {key: value for key, value in first.items() if key != "max_tokens"}


async def test_a_refused_max_tokens_is_for_the_user_to_mend(model_server):
    message = "max_tokens is too large: 64. This model supports at most 32 completion tokens, whereas you provided 64."
    with pytest.raises(UserError, match=r"does not take max_tokens 64 .*policy\.sampling\.max_tokens"):
        await policy(model_server(PlainTextResponse(message, 400))).generate(REQUEST)


EMPTY = replace(REQUEST, messages=({"role": "system", "content": ""}, MESSAGES[1]))


def counting(foreign: int):
    """Answers with token counts of a template that writes `foreign` tokens into an empty system message."""

    async def answer(request):
        system = json.loads(await request.body())["messages"][0]["content"]
        return JSONResponse(reply(call(), usage={"prompt_tokens": 20 + (len(system.split()) or foreign)}))

    return answer


async def test_an_empty_system_message_is_sent_as_it_is(model_server):
    """A template may have a default for a missing one, which prompts with skills would not have."""
    server = model_server(counting(0))
    model = policy(server)
    for _ in range(2):
        assert (await model.generate(EMPTY)).tool_calls
    counted, asked = server.requests[:2], server.requests[2:]
    assert [sent["max_tokens"] for sent in counted] == [1, 1]
    assert [sent["messages"][0]["content"] for sent in counted] == ["x", ""]
    assert [sent["messages"] for sent in asked] == [list(EMPTY.messages)] * 2


async def test_a_server_that_fills_an_empty_system_message_is_refused_once_and_for_all(model_server):
    server = model_server(counting(9))
    model = policy(server)
    answers = await asyncio.gather(*(model.generate(EMPTY) for _ in range(4)), return_exceptions=True)
    for answer in answers:
        with pytest.raises(UserError, match=r"text of its own \(9 tokens or more\).*policy\.prompt to full"):
            raise answer
    assert (await model.generate(REQUEST)).tool_calls, "a system message with words stays as it is"


async def test_a_server_that_counts_no_tokens_is_believed(model_server):
    server = model_server(reply(call()))
    assert (await policy(server).generate(EMPTY)).tool_calls
    server = model_server(PlainTextResponse("one token is too few", 400), reply(call()))
    assert (await policy(server).generate(EMPTY)).tool_calls


async def test_cancelling_aborts_the_request(model_server):
    server = model_server(reply(call()))
    server.answers = [server.hang]
    task = asyncio.ensure_future(policy(server).generate(REQUEST))
    assert await asyncio.to_thread(server.asked.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(server.disconnected.wait, 5)


async def test_closing_the_session_aborts_its_request_only(model_server):
    server = model_server(reply(call()))
    server.answers = [server.hang]
    model = policy(server)
    task = asyncio.ensure_future(model.generate(REQUEST))
    assert await asyncio.to_thread(server.asked.wait, 5)
    model.close_session("another")
    await asyncio.sleep(0.05)
    assert not task.done()
    model.close_session("s")
    with pytest.raises(PolicyUnavailable, match="closed"):
        await task
    assert await asyncio.to_thread(server.disconnected.wait, 5)
    model.close_session("s")


async def test_a_proxy_does_not_come_between_loopback(model_server, monkeypatch):
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert (await policy(model_server(reply(call()))).generate(REQUEST)).tool_calls


async def test_the_key_shows_nowhere(model_server, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SOME_KEY", KEY)
    echo = PlainTextResponse(f"your key {KEY} is over its limit", 429)
    refusal = PlainTextResponse(f"Incorrect API key provided: {KEY}", 401)
    server = model_server(echo, echo, echo, refusal)
    model = policy(server, api_key_env="SOME_KEY")
    with pytest.raises(PolicyUnavailable) as unavailable:
        await model.generate(REQUEST)
    with pytest.raises(UserError, match="SOME_KEY") as refused:
        await model.generate(REQUEST)
    shown = [str(unavailable.value), str(refused.value), caplog.text, repr(model), json.dumps(model.identity())]
    shown += [repr(model.endpoint), repr(model._client.headers)]
    assert "***" in shown[0]
    assert not any(KEY in text for text in shown)


def test_settings_that_cannot_work_are_refused_at_once(monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(UserError, match="SOME_KEY is empty or not set"):
        policy("http://127.0.0.1/v1", api_key_env="SOME_KEY")
    with pytest.raises(UserError, match="http"):
        policy("127.0.0.1:8000/v1")
    with pytest.raises(UserError, match="extra_body may not set messages, n, temperature"):
        policy("http://127.0.0.1/v1", extra_body={"n": 2, "messages": [], "temperature": 0})


def test_identity_names_the_endpoint_without_its_credentials():
    model = policy("http://user:pass@127.0.0.1:1/v1", checkpoint_id="step-20")
    assert model.identity()["endpoint"] == "http://127.0.0.1:1/v1"
    assert model.identity()["checkpoint_id"] == "step-20"
    assert "pass" not in repr(model)


async def test_a_url_with_credentials_does_not_show_them_when_it_fails():
    with pytest.raises(PolicyUnavailable) as error:
        await policy("http://user:hidden@127.0.0.1:1/v1").generate(REQUEST)
    assert "hidden" not in str(error.value)


def test_one_policy_serves_several_event_loops(model_server):
    model = policy(model_server(reply(call())))
    for _ in range(2):
        assert asyncio.run(model.generate(REQUEST)).tool_calls


async def test_a_whole_episode(model_server, toy_shop, job, shop_words):
    answers = [
        reply(content="let me think", finish="stop"),
        reply(call("search", '{"query": "oak"}')),
        JSONResponse({}, 503),
        reply(call(), call(call_id="c2")),
        reply(call()),
        reply(call(arguments='{"value": "buy"}')),
    ]
    server = model_server(*answers)
    settings = EpisodeSettings(9, Sampling(0.6), "dynamic")
    episode = await run_episode(
        job, shop_words, toy_shop(), policy(server), shop_words.prompt("full"), (), settings, "g"
    )
    assert episode.success
    assert [step.action for step in episode.steps] == [None, "search[oak]", None, "click[1]", "click[buy]"]
    last = server.requests[-1]["messages"]
    assert [message["role"] for message in last[1:]] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
    ]
    assert last[5]["tool_call_id"] == "c1"
    assert isinstance(last[4]["tool_calls"][0]["function"]["arguments"], str)


async def test_an_endpoint_that_dies_fails_the_episode(model_server, toy_shop, job, shop_words):
    server = model_server(reply(call("search", '{"query": "oak"}')), JSONResponse({}, 500))
    shop = toy_shop()
    episode = await run_episode(
        job, shop_words, shop, policy(server), shop_words.prompt("full"), (), EpisodeSettings(), "g"
    )
    assert (episode.status, episode.error["stage"], len(episode.steps)) == ("failed", "policy", 1)
    assert shop.diary[-1] == "close"


async def test_an_outgrown_context_ends_the_episode_as_generation_length(model_server, toy_shop, job, shop_words):
    full = PlainTextResponse("maximum context length is 10 tokens", 400)
    server = model_server(reply(call("search", '{"query": "oak"}')), full)
    episode = await run_episode(
        job, shop_words, toy_shop(), policy(server), shop_words.prompt("full"), (), EpisodeSettings(), "g"
    )
    assert (episode.status, episode.termination, episode.reward) == ("completed", "generation_length", 0.0)
