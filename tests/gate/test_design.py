"""Masks: who is shown what, so that a difference can only be the chunks'."""

import math

import pytest

from intraskill.core.errors import UserError
from intraskill.gate.design import check_columns, draw_masks


def within(count, n, p):
    """Whether a binomial count lies within 4.5 standard deviations of its mean."""
    return abs(count - n * p) <= 4.5 * math.sqrt(n * p * (1 - p))


def test_a_plain_chunk_is_masked_half_of_the_time_and_versions_never_meet():
    slots, n = [("a",), ("b", "b1"), ("c", "c1", "c2")], 12_000
    rows = draw_masks(slots, n, seed=3)
    assert all(len(row) == 6 and row[1] + row[2] <= 1 and sum(row[3:]) <= 1 for row in rows)
    for column, p in enumerate([1 / 2, 1 / 3, 1 / 3, 1 / 4, 1 / 4, 1 / 4]):
        assert within(sum(row[column] for row in rows), n, p)
    assert within(sum(row[0] and row[1] for row in rows), n, 1 / 6)
    assert within(sum(not any(row) for row in rows), n, 1 / 24)


def test_masks_are_a_pure_function_of_seed_row_and_slot():
    rows = draw_masks([("a",), ("b", "b1")], 60, seed=3)
    assert draw_masks([("b", "b1"), ("z",), ("a",)], 40, seed=3) != rows
    reordered = draw_masks([("b", "b1"), ("z",), ("a",)], 40, seed=3)
    assert [(row[3], row[0], row[1]) for row in reordered] == rows[:40]
    assert draw_masks([("a",), ("b", "b1")], 60, seed=4) != rows
    assert draw_masks([], 2, seed=0) == [(), ()]


@pytest.mark.parametrize(
    ("tasks", "chunks", "candidates", "budget", "rounds", "fits"),
    [
        (7, 6, 0, 10, 4, True),
        (6, 6, 0, 10, 4, False),  # no degree of freedom left
        (13, 6, 6, 10, 1, True),  # one round: the bank, and six candidates beside it
        (12, 6, 6, 10, 1, False),
        (16, 6, 6, 10, 2, False),  # the first round may fill the budget
        (17, 6, 6, 10, 2, True),
        (18, 16, 2, 10, 4, False),  # the bank that training starts from may exceed the budget
    ],
)
def test_a_run_one_of_whose_gates_could_never_be_fitted_is_refused(tasks, chunks, candidates, budget, rounds, fits):
    if fits:
        check_columns(tasks, chunks, candidates, budget, rounds)
    else:
        with pytest.raises(UserError, match=f"gate.tasks is {tasks}, too few to tell .* apart; .*raise gate.tasks"):
            check_columns(tasks, chunks, candidates, budget, rounds)
