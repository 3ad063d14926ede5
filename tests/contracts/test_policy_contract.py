"""What every `Policy` promises, whatever answers behind it."""

import dataclasses
import json

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from intraskill.agent.call_formats import QWEN3_CODER
from intraskill.agent.parsing import parse_reply
from intraskill.core.errors import TechnicalFailure
from intraskill.core.protocol import Policy
from intraskill.core.records import Sampling, Turn, TurnRequest
from intraskill.families.shop.tools import build_tools
from intraskill.policies.openai import Endpoint, OpenAIPolicy
from intraskill.policies.scripted import ScriptedPolicy, call_text
from intraskill.policies.token import TokenPolicy

GOOD, NONE = call_text("search", query="oak 橡木"), "I would rather talk."
BROKEN = "<tool_call>\n<function=search>"
OPENING = ({"role": "system", "content": "s"}, {"role": "user", "content": "Buy oak."})


def token_policy(replies, chat, replay_engine, monkeypatch) -> Policy:
    return TokenPolicy(chat, replay_engine(chat, replies))


def scripted_policy(replies, chat, replay_engine, monkeypatch) -> Policy:
    return ScriptedPolicy(lambda state, messages: replies.pop(0))


def encoded_scripted_policy(replies, chat, replay_engine, monkeypatch) -> Policy:
    return ScriptedPolicy(lambda state, messages: replies.pop(0), chat)


def openai_policy(replies, chat, replay_engine, monkeypatch) -> Policy:
    """An endpoint that takes replies apart as inference servers do; reached without a socket."""

    async def answer(request: Request) -> JSONResponse:
        parsed = parse_reply(replies.pop(0), QWEN3_CODER)
        calls = [
            {"id": f"c{i}", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
            for i, call in enumerate(parsed.tool_calls)
        ]
        if parsed.error is not None:
            calls = [{"id": "c0", "function": {"name": "search", "arguments": '{"query'}}]
        message = {"role": "assistant", "content": parsed.content, "tool_calls": calls}
        return JSONResponse({"choices": [{"message": message, "finish_reason": "stop"}]})

    app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    policy = OpenAIPolicy(Endpoint("http://127.0.0.1/v1", "m"))
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app))
    monkeypatch.setattr(policy, "_connection", lambda: client)
    return policy


MAKERS = [token_policy, scripted_policy, encoded_scripted_policy, openai_policy]


@pytest.fixture(params=MAKERS, ids=[maker.__name__ for maker in MAKERS])
def make(request, chat, replay_engine, monkeypatch):
    """make(replies) -> a policy that will say them in this order."""
    return lambda *replies: request.param(list(replies), chat, replay_engine, monkeypatch)


def ask(messages=OPENING, previous=None) -> TurnRequest:
    sampling = Sampling(1.0, max_tokens=200)
    return TurnRequest(tuple(messages), build_tools({}, "static"), sampling, 3, "s", "g", previous)


def check(turn: Turn) -> None:
    assert len(turn.token_ids) == len(turn.log_probs)
    assert bool(turn.prompt_ids) == bool(turn.token_ids)
    assert all(log_prob <= 0 for log_prob in turn.log_probs)
    assert turn.finish_reason in ("stop", "length", "abort")
    assert turn.text


async def test_it_is_a_policy(make):
    assert isinstance(make(), Policy)


async def test_a_call_is_decoded(make):
    turn = await make(GOOD).generate(ask())
    check(turn)
    (call,) = turn.tool_calls
    assert (call.name, call.arguments) == ("search", {"query": "oak 橡木"})


async def test_a_reply_without_a_call_is_data(make):
    turn = await make(NONE).generate(ask())
    check(turn)
    assert (turn.tool_calls, turn.content, turn.parse_error) == ((), NONE, None)


async def test_a_broken_call_is_data(make):
    turn = await make(BROKEN).generate(ask())
    check(turn)
    assert turn.tool_calls == ()
    assert turn.parse_error


async def test_both_of_two_calls_are_there(make):
    assert len((await make(GOOD + GOOD).generate(ask())).tool_calls) == 2


async def test_a_second_turn_extends_the_first(make):
    policy = make(GOOD, NONE)
    policy.open_session("s")
    first = await policy.generate(ask())
    new = ({"role": "assistant", "content": ""}, {"role": "tool", "tool_call_id": "c0", "content": "page"})
    second = await policy.generate(ask((*OPENING, *new), first))
    policy.close_session("s")
    check(second)
    seen = first.prompt_ids + first.token_ids
    assert second.prompt_ids[: len(seen)] == seen
    assert (len(second.prompt_ids) > len(seen)) == bool(seen)


async def test_sessions_may_be_closed_twice_or_unopened(make):
    policy = make()
    policy.open_session("s")
    for session in ("s", "s", "never opened"):
        policy.close_session(session)


async def test_scores_are_log_probs_or_a_technical_failure(make):
    try:
        scores = await make().score([1, 2, 3, 4])
    except TechnicalFailure:
        return
    assert len(scores) == 3
    assert all(score <= 0 for score in scores)


async def test_identity_is_stable_plain_data(make):
    one, two = make(), make(GOOD)
    await two.generate(ask())
    assert json.dumps(one.identity(), sort_keys=True) == json.dumps(two.identity(), sort_keys=True)
    assert one.identity()["model"]


async def test_turns_are_immutable(make):
    turn = await make(GOOD).generate(ask())
    with pytest.raises(dataclasses.FrozenInstanceError):
        turn.content = "other"
