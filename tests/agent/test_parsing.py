import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intraskill.agent.call_formats import CALL_FORMATS, HERMES, QWEN3_CODER
from intraskill.agent.parsing import parse_reply

CORPUS = json.loads((Path(__file__).parent / "parsing_cases.json").read_text("utf-8"))
CASES = [
    pytest.param(call_format, case, id=f"{call_format.name}: {case['name']}")
    for call_format in CALL_FORMATS
    for case in CORPUS[call_format.name]
]
FORMATS = st.sampled_from(CALL_FORMATS)


@pytest.mark.parametrize(("call_format", "case"), CASES)
def test_corpus(call_format, case):
    reply = parse_reply(case["text"], call_format, starts_in_think=case.get("starts_in_think", False))
    assert [[call.name, call.arguments] for call in reply.tool_calls] == case["calls"]
    assert (reply.error is not None) == case.get("malformed", False)
    assert reply.reasoning == case.get("reasoning", "")
    if not case.get("malformed"):
        assert reply.content == case.get("content", "")


def test_arguments_keep_their_json_type():
    (call,) = parse_reply(HERMES.write("f", {"n": 1, "x": 1.0, "b": True}), HERMES).tool_calls
    assert [type(value) for value in call.arguments.values()] == [int, float, bool]


def test_a_malformed_reply_keeps_what_it_said():
    reply = parse_reply("<think>x</think>ok <tool_call>\n<function=click>", QWEN3_CODER)
    assert reply.content == "ok <tool_call>\n<function=click>"
    assert reply.reasoning == "x"
    assert reply.tool_calls == ()


def test_the_error_names_what_is_missing():
    whole = QWEN3_CODER.write("search", {"query": "oak"})

    def error(text):
        return parse_reply(text, QWEN3_CODER).error

    assert "</tool_call>" in error(whole.removesuffix("</tool_call>"))
    assert "</parameter>" in error(whole.replace("</parameter>", ""))
    assert "</function>" in error(whole.replace("</function>", ""))
    assert "twice" in error(whole.replace("</function>", "<parameter=query>x</parameter></function>"))


def test_the_error_names_what_is_wrong_with_the_json():
    def error(call):
        return parse_reply(f"<tool_call>{call}</tool_call>", HERMES).error

    assert "JSON object (Expecting value)" in error("search")
    assert "given twice" in error('{"name": "a", "arguments": {"x": 1, "x": 2}}')
    assert 'exactly the keys "name" and "arguments"' in error('{"name": "a"}')
    assert '"arguments" is an object' in error('{"name": "a", "arguments": null}')


TAG_PIECES = ["<tool_call>", "</tool_call>", "<function=click>", "</function>", "<parameter=value>", "</parameter>"]
JSON_PIECES = ['{"name": "click", "arguments": ', '{"value": "1"}', "{}", "}", '"', "["]
PIECES = st.sampled_from([*TAG_PIECES, *JSON_PIECES, "<think>", "</think>", "\n", " ", "a", "é", "<", ">"])


@given(st.lists(PIECES, max_size=14).map("".join), FORMATS, st.booleans())
def test_never_raises_and_never_mixes_error_with_calls(text, call_format, starts_in_think):
    reply = parse_reply(text, call_format, starts_in_think=starts_in_think)
    assert reply.error is None or reply.tool_calls == ()


NAMES = st.sampled_from(["search", "click", "tool_1"])
VALUES = st.text(max_size=40).filter(lambda value: "</parameter>" not in value)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(NAMES, st.dictionaries(st.sampled_from(["query", "value", "x"]), VALUES), FORMATS)
def test_what_is_written_is_read_back(name, arguments, call_format):
    (call,) = parse_reply(call_format.write(name, arguments), call_format).tool_calls
    assert (call.name, call.arguments) == (name, arguments)


@given(NAMES, st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=3))
def test_any_json_arguments_are_read_back(name, arguments):
    (call,) = parse_reply(HERMES.write(name, arguments), HERMES).tool_calls
    assert (call.name, call.arguments) == (name, arguments)


@given(VALUES, st.integers(min_value=1, max_value=200), FORMATS)
def test_a_cut_call_is_never_a_call(value, cut, call_format):
    whole = call_format.write("search", {"query": value})
    if cut < len(whole):
        assert parse_reply(whole[:-cut], call_format).tool_calls == ()
