"""The SGLang client against a server that misbehaves in every way a long job will see."""

import asyncio
import json

import pytest

from intraskill.core.errors import PolicyUnavailable
from intraskill.core.records import Sampling
from intraskill.policies.retry import Retry
from intraskill.policies.sglang import SGLangEngine, SGLangServer, read_generation

FAST = Retry(attempts=4, first_s=0.01, cap_s=0.05)
SAMPLING = Sampling(0.6, 1.0, -1, 16)


@pytest.fixture
def connect():
    engines: list[SGLangEngine] = []

    def make(server, **changes) -> SGLangEngine:
        options = {"context_length": 64, "retry": FAST, "timeout_s": 10.0, **changes}
        engines.append(SGLangEngine(SGLangServer(server.url, "model", **options)))
        return engines[-1]

    return make


def ask(engine, prompt=(1, 2, 3), session="s", group="g", sampling=SAMPLING):
    return engine.generate(prompt, sampling=sampling, seed=1, session=session, group=group)


async def until(condition, seconds=5.0):
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "did not happen in time"
        await asyncio.sleep(0.01)


async def test_token_ids_go_in_and_come_out_with_their_log_probs(fake_sglang, connect):
    server = fake_sglang()
    engine = connect(server, stop_ids=(2, 9))
    reply = await ask(engine)
    assert (reply.token_ids, reply.log_probs) == ((5, 6, 2), (-0.5, -0.5, -0.5))
    assert (reply.finish_reason, reply.weight_version, reply.cached_tokens) == ("stop", "3", 4)
    (body,) = server.requests
    assert body["input_ids"] == [1, 2, 3]
    assert body["return_logprob"] is True
    params = body["sampling_params"]
    assert (params["temperature"], params["top_p"], params["top_k"]) == (0.6, 1.0, -1)
    assert params["stop_token_ids"] == [2, 9]
    assert "sampling_seed" not in params
    await engine.close()


async def test_a_turn_never_reaches_beyond_the_context_window(fake_sglang, connect):
    server = fake_sglang()
    engine = connect(server, context_length=5)
    reply = await ask(engine)
    assert server.requests[0]["sampling_params"]["max_new_tokens"] == 2
    assert reply.finish_reason == "length"
    full = await ask(engine, prompt=(1, 2, 3, 4, 5))
    assert (full.token_ids, full.finish_reason) == ((), "length")
    assert len(server.requests) == 1
    await engine.close()


async def test_an_over_long_prompt_is_a_reply_cut_at_length_and_is_not_asked_again(fake_sglang, connect):
    server = fake_sglang()
    message = "Requested token count exceeds the model's maximum context length of 40 tokens."
    server.faults = [(400, {"error": {"message": message}})]
    engine = connect(server)
    reply = await ask(engine)
    assert (reply.token_ids, reply.finish_reason) == ((), "length")
    assert len(server.requests) == 1
    await engine.close()


async def test_halves_of_characters_in_an_answer_change_nothing(fake_sglang, connect):
    """The text of an answer is not read; its ids are."""
    server = fake_sglang()
    meta = {"finish_reason": {"type": "stop"}, "output_token_logprobs": [[-0.5, 5, "\ud83e"]], "weight_version": "3"}
    server.faults = [(200, json.dumps({"text": "\ud83e", "meta_info": meta}).encode())]
    engine = connect(server)
    assert (await ask(engine)).token_ids == (5,)
    await engine.close()


async def test_what_is_too_long_to_be_scored_is_a_technical_failure(fake_sglang, connect):
    server = fake_sglang()
    server.faults = [(400, {"error": {"message": "The input (3 tokens) is longer than the model's context length"}})]
    engine = connect(server)
    with pytest.raises(PolicyUnavailable, match="3 tokens cannot be scored"):
        await engine.score((4, 5, 6))
    await engine.close()


async def test_another_refusal_is_a_technical_failure_at_once(fake_sglang, connect):
    server = fake_sglang()
    server.faults = [(400, {"error": {"message": "temperature must be a number"}})]
    engine = connect(server)
    with pytest.raises(PolicyUnavailable, match="temperature"):
        await ask(engine)
    assert len(server.requests) == 1
    await engine.close()


@pytest.mark.parametrize(
    "fault", [(503, {"error": {"code": "no_available_workers", "message": "no worker"}}), 500, 502, 429, "drop"]
)
async def test_what_passes_is_waited_for(fake_sglang, connect, fault):
    server = fake_sglang()
    server.faults = [fault, fault]
    engine = connect(server)
    assert (await ask(engine)).token_ids == (5, 6, 2)
    assert len({body["rid"] for body in server.requests}) == 3, "a repeated request needs an id of its own"
    await engine.close()
    assert set(server.aborted) >= {server.requests[0]["rid"]}, "the lost attempt may still be running"


async def test_a_server_that_stays_broken_is_a_technical_failure(fake_sglang, connect):
    server = fake_sglang()
    server.faults = [500] * 10
    engine = connect(server)
    with pytest.raises(PolicyUnavailable, match="failed 4 times"):
        await ask(engine)
    await engine.close()


async def test_an_engine_may_restart_between_two_turns(fake_sglang, connect):
    server = fake_sglang()
    engine = connect(server, retry=Retry(attempts=40, first_s=0.05, cap_s=0.2))
    await ask(engine)
    await asyncio.to_thread(server.stop)
    second = asyncio.ensure_future(ask(engine))
    await asyncio.sleep(0.3)
    await asyncio.to_thread(server.start)
    assert (await second).token_ids == (5, 6, 2)
    await engine.close()


async def test_a_cancelled_request_is_aborted_by_its_id_on_every_server(fake_sglang, connect):
    server, other = fake_sglang(), fake_sglang()
    server.peers, server.faults = [other.url], ["hang"]
    engine = connect(server)
    task = asyncio.ensure_future(ask(engine))
    await until(lambda: server.requests)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: server.aborted and other.aborted)
    assert server.aborted == other.aborted == [server.requests[0]["rid"]]
    await engine.close()


async def test_closing_a_session_aborts_its_request(fake_sglang, connect):
    server = fake_sglang()
    server.is_router, server.faults = False, ["hang"]
    engine = connect(server)
    task = asyncio.ensure_future(ask(engine, session="episode"))
    await until(lambda: server.requests)
    engine.close_session("other")
    engine.close_session("episode")
    assert (await task).finish_reason == "abort"
    await until(lambda: server.aborted)
    await engine.close()


async def test_siblings_carry_one_routing_key(fake_sglang, connect):
    server = fake_sglang()
    for routing, keys in (("group", ["g", "g"]), ("episode", ["s1", "s2"]), ("none", [None, None])):
        engine = connect(server, routing=routing)
        server.keys.clear()
        await ask(engine, session="s1")
        await ask(engine, session="s2")
        assert server.keys == keys
        await engine.close()


async def test_a_key_whose_engine_was_lost_is_not_used_again_before_the_next_stretch(fake_sglang, connect):
    server = fake_sglang()
    server.faults = [500]
    engine = connect(server)
    await ask(engine, session="s1")
    await ask(engine, session="s2")
    await ask(engine, session="s3", group="other")
    assert server.keys == ["g", None, None, "other"]
    engine.pin()
    await ask(engine)
    assert server.keys[-1] == "g"
    await engine.close()


async def test_one_stretch_of_work_accepts_one_weight_version(fake_sglang, connect):
    server = fake_sglang()
    engine = connect(server)
    await ask(engine)
    server.version = "4"
    with pytest.raises(PolicyUnavailable, match="weights '4' while '3'"):
        await ask(engine)
    engine.pin()
    assert (await ask(engine)).weight_version == engine.version == "4"
    await engine.close()


async def test_no_more_requests_run_at_once_than_allowed(fake_sglang, connect):
    server = fake_sglang()
    server.faults = ["hang", "hang"]
    engine = connect(server, concurrency=2)
    tasks = [asyncio.ensure_future(ask(engine, session=str(n))) for n in range(5)]
    await until(lambda: len(server.requests) == 2)
    await asyncio.sleep(0.2)
    assert len(server.requests) == 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await engine.close()


async def test_loopback_ignores_proxies(fake_sglang, connect, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    engine = connect(fake_sglang())
    assert (await ask(engine)).token_ids
    await engine.close()


async def test_scoring_returns_one_log_prob_per_token_after_the_first(fake_sglang, connect):
    server = fake_sglang()
    engine = connect(server)
    assert await engine.score((4, 5, 6)) == [-2.0, -3.0]
    assert server.requests[0]["sampling_params"]["max_new_tokens"] == 0
    await engine.close()


def test_an_answer_without_log_probs_is_refused():
    with pytest.raises(PolicyUnavailable, match="log-probs"):
        read_generation({"text": "hello", "meta_info": {}})


def test_the_prefix_cache_is_counted(fake_sglang, connect):
    engine = connect(fake_sglang())

    async def two_turns():
        await ask(engine)
        await ask(engine)
        await engine.close()

    asyncio.run(two_turns())
    assert (engine.prompt_tokens, engine.cached_tokens) == (6, 8)
