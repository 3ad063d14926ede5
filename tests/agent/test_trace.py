import dataclasses
import json

import orjson
import pytest

from intraskill.agent.episode import EpisodeSettings, run_episode
from intraskill.agent.segments import segments
from intraskill.agent.trace import episode_from_trace, episode_trace, segments_from_record, training_record
from intraskill.core.errors import StateCorrupted
from intraskill.core.records import Sampling
from intraskill.policies.scripted import call_text
from intraskill.policies.token import TokenPolicy
from intraskill.skills.bank import Chunk

CHUNK = Chunk(skill_id="brand", version=2, title="Brand", applies_when="usual brand", procedure=("search it",))
SEARCH, FIRST, BUY = call_text("search", query="oak"), call_text("click", value="1"), call_text("click", value="buy")


@pytest.fixture
def play(chat, toy_shop, replay_engine, job, shop_words):
    async def run(replies, schema="static", fail_at=None, max_tokens=500):
        settings = EpisodeSettings(6, Sampling(1.0, max_tokens=max_tokens), schema)
        policy = TokenPolicy(chat, replay_engine(chat, replies))
        shop = toy_shop(fail_at=fail_at)
        return await run_episode(job, shop_words, shop, policy, shop_words.prompt("full"), (CHUNK,), settings, "g")

    return run


def stored(trace):
    """As it comes back from disk."""
    return orjson.loads(orjson.dumps(trace))


async def test_a_trace_tells_the_whole_episode(play, job):
    episode = await play(["<think>first</think>" + SEARCH, "hm", FIRST, BUY])
    trace = stored(episode_trace(episode, {"policy": {"model": "m"}, "max_steps": 6}, (CHUNK,)))
    assert trace["schema_version"] == "shopsimrl-episode-v4"
    assert trace["episode_id"] == "task-000007__sample-000"
    assert trace["job"] == dataclasses.asdict(job) | {"task_id": 7}
    assert (trace["status"], trace["error"], trace["provenance"]["model"]["model"]) == ("completed", None, "m")
    assert trace["provenance"]["runtime"]["max_steps"] == 6
    assert trace["reset"]["task_instruction"] == "Buy an oak shelf."
    (skill,) = trace["selected_skills"]
    assert (skill["skill_id"], skill["version"], skill["content"][:9]) == ("brand", "2", "### Brand")
    assert len(skill["content_sha256"]) == 64
    assert trace["conversation"] == [dict(message) for message in episode.messages]
    first, error, _, last = trace["steps"]
    assert first["observation"] == "search"
    assert (first["action"], first["model"]["reasoning"]) == ("search[oak]", "first")
    assert first["environment"]["observation"] == "results"
    assert first["environment"]["action_feedback"]["valid"] is True
    assert [step["step_index"] for step in trace["steps"]] == [1, 2, 3, 4]
    assert error["observation"] == "results"
    assert (error["action"], error["environment"], error["protocol_error"]["code"]) == (None, None, "tool_call_count")
    assert error["protocol_feedback"]["available_tools"] == ["search", "click"]
    assert "protocol_error" not in first
    assert last["environment"]["done"] is True
    final = trace["final"]
    assert (final["done"], final["reward"], final["success"]) == (True, 1.0, True)
    assert (final["termination_reason"], final["purchase"]) == ("purchase", {"asin": "1"})
    assert trace["ended_at"] >= trace["started_at"] > "2"
    assert trace["duration_ms"] > 0


@pytest.mark.parametrize("replies", [[SEARCH, FIRST, BUY], [SEARCH, "hm", "hm", "hm", "hm", "hm"]])
async def test_the_goal_stands_in_final_and_nowhere_else(play, replies):
    trace = episode_trace(await play(replies), {})
    assert trace["final"]["goal"]["asin"] == "B000SECRET"
    trace["final"].pop("goal")
    assert "SECRET" not in json.dumps(trace)


async def test_private_fields_of_a_careless_environment_are_dropped(play):
    episode = await play([SEARCH, FIRST, BUY])
    leaky = dataclasses.replace(episode.reset, state=episode.reset.state | {"goal": "B000SECRET", "lease_id": "L1"})
    trace = episode_trace(dataclasses.replace(episode, reset=leaky), {})
    trace["final"].pop("goal")
    assert "SECRET" not in json.dumps(trace)
    assert "L1" not in json.dumps(trace)


async def test_a_technical_failure_has_no_reward(play):
    trace = episode_trace(await play([SEARCH, FIRST, BUY], fail_at="click[1]"), {})
    assert (trace["status"], trace["final"], len(trace["steps"])) == ("failed", None, 1)
    assert trace["error"]["stage"] == "environment"
    unreached = episode_trace(await play([], fail_at="reset"), {})
    assert (unreached["reset"], unreached["steps"]) == (None, [])


async def test_policy_failures_are_marked_on_their_step(play):
    trace = episode_trace(await play([SEARCH, "<think>" + "hm " * 400], max_tokens=300), {})
    first, cut = trace["steps"]
    assert "policy_failure" not in first
    assert (cut["policy_failure"]["code"], cut["environment"]) == ("generation_length", None)
    assert "protocol_error" not in cut
    assert trace["final"]["termination_reason"] == "generation_length"


async def test_every_step_tells_the_tools_it_was_offered(play):
    trace = episode_trace(await play([SEARCH, "hm", FIRST, BUY], "dynamic"), {})
    offered = [[tool["function"]["name"] for tool in step.get("tools", ())] for step in trace["steps"]]
    assert offered == [["search"], ["click"], ["click"], ["click"]]
    enums = [step["tools"][0]["function"]["parameters"]["properties"]["value"]["enum"] for step in trace["steps"][1:]]
    assert enums == [["1", "2"], ["1", "2"], ["buy"]]
    static = episode_trace(await play([SEARCH, "hm", FIRST, BUY]), {})
    assert [len(step["tools"]) for step in static["steps"]] == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("replies", "fail_at"),
    [([SEARCH, "hm", FIRST, BUY], None), (["hm"] * 6, None), ([SEARCH, FIRST, BUY], "click[1]"), ([], "reset")],
)
@pytest.mark.parametrize("schema", ["static", "dynamic"])
async def test_an_episode_comes_back_from_its_trace(play, replies, fail_at, schema):
    episode = await play(replies, schema, fail_at=fail_at)
    trace = episode_trace(episode, {})
    again = episode_from_trace(stored(trace))
    bare = [
        dataclasses.replace(step, turn=dataclasses.replace(step.turn, prompt_ids=(), token_ids=(), log_probs=()))
        for step in episode.steps
    ]
    assert again == dataclasses.replace(episode, steps=tuple(bare))
    assert stored(episode_trace(again, {})) == stored(trace)


async def test_training_extras_come_back_exactly(play):
    episode = await play([SEARCH, "hm", FIRST, BUY], "dynamic")
    record = stored(training_record(episode))
    assert record["schema"] == "intraskill-tokens-v1"
    assert record["weight_versions"] == ["step-3"] * 4
    assert segments_from_record(record, 4) == segments(episode, 4)
    assert "token_ids" not in json.dumps(episode_trace(episode, {}))


async def test_another_schema_is_refused_by_name(play):
    trace = episode_trace(await play([SEARCH, FIRST, BUY]), {})
    with pytest.raises(StateCorrupted, match="episode-v9"):
        episode_from_trace(trace | {"schema_version": "shopsimrl-episode-v9"})
