import pytest

from intraskill.core.errors import EnvironmentUnavailable
from intraskill.core.records import ToolCall, Turn
from intraskill.families.base import ProtocolError
from intraskill.families.shop.tools import build_tools, decode, to_action

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
    with pytest.raises(EnvironmentUnavailable, match="nothing to click"):
        build_tools({"search_available": False, "actions": []}, "dynamic")


def test_the_one_call_is_the_action_and_its_id_gets_the_answer():
    call = ToolCall("click", {"value": "1"}, "call-7")
    decoded = decode(turn(call, content=" \n"), build_tools(RESULTS, "dynamic"))
    assert (decoded.action, decoded.call_ids) == ("click[1]", ("call-7",))


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (turn(), "tool_call_count"),
        (turn(content="hello"), "tool_call_count"),
        (turn(parse_error="broken"), "invalid_tool_call"),
        (turn(ToolCall("click", {"value": "1"}), parse_error="one of two is broken"), "invalid_tool_call"),
        (turn(ToolCall("click", {"value": "1"}), ToolCall("click", {"value": "1"})), "tool_call_count"),
        (turn(ToolCall("click", {"value": "1"}), content="so"), "mixed_content"),
        (turn(ToolCall("search", {"query": "1"}), content="so"), "unavailable_tool"),
        (turn(ToolCall("finish", {})), "unavailable_tool"),
        (turn(ToolCall("", {})), "unavailable_tool"),
    ],
)
def test_what_is_not_one_call_of_a_tool_of_the_page(reply, code):
    with pytest.raises(ProtocolError) as error:
        decode(reply, build_tools(RESULTS, "dynamic"))
    assert error.value.code == code
    assert error.value.message


def test_static_tools_leave_it_to_the_page_whether_a_search_is_possible():
    assert decode(turn(ToolCall("search", {"query": "oak"})), build_tools(RESULTS, "static")).action == "search[oak]"


@pytest.mark.parametrize(
    ("call", "action"),
    [
        (ToolCall("search", {"query": "oak shelf"}), "search[oak shelf]"),
        (ToolCall("click", {"value": " 立即购买 "}), "click[立即购买]"),
        (ToolCall("click", {"value": "never on the page"}), "click[never on the page]"),
        (ToolCall("click", {"value": "a]b["}), "click[a]b[]"),
    ],
)
def test_well_formed_calls_become_actions(call, action):
    assert to_action(call) == action


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (ToolCall("search", {"query": ""}), "invalid_tool_arguments"),
        (ToolCall("search", {"query": "  "}), "invalid_tool_arguments"),
        (ToolCall("click", {}), "invalid_tool_arguments"),
        (ToolCall("click", {"query": "1"}), "invalid_tool_arguments"),
        (ToolCall("click", {"value": "1", "why": "x"}), "invalid_tool_arguments"),
        (ToolCall("click", {"value": 1}), "invalid_tool_arguments"),
        (ToolCall("search", {"query": ["oak"]}), "invalid_tool_arguments"),
        (ToolCall("search", {"query": None}), "invalid_tool_arguments"),
    ],
)
def test_ill_formed_calls_never_reach_the_environment(call, code):
    with pytest.raises(ProtocolError) as error:
        to_action(call)
    assert error.value.code == code
    assert error.value.message
