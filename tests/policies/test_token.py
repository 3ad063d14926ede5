import dataclasses

import pytest

from intraskill.agent.call_formats import HERMES
from intraskill.agent.episode import EpisodeSettings, run_episode
from intraskill.agent.segments import segments
from intraskill.core.errors import NotFinite, PolicyUnavailable
from intraskill.core.records import Sampling, TurnRequest
from intraskill.families.shop.tools import build_tools
from intraskill.policies.chat import ChatTemplate
from intraskill.policies.scripted import call_text
from intraskill.policies.token import Generation, TokenPolicy

TOOLS = build_tools({}, "static")
OPENING = ({"role": "system", "content": ""}, {"role": "user", "content": "Buy oak."})
SEARCH, CLICK = call_text("search", query="oak"), call_text("click", value="1")


def request(messages=OPENING, previous=None, prefix_stable=True) -> TurnRequest:
    return TurnRequest(tuple(messages), TOOLS, Sampling(1.0, max_tokens=400), 5, "s", "g", previous, prefix_stable)


def page(text="results"):
    return {"role": "tool", "tool_call_id": "c", "content": text}


async def test_a_turn_keeps_ids_and_log_probs_as_sampled(chat, replay_engine):
    turn = await TokenPolicy(chat, replay_engine(chat, ["<think>oak?</think>" + SEARCH])).generate(request())
    assert turn.prompt_ids == chat.initial_ids(OPENING, TOOLS)
    assert turn.token_ids[-1] == chat.end_of_turn_id
    assert turn.log_probs[0] == -0.25
    assert (turn.reasoning, turn.content, turn.parse_error) == ("oak?", "", None)
    assert (turn.tool_calls[0].name, turn.tool_calls[0].arguments) == ("search", {"query": "oak"})
    assert turn.weight_version == "step-3"
    assert turn.usage["prompt_tokens"] == len(turn.prompt_ids)
    assert turn.usage["completion_tokens"] == len(turn.token_ids)


async def test_calls_are_read_in_the_models_own_format(make_tokenizer, hermes_template, replay_engine):
    """A call of the other format is the policy's mistake, and numbers keep their type."""
    chat = ChatTemplate(make_tokenizer(hermes_template))
    replies = [HERMES.write("search", {"query": "oak", "page": 2}), SEARCH]
    policy = TokenPolicy(chat, replay_engine(chat, replies))
    (call,) = (await policy.generate(request())).tool_calls
    assert (call.name, call.arguments) == ("search", {"query": "oak", "page": 2})
    assert "JSON object" in (await policy.generate(request())).parse_error


async def test_a_whole_episode_in_hermes_calls(
    make_tokenizer, hermes_template, replay_engine, toy_shop, job, shop_words
):
    chat = ChatTemplate(make_tokenizer(hermes_template))
    calls = [("search", {"query": "oak"}), ("click", {"value": "1"}), ("click", {"value": "buy"})]
    policy = TokenPolicy(chat, replay_engine(chat, [HERMES.write(*call) for call in calls]))
    settings = EpisodeSettings(9, Sampling(1.0, max_tokens=400))
    episode = await run_episode(job, shop_words, toy_shop(), policy, shop_words.prompt("full"), (), settings, "g")
    assert [step.action for step in episode.steps] == ["search[oak]", "click[1]", "click[buy]"]
    assert episode.success
    (segment,) = segments(episode, 0)
    whole = chat.initial_ids(episode.messages, TOOLS)[: len(segment.token_ids)]
    assert segment.token_ids == whole, "the conversation rendered anew reads as it was sampled"


async def test_sampled_ids_that_no_text_encodes_to_survive(chat, replay_engine):
    """Half of a two-byte character decodes to a replacement character; the next prompt still holds the half."""
    first = await TokenPolicy(chat, replay_engine(chat, [SEARCH])).generate(request())
    half = chat.encode("é")[:1]
    odd = dataclasses.replace(first, token_ids=(*half, *first.token_ids), log_probs=(-1.0, *first.log_probs))
    engine = replay_engine(chat, [CLICK])
    messages = (*OPENING, {"role": "assistant", "content": "\ufffd"}, page())
    turn = await TokenPolicy(chat, engine).generate(request(messages, odd))
    assert turn.prompt_ids == odd.prompt_ids + odd.token_ids + chat.extension_ids([page()])


async def test_a_reply_cut_at_the_limit_is_closed_unsampled(chat, replay_engine):
    policy = TokenPolicy(chat, replay_engine(chat, [SEARCH, CLICK]))
    first = await policy.generate(request())
    cut = dataclasses.replace(first, token_ids=first.token_ids[:-1], log_probs=first.log_probs[:-1])
    second = await policy.generate(request((*OPENING, {"role": "assistant", "content": ""}, page()), cut))
    assert second.prompt_ids == first.prompt_ids + first.token_ids + chat.extension_ids([page()])


async def test_only_messages_after_the_last_reply_are_added(chat, replay_engine):
    policy = TokenPolicy(chat, replay_engine(chat, [SEARCH]))
    first = await policy.generate(request())
    said = {"role": "assistant", "content": "x"}
    messages = (*OPENING, said, page("old"), said, page("a"), page("b"))
    policy.engine.replies.append(CLICK)
    second = await policy.generate(request(messages, first))
    assert "old" not in chat.decode(second.prompt_ids)
    assert second.prompt_ids[len(first.prompt_ids + first.token_ids) :] == chat.extension_ids([page("a"), page("b")])


async def test_a_changing_schema_renders_everything_anew(chat, replay_engine):
    policy = TokenPolicy(chat, replay_engine(chat, [SEARCH, CLICK]))
    first = await policy.generate(request(prefix_stable=False))
    messages = (*OPENING, {"role": "assistant", "content": "said"}, page())
    second = await policy.generate(request(messages, first, prefix_stable=False))
    assert second.prompt_ids == chat.initial_ids(messages, TOOLS)


async def test_a_full_context_window_is_an_empty_cut_reply(chat):
    class Full:
        async def generate(self, prompt_ids, **kwargs):
            return Generation((), (), "length")

    turn = await TokenPolicy(chat, Full()).generate(request())
    assert (turn.finish_reason, turn.token_ids, turn.tool_calls) == ("length", (), ())


async def test_an_engine_that_loses_log_probs_is_refused(chat):
    class Lossy:
        async def generate(self, prompt_ids, **kwargs):
            return Generation((1, 2), (-0.5,), "stop")

    with pytest.raises(PolicyUnavailable, match="2 tokens but 1 log-probs"):
        await TokenPolicy(chat, Lossy()).generate(request())


async def test_everything_else_goes_through_to_the_engine(chat, replay_engine):
    engine = replay_engine(chat, [])
    policy = TokenPolicy(chat, engine)
    policy.open_session("s")
    policy.close_session("s")
    assert engine.sessions == ["open s", "close s"]
    assert await policy.score([1, 2, 3]) == [-1.0, -1.0]
    assert policy.identity().keys() == {"model", "chat_template_sha256", "vocabulary_sha256"}


async def test_a_reply_that_ended_with_another_stop_token_is_read_and_closed(tokenizer):
    """What was sampled stays as it is; the template's own end follows it, unsampled."""
    other = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    chat = ChatTemplate(tokenizer, (other,))

    class Ends:
        async def generate(self, prompt_ids, **_):
            ids = (*chat.encode(SEARCH), other)
            return Generation(ids, (-0.5,) * len(ids), "stop")

    policy = TokenPolicy(chat, Ends())
    turn = await policy.generate(request())
    assert turn.parse_error is None
    assert (turn.tool_calls[0].name, turn.content, turn.text) == ("search", "", SEARCH)
    assert turn.token_ids[-1] == other
    call = {"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"query": "oak"}'}}
    messages = (*OPENING, {"role": "assistant", "content": "", "tool_calls": [call]}, page())
    following = await policy.generate(request(messages, turn))
    seen = turn.prompt_ids + turn.token_ids
    assert following.prompt_ids[: len(seen) + 1] == (*seen, chat.end_of_turn_id)


@pytest.mark.parametrize("broken", [float("nan"), float("-inf")])
async def test_log_probs_that_are_not_finite_stop_the_run_and_name_the_weights(chat, broken):
    """Not a technical failure: every further episode would be sampled from the same broken weights."""

    class Broken:
        async def generate(self, prompt_ids, **_):
            return Generation((4, 5), (-0.5, broken), "length", "step-0007-ab")

    with pytest.raises(NotFinite, match=r"log-probs at weights 'step-0007-ab' are not finite"):
        await TokenPolicy(chat, Broken()).generate(request())
