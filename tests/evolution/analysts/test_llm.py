"""The language-model analyst against a scripted local endpoint, in good faith and in every fault."""

import asyncio
import json
import logging
from dataclasses import replace

import pytest
from starlette.responses import JSONResponse, PlainTextResponse

from intraskill.core.errors import UserError
from intraskill.core.records import Sampling, TurnRequest
from intraskill.evolution.analysts.llm import LlmAnalyst
from intraskill.evolution.analysts.merge import merge_lessons
from intraskill.evolution.cards import Lesson
from intraskill.evolution.compiler import Limits
from intraskill.evolution.firewall import release
from intraskill.evolution.proposer import Proposer, analyst_policy
from intraskill.families.analysis import Abstraction, Case, no_proposal
from intraskill.policies.openai import Endpoint, OpenAIPolicy
from intraskill.policies.retry import Retry
from intraskill.policies.token import TokenPolicy
from intraskill.settings.models import AnalystSettings
from intraskill.skills.bank import Bank
from intraskill.storage.documents import read_json
from intraskill.storage.jsonl import JsonlLog
from intraskill.storage.run_folder import RunFolder

QUICK = Retry(attempts=3, first_s=0.0, cap_s=0.05)
KEY = "sk-do-not-tell"
GOOD = {
    "outcome": "PROPOSE_ADD",
    "diagnosis": "searched without the brand",
    "decision_step": 0,
    "mechanism": "usual_brand",
    "title": "Search with the usual brand",
    "applies_when": "the brand is left open",
    "procedure": ["find the preferred brand in the profile", "put it in the query"],
    "verify": "the title shows it",
    "avoid": "searching without it",
}


def reply(name=None, arguments=None, *, content=None, calls=None, finish="tool_calls"):
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    one = {"id": "c", "type": "function", "function": {"name": name, "arguments": raw}}
    message = {"role": "assistant", "content": content, "tool_calls": calls or ([one] if name else None)}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def submit(**changes):
    return reply("submit_diagnosis", {**GOOD, **changes})


def policy(server_or_url, **settings):
    url = getattr(server_or_url, "url", server_or_url)
    return OpenAIPolicy(Endpoint(url, "m", **{"retry": QUICK, "timeout_s": 5.0, **settings}))


@pytest.fixture
async def case(world, shopper, play):
    """A failed episode that a search with the brand repairs; `moves` are the calls that buy successfully."""
    for task in shopper.tasks("usual brand"):
        row = await play(task, shopper.first_of_all(world, task))
        brand = world.catalog.tasks[int(task)].attributes[-1]
        actions = shopper.first_of_all(world, task, f"{brand} {shopper.stated(task)}")
        if not row["final"]["success"] and (await play(task, actions))["final"]["success"]:
            found = Case(row, Bank(), "ck-1", 1, 0)
            moves = []
            for action in actions:
                verb, _, value = action.rstrip("]").partition("[")
                moves.append(reply(verb, {"query" if verb == "search" else "value": value}))
            return found, moves, brand
    pytest.fail("no task of the world fits")


async def analyse(world, case, server, **settings):
    analyst = LlmAnalyst(world, policy(server), **settings)
    try:
        return await analyst.analyse(case)
    finally:
        await analyst.close()


async def test_a_proved_diagnosis_becomes_a_proposal(briefing, case, facts, model_server):
    case, moves, brand = case
    server = model_server(reply("inspect_gold"), *moves, submit())
    card = await analyse(briefing, case, server)
    assert card.outcome == "PROPOSE_ADD"
    assert card.verified
    assert card.privileged_audit.decision_step == 0
    assert card.privileged_audit.repair[-1] == "click[buy]"
    assert card.privileged_audit.notes == GOOD["diagnosis"]
    lesson, hits = release(card, facts)
    assert hits == ()
    assert lesson.abstraction.procedure == tuple(GOOD["procedure"])
    assert server.requests[0]["tool_choice"] == "auto"
    assert [t["function"]["name"] for t in server.requests[0]["tools"]] == [
        "search",
        "click",
        "inspect_gold",
        "submit_diagnosis",
    ]
    answers = [m["content"] for m in server.requests[-1]["messages"] if m["role"] == "tool"]
    assert brand in answers[0]
    assert '"r_success": 1' in answers[-1]
    assert answers[-1].endswith("A fresh trial is open:\nsearch")


async def test_the_private_goal_is_shown_on_request_only(briefing, case, model_server):
    case, moves, _ = case
    server = model_server(*moves, submit())
    await analyse(briefing, case, server)
    first = json.dumps(server.requests[0]["messages"], ensure_ascii=False)
    assert case.trace["final"]["goal"]["asin"] not in first


async def test_a_claim_without_a_purchase_is_not_enough(briefing, case, model_server):
    case, moves, _ = case
    server = model_server(submit(), *moves, submit())
    assert (await analyse(briefing, case, server)).outcome == "PROPOSE_ADD"
    told = server.requests[1]["messages"][-1]["content"]
    assert "no purchase of yours had r_success 1 yet" in told
    never = model_server(submit())
    card = await analyse(briefing, case, never)
    assert (card.outcome, card.reason.split(":")[0]) == ("NO_PROPOSAL", "garbled_replies")


async def test_a_failed_purchase_opens_a_fresh_trial_and_proves_nothing(briefing, case, model_server):
    case, moves, _ = case
    failed = [reply(*_call(step["action"])) for step in case.trace["steps"]]
    server = model_server(*failed, *moves, submit())
    card = await analyse(briefing, case, server)
    assert card.outcome == "PROPOSE_ADD"
    assert card.privileged_audit.reward_detail["r_success"] == 1
    assert len(card.privileged_audit.repair) == len(moves)


def _call(action):
    verb, _, value = action.rstrip("]").partition("[")
    return verb, {"query" if verb == "search" else "value": value}


async def test_the_last_turn_may_only_submit(briefing, case, model_server):
    case, moves, _ = case
    server = model_server(*moves, reply("inspect_gold"))
    card = await analyse(briefing, case, server, max_turns=len(moves) + 1)
    assert len(server.requests) == len(moves) + 1
    assert [t["function"]["name"] for t in server.requests[-1]["tools"]] == ["submit_diagnosis"]
    assert card.reason.split(":")[0] == "no_submission"
    good = model_server(*moves, submit())
    assert (await analyse(briefing, case, good, max_turns=len(moves) + 1)).outcome == "PROPOSE_ADD"


async def test_endless_searching_ends_at_the_limit(briefing, case, model_server):
    server = model_server(reply("search", {"query": "oak"}))
    card = await analyse(briefing, case[0], server, max_turns=7)
    assert len(server.requests) == 7
    assert card.reason.split(":")[0] == "no_submission"


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (reply(content="Let me think about it."), "there is no tool call"),
        (reply(content="x", finish="length"), "cut at its length limit"),
        (reply("search", '{"query": "oak"'), "not a JSON object"),
        (reply("search", "[1, 2]"), "not a JSON object"),
        (reply("search", {"text": "oak"}), "wrong arguments of search: missing query; unknown text"),
        (reply("search", {"query": 7}), "must be a text, not int"),
        (reply("buy_now", {}), "there is no tool 'buy_now'"),
        (
            reply(
                calls=[
                    {"id": str(i), "type": "function", "function": {"name": "inspect_gold", "arguments": "{}"}}
                    for i in range(2)
                ]
            ),
            "there are 2 tool calls",
        ),
        (reply("submit_diagnosis", {"outcome": "YES", "diagnosis": "d"}), "it must be one of"),
        (reply("submit_diagnosis", {"outcome": "NO_PROPOSAL", "diagnosis": "  "}), "diagnosis is empty"),
    ],
)
async def test_a_malformed_reply_is_repaired_twice_with_the_exact_error(briefing, case, model_server, bad, told):
    case, moves, _ = case
    server = model_server(bad, bad, *moves, submit())
    assert (await analyse(briefing, case, server)).outcome == "PROPOSE_ADD"
    assert told in server.requests[1]["messages"][-1]["content"]
    endless = model_server(bad)
    card = await analyse(briefing, case, endless)
    assert len(endless.requests) == 3
    assert card.outcome == "NO_PROPOSAL"
    assert card.reason.startswith("garbled_replies")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"procedure": []}, "procedure must be a list"),
        ({"procedure": ["step"] * 7}, "at most 6"),
        ({"procedure": ["ok", 3]}, "procedure[1] must be a text"),
        ({"title": ""}, "title is empty"),
        ({"applies_when": "x" * 301}, "301 characters"),
        ({"mechanism": None}, "mechanism must be a text"),
        ({"outcome": "PROPOSE_REWRITE", "target": "gone"}, "a rewrite names one of"),
    ],
)
async def test_a_faulty_proposal_is_sent_back(briefing, case, model_server, change, told):
    case, moves, _ = case
    server = model_server(*moves, submit(**change), submit())
    assert (await analyse(briefing, case, server)).outcome == "PROPOSE_ADD"
    assert told in server.requests[-1]["messages"][-1]["content"]


async def test_a_rewrite_names_a_shown_chunk(briefing, case, model_server, skills):
    case, moves, _ = case
    case = Case(case.trace, skills, "ck-1", 1, 0)
    server = model_server(*moves, submit(outcome="PROPOSE_REWRITE", target="recent"))
    card = await analyse(briefing, case, server)
    assert (card.outcome, card.target) == ("PROPOSE_REWRITE", "recent")
    assert "id: recent" in server.requests[0]["messages"][1]["content"]


async def test_a_leaking_proposal_is_held_back(briefing, case, facts, model_server, tmp_path):
    case, moves, brand = case
    server = model_server(*moves, submit(procedure=[f"search for {brand}"]))
    card = await analyse(briefing, case, server)
    lesson, hits = release(card, facts)
    assert lesson is None
    assert {hit.reason for hit in hits} == {"gold_fact"}


async def cards_of(analyst, evolution, case, tmp_path):
    """The card as the proposer writes it, through its error boundary."""
    proposer = Proposer(RunFolder(tmp_path), analyst, evolution, Limits(6, 1, "full"), concurrency=2)
    proposed = await proposer.candidates(0, case.bank, [case.trace])
    proposer.close()
    return JsonlLog(tmp_path / "rounds/round-000/analysis/cards.jsonl").read(), proposed


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([PlainTextResponse("down", 503)], "HTTP 503"),
        ([PlainTextResponse("slow down", 429)], "HTTP 429"),
        ([PlainTextResponse("<html>", 200)], "HTTP 200: <html>"),
        ([JSONResponse({"choices": []})], "gave no chat completion"),
        ([PlainTextResponse("no", 401)], "refuses access"),
        ([PlainTextResponse("no", 404)], "knows no 'm'"),
    ],
)
async def test_endpoint_faults_become_cards(briefing, case, evolution, model_server, tmp_path, answers, reason):
    analyst = LlmAnalyst(briefing, policy(model_server(*answers)))
    (card,), proposed = await cards_of(analyst, evolution, case[0], tmp_path)
    assert card["reason"].startswith("analyst_failed")
    assert reason in card["reason"]
    assert proposed.candidates == ()


async def test_an_endpoint_that_is_not_there(briefing, case, evolution, tmp_path):
    analyst = LlmAnalyst(briefing, policy("http://127.0.0.1:1/v1"))
    (card,), _ = await cards_of(analyst, evolution, case[0], tmp_path)
    assert "PolicyUnavailable" in card["reason"]


async def test_a_slow_endpoint_is_given_up_at_the_time_limit(briefing, case, evolution, model_server, tmp_path):
    server = model_server({})
    server.answers = [server.hang]
    endpoint = policy(server, timeout_s=0.2, retry=Retry(attempts=1))
    (card,), _ = await cards_of(LlmAnalyst(briefing, endpoint), evolution, case[0], tmp_path)
    assert "analyst_failed: PolicyUnavailable" in card["reason"]


async def test_an_endpoint_that_keeps_failing_is_not_asked_again_in_that_round(
    briefing, case, evolution, model_server, tmp_path
):
    case, _, _ = case
    server = model_server(PlainTextResponse("down", 503))
    analyst = LlmAnalyst(briefing, policy(server, retry=Retry(attempts=1)))
    proposer = Proposer(RunFolder(tmp_path), analyst, evolution, Limits(6, 1, "full"), concurrency=2)
    rows = [{**case.trace, "group_index": i} for i in range(30)]
    await proposer.candidates(0, case.bank, rows)
    cards = JsonlLog(tmp_path / "rounds/round-000/analysis/cards.jsonl").read()
    assert len(cards) == 30
    assert 8 <= len(server.requests) <= 9
    assert "HTTP 503" in cards[0]["reason"]
    assert "not asked" in cards[-1]["reason"]
    assert read_json(tmp_path / "rounds/round-000/analysis/summary.json")["failure_count"] == 30
    before = len(server.requests)
    await proposer.candidates(1, case.bank, rows[:3])
    assert len(server.requests) == before + 3
    proposer.close()


async def test_a_busy_endpoint_that_recovers(briefing, case, model_server):
    case, moves, _ = case
    server = model_server(PlainTextResponse("wait", 429, headers={"retry-after": "0"}), *moves, submit())
    assert (await analyse(briefing, case, server)).outcome == "PROPOSE_ADD"


async def test_the_key_is_sent_and_never_written(briefing, case, evolution, model_server, tmp_path, monkeypatch):
    monkeypatch.setenv("ANALYST_KEY", KEY)
    server = model_server(PlainTextResponse(f"bad key {KEY}", 401))
    settings = AnalystSettings(kind="llm", url=server.url, model="m", api_key_env="ANALYST_KEY")
    (card,), _ = await cards_of(LlmAnalyst(briefing, analyst_policy(settings)), evolution, case[0], tmp_path)
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert "ANALYST_KEY" in card["reason"]
    assert all(KEY not in file.read_text() for file in tmp_path.rglob("*.json*"))


def test_a_missing_key_is_the_users_to_mend(monkeypatch):
    monkeypatch.delenv("ANALYST_KEY", raising=False)
    settings = AnalystSettings(kind="llm", url="http://127.0.0.1:1/v1", model="m", api_key_env="ANALYST_KEY")
    with pytest.raises(UserError, match="ANALYST_KEY is empty or not set"):
        analyst_policy(settings)


async def test_the_embedded_policy_can_be_asked_too(briefing, case, chat, replay_engine):
    """A token policy writes its calls as text; a list is then one step a line."""
    case, _, _ = case

    chatter = replay_engine(chat, ["no idea"] * 3)
    card = await LlmAnalyst(briefing, TokenPolicy(chat, chatter)).analyse(case)
    assert card.reason.startswith("garbled_replies")
    texts = {**GOOD, "procedure": "\n".join(GOOD["procedure"])}
    moves = [said(*_named(action)[:1], **_named(action)[1]) for action in _winning(briefing, case)]
    engine = replay_engine(chat, [said("inspect_gold"), *moves, said("submit_diagnosis", **texts)])
    card = await LlmAnalyst(briefing, TokenPolicy(chat, engine)).analyse(case)
    assert card.outcome == "PROPOSE_ADD"
    assert card.deployable_abstraction.procedure == tuple(GOOD["procedure"])


def endpoint_of(embedded):
    """A chat completions endpoint over a policy: what the scripted server answers with."""

    async def answer(request):
        body = await request.json()
        sampling = Sampling(temperature=body["temperature"], max_tokens=body["max_tokens"])
        asked = TurnRequest(tuple(body["messages"]), tuple(body["tools"]), sampling, body["seed"], "s", "g")
        turn = await embedded.generate(asked)
        calls = [
            {"id": f"c{i}", "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for i, c in enumerate(turn.tool_calls)
        ]
        message = {"role": "assistant", "content": turn.content or turn.text, "tool_calls": calls or None}
        return JSONResponse({"choices": [{"index": 0, "message": message, "finish_reason": turn.finish_reason}]})

    return answer


async def test_the_embedded_policy_can_be_asked_behind_an_endpoint(briefing, case, chat, replay_engine, model_server):
    case, _, _ = case
    texts = {**GOOD, "procedure": "\n".join(GOOD["procedure"])}
    moves = [said(_named(action)[0], **_named(action)[1]) for action in _winning(briefing, case)]
    engine = replay_engine(chat, [said("inspect_gold"), *moves, said("submit_diagnosis", **texts)])
    server = model_server(endpoint_of(TokenPolicy(chat, engine)))
    card = await analyse(briefing, case, server)
    assert card.outcome == "PROPOSE_ADD"
    assert card.deployable_abstraction.procedure == tuple(GOOD["procedure"])


async def test_the_tiny_model_behind_an_endpoint_is_no_analyst_and_does_no_harm(
    briefing, case, evolution, model_server, tmp_path
):
    """Its context does not even hold the account of the failure: three empty replies, then a card that says so."""
    policies = pytest.importorskip("intraskill.backends.embedded.frozen_policy")
    embedded = policies.load_policy("builtin:tiny", "float32", 1)
    server = model_server(endpoint_of(embedded))
    (card,), proposed = await cards_of(LlmAnalyst(briefing, policy(server)), evolution, case[0], tmp_path)
    assert card["outcome"] == "NO_PROPOSAL"
    assert card["reason"].startswith("garbled_replies")
    assert 3 <= len(server.requests) <= 20
    assert proposed.candidates == ()


def said(name, **arguments):
    lines = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<think>\nhm\n</think>\n<tool_call>\n<function={name}>\n{lines}</function>\n</tool_call>"


def _named(action):
    verb, _, value = action.rstrip("]").partition("[")
    return verb, {"query" if verb == "search" else "value": value}


def _winning(briefing, case):
    from intraskill.families.shop.analysts.rules import RulesAnalyst

    async def repaired():
        audit = (await RulesAnalyst(briefing._world).analyse(case)).privileged_audit
        return [*(a for a in case.actions[: audit.decision_step] if a), *audit.repair]

    import threading

    result = []
    thread = threading.Thread(target=lambda: result.extend(asyncio.run(repaired())))
    thread.start()
    thread.join()
    return result


def lesson(number, operation="ADD", target=None):
    text = Abstraction("brand", "Use the brand", "brand open", ("search with it",))
    return Lesson(f"card-{number}", "failure", operation, target, text)


def group(*numbers, **changes):
    texts = {key: GOOD[key] for key in ("mechanism", "title", "applies_when", "procedure")}
    return {"lessons": list(numbers), **texts, **changes}


async def test_lessons_are_merged_by_the_model(model_server):
    server = model_server(reply("submit_groups", {"groups": [group(2), group(0, 1)]}))
    groups = await merge_lessons(policy(server), "merge them", [lesson(i) for i in range(3)], Bank(), "merge")
    assert [cluster.cards for cluster, _ in groups] == [("card-0", "card-1"), ("card-2",)]
    assert groups[0][1].procedure == tuple(GOOD["procedure"])


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ("nonsense", "must be a list of objects"),
        ([group()], "must be a list of lesson numbers"),
        ([group(9)], "there is no lesson 9"),
        ([group(0), group(0)], "is in another group already"),
        ([group(0, 1)], "mixes operations or targets"),
        ([group(0, procedure=[])], "procedure must be a list"),
        ([group(0, procedure="[" * 100_000)], "procedure[0] has 100000 characters"),
    ],
)
async def test_a_faulty_merge_is_sent_back_and_then_done_by_rule(model_server, caplog, groups, told):
    lessons = [lesson(0), lesson(1, "REWRITE", "colour")]
    raw = groups if isinstance(groups, list) else json.dumps(groups)
    server = model_server(reply("submit_groups", {"groups": raw}))
    with caplog.at_level(logging.WARNING):
        assert await merge_lessons(policy(server), "merge them", lessons, Bank(), "merge") is None
    assert told in server.requests[1]["messages"][-1]["content"]
    assert "clustered by rule" in caplog.text


async def test_a_merge_that_breaks_is_done_by_rule(model_server, caplog):
    """Brackets without end bring the JSON reader down, not the run."""
    server = model_server(reply("submit_groups", {"groups": "[" * 100_000}))
    with caplog.at_level(logging.WARNING):
        assert await merge_lessons(policy(server), "merge them", [lesson(0)], Bank(), "merge") is None
    assert "clustered by rule" in caplog.text


async def test_a_merge_under_way_can_be_given_up(briefing, case, evolution, model_server, tmp_path):
    hanging = model_server({})
    hanging.answers = [hanging.hang]
    case, moves, _ = case

    async def merge(lessons, bank):
        client = policy(hanging, timeout_s=60)
        try:
            return await merge_lessons(client, "merge them", lessons, bank, "m")
        finally:
            await client.close()

    analyst = LlmAnalyst(briefing, policy(model_server(*moves, submit())))
    proposer = Proposer(RunFolder(tmp_path), analyst, evolution, Limits(6, 1, "full"), 1, merge)
    task = asyncio.ensure_future(proposer.candidates(0, case.bank, [case.trace]))
    await asyncio.to_thread(hanging.asked.wait, 20)
    await asyncio.wait_for(asyncio.to_thread(proposer.close), 20)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not (tmp_path / "rounds/round-000/analysis/candidates.json").exists()


class Halved:
    """An analyst whose private notes no file can hold."""

    name = "rules"

    async def analyse(self, case):
        card = no_proposal(case, self.name, "said")
        return replace(card, privileged_audit=replace(card.privileged_audit, notes="half a character: \ud800"))

    async def close(self):
        pass


async def test_a_card_that_no_file_can_hold_is_a_failed_analysis(case, evolution, tmp_path):
    (card,), _ = await cards_of(Halved(), evolution, case[0], tmp_path)
    assert card["reason"].startswith("analyst_failed: TypeError")


async def test_candidates_compiled_by_a_model_are_read_back_after_a_kill(
    briefing, case, evolution, model_server, tmp_path
):
    """The model is asked once: a second compilation from the same cards takes what is on disk."""
    case, moves, _ = case
    merged = model_server(reply("submit_groups", {"groups": [group(0)]}))

    async def merge(lessons, bank):
        client = policy(merged)
        try:
            return await merge_lessons(client, "merge them", lessons, bank, "m")
        finally:
            await client.close()

    def proposer(server):
        analyst = LlmAnalyst(briefing, policy(server))
        return Proposer(RunFolder(tmp_path), analyst, evolution, Limits(6, 1, "full"), 2, merge)

    first = proposer(model_server(*moves, submit()))
    before = await first.candidates(0, case.bank, [case.trace])
    first.close()
    assert len(before.candidates) == 1
    silent = model_server(PlainTextResponse("gone", 503))
    again = proposer(silent)
    after = await again.candidates(0, case.bank, [case.trace])
    again.close()
    assert after.candidates == before.candidates
    assert silent.requests == []
    assert len(merged.requests) == 1
    assert read_json(tmp_path / "rounds/round-000/analysis/summary.json")["verified_rate"] == 1.0


async def test_several_cases_are_analysed_at_once_and_written_in_order(
    briefing, case, evolution, model_server, tmp_path
):
    case, _, _ = case
    waiting = 0
    most = 0

    async def slow(request):
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        await asyncio.sleep(0.1)
        waiting -= 1
        return JSONResponse(reply("submit_diagnosis", {"outcome": "NO_PROPOSAL", "diagnosis": "d"}))

    analyst = LlmAnalyst(briefing, policy(model_server(slow)))
    proposer = Proposer(RunFolder(tmp_path), analyst, evolution, Limits(6, 1, "full"), concurrency=3)
    rows = [{**case.trace, "group_index": i} for i in range(6)]
    await proposer.candidates(0, case.bank, rows)
    proposer.close()
    cards = JsonlLog(tmp_path / "rounds/round-000/analysis/cards.jsonl").read()
    assert [card["group_index"] for card in cards] == list(range(6))
    assert most == 3


async def test_an_analysis_under_way_can_be_given_up(briefing, case, evolution, model_server, tmp_path):
    server = model_server({})
    server.answers = [server.hang]
    proposer = Proposer(RunFolder(tmp_path), LlmAnalyst(briefing, policy(server)), evolution, Limits(6, 1, "full"))
    proposer.observe(0, case[0].bank, [case[0].trace])
    await asyncio.to_thread(server.asked.wait, 5)
    await asyncio.to_thread(proposer.close)
    assert await asyncio.to_thread(server.disconnected.wait, 5)
