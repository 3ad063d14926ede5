"""`intraskill conformance`: does this project do what the published one does, case by case.

A file of cases holds inputs of many kinds with the right answers. The shop answers those about its engine and its
service (`shopsimulator.conformance`); those about the client that acts in it are answered here, by the very code an
episode runs through: replies are read as an endpoint's, tools and feedback are the family's, banks and traces the
project's own.

Verdicts: `agree`; `names`, if both refuse alike under different codes; `disagree`; `none`, if nothing here answers. A
case that does not agree is listed with its reason in the deviations that lie in the package, or the command fails.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import typer
from shopsimulator.catalog import inspect_records
from shopsimulator.conformance import RUNNERS, Catalogs, run_file
from shopsimulator.engine import ShopSettings as Rules
from shopsimulator.engine import ShopWorld
from shopsimulator.errors import ShopError

from intraskill.agent.episode import EpisodeSettings, assistant_message, cut_short, run_episode
from intraskill.agent.trace import episode_trace
from intraskill.core.errors import EnvironmentUnavailable, UserError
from intraskill.core.records import EpisodeJob, Message, Sampling, Tool, ToolCall, Turn, TurnRequest
from intraskill.families.base import ProtocolError, TaskSplits, answers
from intraskill.families.shop.environment import InProcessShop, ShopSource
from intraskill.families.shop.family import Shop
from intraskill.families.shop.prompt_file import repair_feedback
from intraskill.families.shop.settings import ShopSettings
from intraskill.families.shop.tools import build_tools, decode
from intraskill.policies.openai import turn_from_choice
from intraskill.policies.scripted import ScriptedPolicy, call_text
from intraskill.skills.bank import parse_bank

Input = Mapping[str, Any]
_PAGE = "Page: search home"
_LISTING: dict[str, Any] = {
    "asin": "100000000001",
    "title": "oak shelf",
    "shop_name": "norvik",
    "category": "home›storage›shelf",
    "pricing": [20.0],
    "customization_options": {},
    "attribute": ["oak"],
    "full_description": "oak shelf",
    "instructions": [{"task_id": 12, "instruction": "an oak shelf", "attributes": ["oak"]}],
}


def conformance(
    cases: Path = typer.Argument(..., metavar="CASES", help="A file of conformance cases (JSON)."),
) -> None:
    """Compare this shop, its service and its client with the published ones, case by case.

    One JSON line a case, then one with the summary. Exit code 1 unless every case agrees or is a listed deviation.
    """
    try:
        verdicts = run_file(cases, RUNNERS | CLIENT_RUNNERS)
    except ShopError as error:
        raise UserError(str(error)) from error
    listed = deviations()
    groups: dict[str, Counter[str]] = {}
    expected = {case["id"]: case["expect"] for case in json.loads(cases.read_text("utf-8"))["cases"]}
    differing = []
    for verdict in verdicts:
        alike = verdict.verdict == "disagree" and _both_refuse(expected[verdict.id], verdict.ours)
        said = "names" if alike else verdict.verdict
        groups.setdefault(verdict.group, Counter())[said] += 1
        differing += [verdict.id] if said != "agree" else []
        print(json.dumps({"id": verdict.id, "verdict": said, "ours": verdict.ours}, ensure_ascii=False))
    unlisted = [case for case in differing if case not in listed]
    summary = {
        "summary": {group: dict(counts) for group, counts in groups.items()},
        "deviations": {case: listed[case] for case in differing if case in listed},
        "unlisted": unlisted,
    }
    print(json.dumps(summary, ensure_ascii=False))
    raise typer.Exit(1 if unlisted else 0)


def _both_refuse(expected: Any, ours: Any) -> bool:
    """Whether both are one refusal, under whatever code."""
    return all(isinstance(answer, dict) and set(answer) == {"protocol_error"} for answer in (expected, ours))


def deviations() -> dict[str, str]:
    """The cases this project decides otherwise on purpose, each with the reason."""
    return dict(json.loads((files("intraskill.assets") / "conformance_deviations.json").read_text("utf-8")))


def _client_turn(case: Input, catalogs: Catalogs) -> Any:
    """What the client does with a reply of an endpoint on the page of a state."""
    turn = _turn(case)
    try:
        return {"action": decode(turn, build_tools(case["state"], "dynamic")).action}
    except ProtocolError as error:
        if cut_short(turn):
            return {"policy_failure": "generation_length", "terminate": "generation_length"}
        return {"protocol_error": error.code}


def _turn(case: Input) -> Turn:
    """The reply as the client of a chat endpoint reads it."""
    calls = [
        {"id": f"call_{number}", "type": "function", "function": _function(call)}
        for number, call in enumerate(case.get("tool_calls") or ())
    ]
    message = {"role": "assistant", "content": case.get("content"), "tool_calls": calls}
    return turn_from_choice({"message": message, "finish_reason": case.get("finish_reason", "stop")}, {}, "")


def _function(call: Input) -> dict[str, Any]:
    arguments = call["arguments"]
    return {"name": call["name"], "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)}


def _tools(case: Input, catalogs: Catalogs) -> Any:
    try:
        tools = {tool["function"]["name"]: tool["function"] for tool in build_tools(case["state"], "dynamic")}
    except EnvironmentUnavailable:
        return {"error": "no callable tool"}
    answer: dict[str, Any] = {"names": list(tools)}
    for name, function in tools.items():
        parameters = function["parameters"]
        ((parameter, schema),) = parameters["properties"].items()
        rest = {key: value for key, value in parameters.items() if key in ("required", "additionalProperties")}
        answer[name] = {"property": parameter, **schema, **rest}
        answer |= {"enum": schema["enum"]} if "enum" in schema else {}
    return answer


def _feedback(case: Input, catalogs: Catalogs) -> Any:
    """The messages that follow a reply which is no valid call."""
    calls = tuple(ToolCall("search", {}, f"call_{number}") for number in range(case["tool_calls"]))
    reply = assistant_message(Turn("", case.get("content") or "", "", calls, "stop"))
    spoken = [reply] if reply["content"] or calls else []
    tools: list[Tool] = [{"type": "function", "function": {"name": name}} for name in case["tools"]]
    content = repair_feedback(case["error"]["code"], case["error"]["message"], tools, _PAGE)
    messages = [*spoken, *answers([call.call_id for call in calls], content)]
    said = json.loads(content)
    return {
        **said,
        "roles": [message["role"] for message in messages],
        "json_keys": list(said),
        "repeats_page": _PAGE in content,
    }


def _read_bank(case: Input, catalogs: Catalogs) -> Any:
    bank = parse_bank(case["bank"], "bank")
    return {"selected": [chunk.skill_id for chunk in bank.chunks if chunk.applies_to(case["task_id"])]}


def _trace_keys(case: Input, catalogs: Catalogs) -> Any:
    """The keys of the traces that real episodes leave: a reply without a call and then a search; a reply cut short."""
    traces = [_trace(ScriptedPolicy(_Replies("hm", call_text("search", query="oak")))), _trace(_Cut(_Replies()))]
    steps = [step for trace in traces for step in trace["steps"]]
    always = [key for key in steps[0] if all(key in step for step in steps)]
    return {
        "top": list(traces[0]),
        "schema_version": traces[0]["schema_version"],
        "episode_id_of": {"task_id": 12, "sample_id": 1, "id": traces[0]["episode_id"]},
        "step": always,
        "first_step_index": steps[0]["step_index"],
        "step_optional": list(dict.fromkeys(key for step in steps for key in step if key not in always)),
    }


def _trace(policy: ScriptedPolicy) -> dict[str, Any]:
    world = ShopWorld(inspect_records([_LISTING]).catalog, Rules(title_terms="lexical"))
    shop = Shop(ShopSettings(), ShopSource(world, TaskSplits((), (), ()), lambda: InProcessShop(world)))
    env = policy.watch(shop.new_environment())
    job, limits = EpisodeJob("12", 1, 0, "test"), EpisodeSettings(3, Sampling(), "dynamic")
    episode = asyncio.run(run_episode(job, shop, env, policy, shop.prompt("full"), (), limits, "conformance"))
    return dict(json.loads(json.dumps(episode_trace(episode, {}))))


class _Replies:
    """Says what it was given, one reply after the other, and then nothing that is a call."""

    def __init__(self, *texts: str) -> None:
        self._texts = iter(texts)

    def __call__(self, state: Mapping[str, Any], messages: Sequence[Message]) -> str:
        return next(self._texts, "hm")


class _Cut(ScriptedPolicy):
    """Reaches the token limit in every reply."""

    async def generate(self, request: TurnRequest) -> Turn:
        return replace(await super().generate(request), finish_reason="length")


CLIENT_RUNNERS = {
    "client_turn": _client_turn,
    "tools": _tools,
    "feedback": _feedback,
    "read_bank": _read_bank,
    "trace_keys": _trace_keys,
}
