import asyncio
import json

import pytest

from intraskill.agent.episode import EpisodeSettings, run_episode
from intraskill.agent.segments import segments
from intraskill.core.errors import PolicyUnavailable, UserError
from intraskill.core.records import EpisodeJob, Sampling
from intraskill.policies.scripted import ScriptedPolicy, call_text
from intraskill.policies.token import TokenPolicy
from intraskill.skills.bank import Chunk

SEARCH, FIRST, SECOND, BUY = (
    call_text("search", query="oak shelf"),
    call_text("click", value="1"),
    call_text("click", value="2"),
    call_text("click", value="buy"),
)
TWO = FIRST + "\n" + SECOND
CHUNK = Chunk(skill_id="brand", title="Brand", applies_when="usual brand", procedure=("search it",))


@pytest.fixture
def play(chat, toy_shop, replay_engine, job, shop_words):
    """play(replies, ...) -> (episode, shop, engine): one episode of prepared replies through the token path."""

    async def run(replies, *, max_steps=10, max_tokens=500, schema="static", fail_at=None, env_steps=30, chunks=()):
        shop, engine = toy_shop(env_steps, fail_at), replay_engine(chat, replies)
        settings = EpisodeSettings(max_steps, Sampling(1.0, max_tokens=max_tokens), schema)
        policy = TokenPolicy(chat, engine)
        episode = await run_episode(job, shop_words, shop, policy, shop_words.prompt("compact"), chunks, settings, "g")
        return episode, shop, engine

    return run


async def test_a_purchase(play):
    episode, shop, engine = await play([SEARCH, FIRST, BUY], chunks=(CHUNK,))
    assert episode.status == "completed"
    assert (episode.reward, episode.success, episode.termination) == (1.0, True, "purchase")
    assert [step.action for step in episode.steps] == ["search[oak shelf]", "click[1]", "click[buy]"]
    assert episode.skill_ids == ("brand",)
    assert shop.diary == ["reset", "search[oak shelf]", "click[1]", "click[buy]", "close"]
    assert engine.sessions == ["open g/task-000007__sample-000", "close g/task-000007__sample-000"]
    assert [message["role"] for message in episode.messages][2:] == [
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]


async def test_a_wrong_purchase_is_a_scored_zero(play):
    episode, _, _ = await play([SEARCH, SECOND, BUY])
    assert (episode.status, episode.reward, episode.success) == ("completed", 0.0, False)


@pytest.mark.parametrize(
    ("reply", "code", "role"),
    [
        ("", "tool_call_count", "user"),
        ("I will look.", "tool_call_count", "user"),
        ("<think>" + SEARCH, "tool_call_count", "user"),
        ("<tool_call>\n<function=search>", "invalid_tool_call", "user"),
        (TWO, "tool_call_count", "tool"),
        ("Now: " + SEARCH, "mixed_content", "tool"),
        (call_text("finish"), "unavailable_tool", "tool"),
        (call_text("search", q="oak"), "invalid_tool_arguments", "tool"),
    ],
)
async def test_a_protocol_error_costs_a_step_and_nothing_else(play, reply, code, role):
    episode, shop, _ = await play([reply, SEARCH, FIRST, BUY])
    first = episode.steps[0]
    assert (first.action, first.result) == (None, None)
    assert first.protocol_error.startswith(f"{code}: ")
    assert shop.diary[1] == "search[oak shelf]"
    assert len(episode.steps) == 4
    assert episode.success
    answers = [m for m in episode.messages[3:] if m["role"] != "assistant"][: 2 if reply == TWO else 1]
    assert {message["role"] for message in answers} == {role}
    assert all(message["content"] == f"{code}\nsearch" for message in answers)
    asked = [call["id"] for call in episode.messages[2].get("tool_calls", [])]
    assert [message.get("tool_call_id") for message in answers] == (asked or [None])


async def test_what_cannot_be_clicked_is_the_environments_answer(play):
    episode, _, _ = await play([call_text("click", value="nowhere"), SEARCH, FIRST, BUY])
    first = episode.steps[0]
    assert (first.action, first.protocol_error) == ("click[nowhere]", None)
    assert first.result.feedback["reason"] == "unavailable_action"
    assert "unavailable_action" in episode.messages[3]["content"]


async def test_the_environments_own_limit_ends_the_episode(play):
    episode, shop, _ = await play([FIRST] * 9, env_steps=3)
    assert (episode.status, episode.termination, len(episode.steps)) == ("completed", "action_limit", 3)
    assert not any(entry.startswith("terminate") for entry in shop.diary)


async def test_protocol_errors_use_up_the_budget(play):
    episode, shop, _ = await play(["hm"] * 9, max_steps=4)
    assert (episode.status, episode.termination, episode.reward) == ("completed", "action_limit", 0.0)
    assert len(episode.steps) == 4
    assert shop.diary == ["reset", "terminate:action_limit", "close"]


async def test_the_last_action_keeps_its_answer_when_the_budget_ends(play):
    episode, shop, _ = await play(["hm", SEARCH], max_steps=2)
    assert shop.diary == ["reset", "search[oak shelf]", "terminate:action_limit", "close"]
    last = episode.steps[-1].result
    assert (last.observation, last.done, last.termination) == ("results", True, "action_limit")
    assert episode.termination == "action_limit"


async def test_a_reply_cut_before_its_call_is_a_policy_failure(play):
    episode, shop, _ = await play([SEARCH, "<think>" + "hmm " * 300], max_tokens=150)
    assert (episode.status, episode.termination, episode.reward) == ("completed", "generation_length", 0.0)
    assert shop.diary[-2:] == ["terminate:generation_length", "close"]
    assert len(episode.steps[-1].turn.token_ids) == 150
    assert sum(segments(episode, 0)[0].loss_mask) == sum(len(step.turn.token_ids) for step in episode.steps)


async def test_a_reply_cut_after_its_call_counts(play, chat):
    exact = len(chat.encode(SEARCH))
    episode, _, engine = await play([SEARCH + "\n" * 50, FIRST, BUY], max_tokens=max(exact, len(chat.encode(FIRST))))
    assert episode.steps[0].turn.finish_reason == "length"
    assert episode.success
    assert engine.prompts[1][len(engine.prompts[0]) + exact] == chat.end_of_turn_id
    assert len(segments(episode, 0)) == 1


@pytest.mark.parametrize("where", ["reset", "search[oak shelf]", "terminate:action_limit"])
async def test_a_lost_environment_is_a_technical_failure(play, where):
    episode, shop, engine = await play([SEARCH, "hm"], max_steps=2, fail_at=where)
    assert (episode.status, episode.scorable, episode.termination) == ("failed", False, None)
    assert episode.error == {
        "stage": "environment",
        "type": "EnvironmentUnavailable",
        "message": f"gone at {where}",
    }
    assert shop.diary[-1] == "close"
    assert len(engine.sessions) == (0 if where == "reset" else 2)


async def test_an_unknown_task_is_the_users_to_mend(toy_shop, shop_words):
    shop = toy_shop()
    with pytest.raises(UserError, match="unknown task"):
        await run_episode(
            EpisodeJob("-1", 0, 0, "train"),
            shop_words,
            shop,
            ScriptedPolicy(lambda s, m: ""),
            shop_words.prompt("full"),
            (),
            EpisodeSettings(),
            "g",
        )
    assert shop.diary[-1] == "close"


class Hanging(ScriptedPolicy):
    """A policy whose reply never comes."""

    def __init__(self) -> None:
        super().__init__(lambda state, messages: "")
        self.asked, self.closed = asyncio.Event(), []

    async def generate(self, request):
        self.asked.set()
        await asyncio.Event().wait()

    def close_session(self, session):
        self.closed.append(session)


async def test_cancellation_gives_everything_back(job, toy_shop, shop_words):
    shop, policy = toy_shop(), Hanging()
    prompt = shop_words.prompt("compact")
    task = asyncio.ensure_future(run_episode(job, shop_words, shop, policy, prompt, (), EpisodeSettings(), "g"))
    await policy.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert shop.diary[-1] == "close"
    assert policy.closed == ["g/task-000007__sample-000"]


async def test_a_second_cancellation_does_not_leak_the_slot(job, toy_shop, shop_words):
    class SlowToClose(toy_shop):
        async def close(self):
            await asyncio.sleep(0.05)
            await super().close()

    shop, policy = SlowToClose(), Hanging()
    prompt = shop_words.prompt("compact")
    task = asyncio.ensure_future(run_episode(job, shop_words, shop, policy, prompt, (), EpisodeSettings(), "g"))
    await policy.asked.wait()
    task.cancel()
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.1)
    assert shop.diary[-1] == "close"


async def test_a_failing_policy_and_a_bug_are_told_apart(job, toy_shop, shop_words):
    def unavailable(state, messages):
        raise PolicyUnavailable("down")

    def buggy(state, messages):
        raise KeyError("oops")

    prompt = shop_words.prompt("compact")
    run = [job, shop_words, toy_shop(), ScriptedPolicy(unavailable), prompt, (), EpisodeSettings(), "g"]
    episode = await run_episode(*run)
    assert episode.error == {"stage": "policy", "type": "PolicyUnavailable", "message": "down"}
    run[2], run[3] = toy_shop(), ScriptedPolicy(buggy)
    with pytest.raises(KeyError):
        await run_episode(*run)
    assert run[2].diary[-1] == "close"


async def test_turns_have_their_own_stable_seeds(play):
    _, _, first = await play([SEARCH, FIRST, BUY])
    _, _, again = await play([SEARCH, FIRST, BUY])
    assert first.seeds == again.seeds
    assert len(set(first.seeds)) == 3


async def test_nothing_the_policy_reads_holds_the_goal(play):
    episode, _, engine = await play(["hm", SEARCH, FIRST, BUY])
    assert "SECRET" not in json.dumps(episode.messages)
    assert "SECRET" not in "".join(engine.chat.decode(prompt) for prompt in engine.prompts)
    assert episode.steps[-1].result.goal["asin"] == "B000SECRET"


async def test_static_prompts_grow_and_dynamic_ones_fork(play):
    static, _, engine = await play([SEARCH, "hm", FIRST, BUY])
    for earlier, later in zip(engine.prompts, engine.prompts[1:]):
        assert later[: len(earlier)] == earlier
    assert len(segments(static, 3)) == 1
    dynamic, _, _ = await play([SEARCH, "hm", FIRST, BUY], schema="dynamic")
    assert len(segments(dynamic, 3)) > 1


async def test_a_scripted_policy_sees_the_page(job, toy_shop, chat, shop_words):
    def shopper(state, messages):
        return SEARCH if state["search_available"] else call_text("click", value=state["actions"][0])

    for encoded in (None, chat):
        policy = ScriptedPolicy(shopper, encoded)
        env = policy.watch(toy_shop())
        prompt = shop_words.prompt("compact")
        episode = await run_episode(job, shop_words, env, policy, prompt, (CHUNK,), EpisodeSettings(), "g")
        assert episode.success
    (segment,) = segments(episode, 0)
    said = chat.decode([i for i, mask in zip(segment.token_ids, segment.loss_mask) if mask])
    assert said == "<|im_end|>".join([SEARCH, FIRST, BUY])
