"""The published contract: every case kept beside the project, and how a case is judged."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest
from shopsimulator.conformance import RUNNERS, Catalogs, Verdict, agrees, run_cases, run_file
from shopsimulator.errors import ShopError

GROUPS = (
    "budget",
    "reward",
    "variant_price",
    "search",
    "task_splits_catalog",
    "action_parsing",
    "option_selection",
    "observation_states",
    "leases_http",
    "termination",
    "persona_goal",
    "identity",
)


@pytest.fixture(scope="module")
def verdicts() -> dict[str, list[Verdict]]:
    """Verdicts by group; the cases lie beside the project."""
    default = Path(__file__).resolve().parents[3] / "shared" / "upstream" / "cases.json"
    path = Path(os.environ.get("INTRASKILL_CASES", default))
    if not path.is_file():
        pytest.skip(f"no conformance cases at {path}; set INTRASKILL_CASES to their file")
    groups: dict[str, list[Verdict]] = {}
    for verdict in run_file(path):
        groups.setdefault(verdict.group, []).append(verdict)
    return groups


@pytest.mark.parametrize("group", GROUPS)
def test_every_case_about_the_shop_agrees(verdicts, group):
    assert verdicts[group]
    for verdict in verdicts[group]:
        assert verdict.verdict == "agree", verdict


def test_a_case_of_an_unknown_kind_is_said_to_have_no_answer():
    case = {"id": "X-1", "group": "x", "kind": "juggling", "input": {}, "expect": {}}
    assert [verdict.verdict for verdict in run_cases([case], Catalogs({}))] == ["none"]


def test_a_runner_that_fails_disagrees():
    case = {"id": "X-1", "group": "x", "kind": "extract_action", "input": {}, "expect": {"action": "search[x]"}}
    (verdict,) = run_cases([case], Catalogs({}))
    assert (verdict.verdict, verdict.ours) == ("disagree", {"error": "KeyError: 'response'"})


def test_another_package_adds_runners_of_its_own():
    case = {"id": "X-1", "group": "x", "kind": "double", "input": {"n": 2}, "expect": {"n": 4}}
    runners = {**RUNNERS, "double": lambda given, catalogs: {"n": 2 * given["n"]}}
    assert [verdict.verdict for verdict in run_cases([case], Catalogs({}), runners)] == ["agree"]


@pytest.mark.parametrize(
    ("expected", "ours", "same"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": {"b": [1]}}, {"a": {"b": [1, 2]}}, False),
        ({"a": None}, {}, False),
        ([{"a": 1}, {}], [{"a": 1}, {"b": 2}], True),
        (0.1 + 0.2, 0.3, True),
        (1, True, False),
        (0.0, 0, True),
        ("a", "b", False),
    ],
)
def test_our_answer_may_say_more_but_not_other_things(expected, ours, same):
    assert agrees(expected, ours) is same


def test_a_generated_catalog_is_expanded():
    pattern = {
        "count": 2,
        "asin_start": 400000000001,
        "title": "rug {n}",
        "attribute": ["blue"],
        "pricing": [20.0],
        "task_id_start": 7,
    }
    catalogs = Catalogs({"many": {"generate": pattern}})
    assert [record["title"] for record in catalogs["many"]] == ["rug 1", "rug 2"]
    assert list(catalogs.world("many").catalog.tasks) == [7, 8]


@pytest.mark.parametrize("content", [b"[", b"[]", orjson.dumps({"schema": "another"})])
def test_a_file_that_holds_no_cases_is_named(tmp_path, content):
    path = tmp_path / "cases.json"
    path.write_bytes(content)
    with pytest.raises(ShopError, match=r"cases\.json"):
        run_file(path)
    with pytest.raises(ShopError, match="cannot read"):
        run_file(tmp_path / "missing.json")
