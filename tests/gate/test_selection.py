from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intraskill.core.errors import UserError
from intraskill.gate.selection import Contribution, parse_contributions, select, selection_record


def current(name, coefficient, order=1):
    return Contribution(name, "current", name, None, order, coefficient)


def rewrite(name, of, coefficient, order=1):
    return Contribution(name, "candidate", of, "REWRITE", order, coefficient)


def add(name, coefficient, order=9):
    return Contribution(name, "candidate", name, "ADD", order, coefficient)


def verdicts(items, budget=10):
    return {row.intervention_id: (row.rank, row.status) for row in select(items, budget).rows}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_reproduces_the_published_gates(published_json, number):
    published = published_json(f"gate_round_00{number}.json")
    record = selection_record(select(parse_contributions(published), published["active_skill_budget"]))
    expected = [{key: row[key] for key in ("intervention_id", "rank", "status")} for row in published["contributions"]]
    assert record["rows"] == expected
    assert record["replacement_winners"] == published["replacement_winners"]
    assert record["selected_intervention_ids"] == published["selected_intervention_ids"]


def test_a_winning_rewrite_keeps_the_logical_chunk():
    selection = select([current("a", 0.1), rewrite("a1", "a", 0.2), rewrite("a2", "a", 0.15)], 10)
    assert selection.replacement_winners == {"a": "a1"}
    assert selection.selected_ids == ("a1",)
    assert [(row.rank, row.status) for row in selection.rows] == [
        (None, "rewrite_loser"),
        (1, "selected"),
        (None, "rewrite_loser"),
    ]


@pytest.mark.parametrize("order", [1, -1])
def test_a_tie_keeps_the_current_text(order):
    items = [current("a", 0.1), rewrite("a1", "a", 0.1)][::order]
    assert select(items, 10).replacement_winners == {"a": "a"}


def test_what_does_not_help_goes_and_the_bank_is_not_padded():
    items = [current("a", 0.0, 1), current("b", -0.1, 2), rewrite("b1", "b", -0.05, 2), add("n", 0.0, 3)]
    assert verdicts(items) == {
        "a": (1, "retired"),
        "b": (None, "rewrite_loser"),
        "b1": (3, "non_positive"),
        "n": (2, "non_positive"),
    }
    assert select(items, 10).selected_ids == ()


def test_the_budget_cuts_by_rank_and_the_bank_keeps_its_order():
    items = [current("a", 0.1, 1), current("b", 0.3, 2), current("c", -0.1, 3), add("n", 0.2, 4)]
    assert verdicts(items, budget=2) == {
        "a": (3, "budget_excluded"),
        "b": (1, "selected"),
        "c": (4, "retired"),
        "n": (2, "selected"),
    }
    assert select(items[::-1], 2).selected_ids == ("b", "n")


def test_equal_effects_rank_in_bank_order():
    assert verdicts([add("n", 0.1, 5), current("a", 0.1, 1)], budget=1) == {
        "n": (2, "budget_excluded"),
        "a": (1, "selected"),
    }


@given(st.lists(st.sampled_from([-0.2, -0.1, 0.0, 0.1, 0.2, 0.3]), max_size=12), st.integers(1, 6))
def test_selection_laws(coefficients, budget):
    items = [current(f"c{i}", value, i) for i, value in enumerate(coefficients)]
    selection = select(items, budget)
    positive = sorted((value for value in coefficients if value > 0), reverse=True)
    chosen = [items[int(name[1:])].coefficient for name in selection.selected_ids]
    assert sorted(chosen, reverse=True) == positive[:budget]
    assert [row.intervention_id for row in selection.rows] == [item.intervention_id for item in items]
    assert sorted(row.rank for row in selection.rows) == list(range(1, len(items) + 1))


def test_nothing_to_select_is_an_empty_selection():
    assert select([], 10).rows == ()


@pytest.mark.parametrize(
    ("items", "budget", "message"),
    [
        ([current("a", float("nan"))], 10, "'a' has the coefficient nan"),
        ([current("a", float("inf"))], 10, "'a' has the coefficient inf"),
        ([current("a", 0.1), current("a", 0.2)], 10, "'a' stands there twice"),
        ([current("a", 0.1), replace(current("b", 0.1), logical_chunk_id="a")], 10, "both current texts of 'a'"),
        ([], 0, "budget is 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(items, budget, message):
    with pytest.raises(UserError, match=message):
        select(items, budget)


ROW = {"intervention_id": "a", "kind": "current", "logical_chunk_id": "a", "operation": None, "order": 1}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, 'a list of rows, or an object with "contributions"'),
        ([3], r"contributions\[0\] must be an object"),
        ([ROW], r'contributions\[0\]: "coefficient" is missing'),
        ([ROW | {"coefficient": "1"}], "coefficient is '1'"),
        ([ROW | {"coefficient": None}], "coefficient is None"),
        ([ROW | {"coefficient": 1, "order": 1.5}], "order is 1.5"),
        ([ROW | {"coefficient": 1, "kind": "old"}], "kind is 'old'"),
        ([ROW | {"coefficient": 1, "operation": "ADD"}], "must be null"),
        ([ROW | {"coefficient": 1, "kind": "candidate"}], "must be ADD or REWRITE"),
        ([ROW | {"coefficient": 1, "intervention_id": 4}], "intervention_id is 4"),
        ([ROW | {"coefficient": 1, "kind": []}], r"kind is \[\]"),
    ],
)
def test_broken_rows_are_refused_with_their_place(record, message):
    with pytest.raises(UserError, match=message):
        parse_contributions(record)


def test_a_list_and_an_object_are_read_alike_and_other_keys_ignored():
    rows = [ROW | {"coefficient": 1, "rank": 7, "status": "selected"}]
    assert parse_contributions(rows) == parse_contributions({"contributions": rows, "x": 1}) == [current("a", 1.0)]
