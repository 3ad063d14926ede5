"""The strict parser beside SGLang's own: where both accept a reply they must read the same calls.

SGLang's parser is lenient where ours is strict: it fills in what it can. Each reply on which they differ is listed
here, with what was decided. The strict parser always has the last word: a reply that only one backend would accept
would make the two backends different experiments.
"""

import json
from pathlib import Path

import pytest

from intraskill.agent.call_formats import QWEN3_CODER
from intraskill.agent.parsing import parse_reply

pytestmark = pytest.mark.slime

CASES = json.loads((Path(__file__).parent / "parsing_cases.json").read_text("utf-8"))["qwen3_coder"]
TOOLS = [
    ("search", "query"),
    ("click", "value"),
]
DIFFERENT = {  # reply -> why ours decides
    "end tag inside a value": "a value may hold any tag; SGLang cuts it there",
    "parameter end tag inside a value": "a value may hold any tag; SGLang cuts it there",
    "missing tool_call end tag": "SGLang closes what the model left open: not what was said",
    "missing function end tag": "SGLang closes what the model left open: not what was said",
    "missing parameter end tag": "SGLang closes what the model left open: not what was said",
    "text inside the call": "SGLang drops the text; text beside a call is a protocol error",
    "good call then a broken one": "two attempted calls are a protocol error; SGLang hides the second",
    "two functions in one call": "SGLang makes two calls of it; either way it is a protocol error",
    "call inside an open think": "a call that is only thought of is not made",
    "call inside an open think of the prompt": "a call that is only thought of is not made",
    "cut inside the value": "a reply cut at the length limit is a policy failure, not half a search",
    "cut inside the last tag": "a reply cut at the length limit is a policy failure",
    "duplicate parameter": "SGLang takes the last; which one was meant cannot be known",
}


@pytest.fixture(scope="module")
def sglang_reads():
    """text -> [[name, arguments], ..] as SGLang's qwen3_coder detector reads it."""
    protocol = pytest.importorskip("sglang.srt.entrypoints.openai.protocol", reason="SGLang is not installed")
    parser_module = pytest.importorskip("sglang.srt.function_call.function_call_parser")
    reasoning_module = pytest.importorskip("sglang.srt.parser.reasoning_parser")
    tools = [
        protocol.Tool(
            type="function",
            function=protocol.Function(
                name=name, parameters={"type": "object", "properties": {argument: {"type": "string"}}}
            ),
        )
        for name, argument in TOOLS
    ]

    def read(text: str, starts_in_think: bool):
        reasoning = reasoning_module.ReasoningParser("qwen3", stream_reasoning=False, force_reasoning=starts_in_think)
        _, visible = reasoning.parse_non_stream(text)
        parser = parser_module.FunctionCallParser(tools, "qwen3_coder")
        if not visible or not parser.has_tool_call(visible):
            return []
        _, calls = parser.parse_non_stream(visible)
        return [[call.name, json.loads(call.parameters)] for call in calls]

    return read


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_both_read_the_same_calls(case, sglang_reads):
    ours = parse_reply(case["text"], QWEN3_CODER, starts_in_think=case.get("starts_in_think", False))
    theirs = sglang_reads(case["text"], case.get("starts_in_think", False))
    same = [[call.name, call.arguments] for call in ours.tool_calls] == theirs
    assert same != (case["name"] in DIFFERENT), f"SGLang reads {theirs}"
