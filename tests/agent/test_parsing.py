import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intraskill.agent.parsing import parse_reply
from intraskill.policies.scripted import call_text

CASES = json.loads((Path(__file__).parent / "parsing_cases.json").read_text("utf-8"))["cases"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_corpus(case):
    reply = parse_reply(case["text"], starts_in_think=case.get("starts_in_think", False))
    assert [[call.name, call.arguments] for call in reply.tool_calls] == case["calls"]
    assert (reply.error is not None) == case.get("malformed", False)
    assert reply.reasoning == case.get("reasoning", "")
    if not case.get("malformed"):
        assert reply.content == case.get("content", "")


def test_a_malformed_reply_keeps_what_it_said():
    reply = parse_reply("<think>x</think>ok <tool_call>\n<function=click>")
    assert reply.content == "ok <tool_call>\n<function=click>"
    assert reply.reasoning == "x"
    assert reply.tool_calls == ()


def test_the_error_names_what_is_missing():
    whole = call_text("search", query="oak")
    assert "</tool_call>" in parse_reply(whole.removesuffix("</tool_call>")).error
    assert "</parameter>" in parse_reply(whole.replace("</parameter>", "")).error
    assert "</function>" in parse_reply(whole.replace("</function>", "")).error
    assert "twice" in parse_reply(whole.replace("</function>", "<parameter=query>x</parameter></function>")).error


TAG_PIECES = ["<tool_call>", "</tool_call>", "<function=click>", "</function>", "<parameter=value>", "</parameter>"]
PIECES = st.sampled_from([*TAG_PIECES, "<think>", "</think>", "\n", " ", "a", "é", "<", ">"])


@given(st.lists(PIECES, max_size=14).map("".join), st.booleans())
def test_never_raises_and_never_mixes_error_with_calls(text, starts_in_think):
    reply = parse_reply(text, starts_in_think=starts_in_think)
    assert reply.error is None or reply.tool_calls == ()


VALUES = st.text(max_size=40).filter(lambda value: "</parameter>" not in value)


@given(
    st.sampled_from(["search", "click", "tool_1"]), st.dictionaries(st.sampled_from(["query", "value", "x"]), VALUES)
)
def test_what_is_written_is_read_back(name, arguments):
    (call,) = parse_reply(call_text(name, **arguments)).tool_calls
    assert (call.name, call.arguments) == (name, arguments)


@given(VALUES, st.integers(min_value=1, max_value=200))
def test_a_cut_call_is_never_a_call(value, cut):
    whole = call_text("search", query=value)
    if cut < len(whole):
        assert parse_reply(whole[:-cut]).tool_calls == ()
