"""The ledger: append-only, rounds settled once, a torn tail is no harm."""

import pytest

from intraskill.evolution.ledger import Ledger, LedgerRow, rejected_texts
from intraskill.storage.jsonl import JsonlLog


def row(round_index=0, name="online-1", result="selected", operation="ADD", key="k1"):
    return LedgerRow(round_index, "ck", name, operation, name, "brand", ("card-1",), "t", "w", ("p",), key, result, 0.1)


@pytest.fixture
def log(tmp_path):
    return JsonlLog(tmp_path / "ledger.jsonl")


def test_rows_survive_rounds(log):
    Ledger(log).settle(0, [row(0), row(0, "online-2", "non_positive", key="k2")])
    Ledger(log).settle(1, [row(1, "online-3")])
    assert [r["candidate_id"] for r in Ledger(log).rows()] == ["online-1", "online-2", "online-3"]
    assert [r["round"] for r in Ledger(log).rows(before_round=1)] == [0, 0]


def test_settling_a_round_again_adds_nothing(log):
    for _ in range(2):
        Ledger(log).settle(0, [row(0), row(0, "online-2")])
    assert len(log.read()) == 2


def test_a_gate_completed_later_is_added_and_the_old_row_stays(log):
    Ledger(log).settle(0, [row(0, result="gate_incomplete")])
    Ledger(log).settle(0, [row(0, result="selected")])
    assert [r["result"] for r in log.read()] == ["gate_incomplete", "selected"]


def test_a_torn_tail_costs_only_the_torn_row(log):
    Ledger(log).settle(0, [row(0), row(0, "online-2")])
    data = log.path.read_bytes()
    log.path.write_bytes(data[:-20])
    assert [r["candidate_id"] for r in Ledger(log).rows()] == ["online-1"]
    Ledger(log).settle(0, [row(0), row(0, "online-2")])
    assert log.path.read_bytes() == data


def test_only_what_a_gate_turned_down_counts_as_rejected(log):
    rows = [
        row(name="a", result="non_positive", key="1"),
        row(name="b", result="rewrite_loser", operation="REWRITE", key="2"),
        row(name="c", result="budget_excluded", key="3"),
        row(name="d", result="selected", key="4"),
        row(name="e", result="dropped: too_few_cards", key="5"),
    ]
    Ledger(log).settle(0, rows)
    assert rejected_texts(log.read()) == {("", "1"), ("b", "2")}
