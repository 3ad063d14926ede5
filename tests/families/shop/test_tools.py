import pytest

from intraskill.core.records import ToolCall, Turn
from intraskill.families.shop.tools import ProtocolError, build_tools, single_call, to_action

HOME = {"search_available": True, "actions": []}
RESULTS = {"search_available": False, "actions": ["1", "下一页"]}


def turn(*calls: ToolCall, content: str = "", parse_error: str | None = None) -> Turn:
    return Turn("", content, "", calls, "stop", parse_error=parse_error)


def names(tools):
    return [tool["function"]["name"] for tool in tools]


def test_static_tools_never_change():
    assert build_tools(HOME, "static") == build_tools(RESULTS, "static")
    assert names(build_tools(HOME, "static")) == ["search", "click"]


def test_dynamic_tools_follow_the_page():
    assert names(build_tools(HOME, "dynamic")) == ["search"]
    (click,) = build_tools(RESULTS, "dynamic")
    assert click["function"]["parameters"]["properties"]["value"]["enum"] == ["1", "下一页"]
    assert names(build_tools({"search_available": True, "actions": ["x"]}, "dynamic")) == ["search", "click"]
    assert build_tools({"search_available": False, "actions": []}, "dynamic") == ()


def test_the_one_call_is_found():
    call = ToolCall("click", {"value": "1"})
    assert single_call(turn(call, content=" \n")) == call


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (turn(), "no_tool_call"),
        (turn(content="hello"), "no_tool_call"),
        (turn(parse_error="broken"), "malformed_tool_call"),
        (turn(ToolCall("click", {"value": "1"}), parse_error="one of two is broken"), "malformed_tool_call"),
        (turn(ToolCall("click", {"value": "1"}), ToolCall("click", {"value": "1"})), "multiple_tool_calls"),
        (turn(ToolCall("click", {"value": "1"}), content="so"), "mixed_content"),
    ],
)
def test_what_is_not_one_call(reply, code):
    with pytest.raises(ProtocolError) as error:
        single_call(reply)
    assert error.value.code == code


@pytest.mark.parametrize(
    ("call", "action"),
    [
        (ToolCall("search", {"query": "oak shelf"}), "search[oak shelf]"),
        (ToolCall("click", {"value": " 立即购买 "}), "click[立即购买]"),
        (ToolCall("click", {"value": "never on the page"}), "click[never on the page]"),
        (ToolCall("click", {"value": "a]b["}), "click[a]b[]"),
        (ToolCall("search", {"query": ""}), "search[]"),
    ],
)
def test_well_formed_calls_become_actions(call, action):
    assert to_action(call, RESULTS) == action


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (ToolCall("finish", {}), "unknown_tool"),
        (ToolCall("", {}), "unknown_tool"),
        (ToolCall("click", {}), "invalid_arguments"),
        (ToolCall("click", {"query": "1"}), "invalid_arguments"),
        (ToolCall("click", {"value": "1", "why": "x"}), "invalid_arguments"),
        (ToolCall("click", {"value": 1}), "invalid_arguments"),
        (ToolCall("search", {"query": ["oak"]}), "invalid_arguments"),
        (ToolCall("search", {"query": None}), "invalid_arguments"),
    ],
)
def test_ill_formed_calls_never_reach_the_environment(call, code):
    with pytest.raises(ProtocolError) as error:
        to_action(call, RESULTS)
    assert error.value.code == code
    assert error.value.message
