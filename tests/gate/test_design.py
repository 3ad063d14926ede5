"""Masks: who is shown what, so that a difference can only be the chunks'."""

import math

from intraskill.gate.design import draw_masks


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
