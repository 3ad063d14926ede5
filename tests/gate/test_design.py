"""Masks: who is shown what, so that a difference can only be the chunks'."""

import math
import random
from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest

from intraskill.core.errors import UserError
from intraskill.gate.design import check_columns, draw_design, draw_masks, draw_mirrored


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


SLOTS = [("a",), ("b", "b1"), ("c",), ("d", "d1", "d2")]
TASKS = [str(number) for number in range(400)]


def states(masks, slot):
    """Each row's state of one slot: 0 is absent."""
    start = sum(map(len, SLOTS[:slot]))
    return [next((i + 1 for i in range(len(SLOTS[slot])) if row[start + i]), 0) for row in masks]


def test_a_mirror_differs_in_every_slot_and_every_ordered_pair_of_states_is_as_frequent():
    drawn = draw_mirrored(SLOTS, TASKS, "seed-0/round-003")
    for slot in range(len(SLOTS)):
        pairs = Counter(zip(states(drawn.masks, slot), states(drawn.mirrors, slot)))
        assert set(pairs) == set(permutations(range(len(SLOTS[slot]) + 1), 2))
        assert max(pairs.values()) - min(pairs.values()) <= 1


def test_the_columns_of_mask_minus_mirror_sum_to_zero_as_nearly_as_they_can():
    for tasks in (TASKS, TASKS[:37]):
        drawn = draw_mirrored(SLOTS, tasks, "x")
        sums = np.array(drawn.masks).sum(axis=0) - np.array(drawn.mirrors).sum(axis=0)
        assert all(abs(total) <= (0 if len(tasks) % 2 == 0 else 1) for total in sums[[0, 3]]), "plain chunks"
        assert np.abs(sums).max() <= 2


def test_slots_are_mirrored_independently_of_each_other():
    drawn = draw_mirrored(SLOTS, [str(i) for i in range(6000)], "x")
    both = sum(one and other for one, other in zip(states(drawn.masks, 0), states(drawn.masks, 2)))
    assert within(both, 6000, 1 / 4)
    first = Counter(zip(states(drawn.masks, 0), states(drawn.masks, 1)))
    assert all(within(first[pair], 6000, 1 / 6) for pair in product(range(2), range(3)))


def test_mirrored_masks_follow_from_the_curriculum_and_the_tasks_names_alone():
    drawn = draw_mirrored(SLOTS, TASKS, "seed-0/round-003")
    by_task = dict(zip(TASKS, zip(drawn.masks, drawn.mirrors)))
    shuffled = random.Random(1).sample(TASKS, len(TASKS))
    again = draw_mirrored(SLOTS, shuffled, "seed-0/round-003")
    assert dict(zip(shuffled, zip(again.masks, again.mirrors))) == by_task
    assert draw_mirrored(SLOTS, TASKS, "seed-0/round-004") != drawn
    alone = draw_mirrored([("c",)], TASKS, "seed-0/round-003")
    assert [row[0] for row in alone.masks] == states(drawn.masks, 2)


def test_a_fixed_slot_is_the_same_in_mask_and_mirror():
    drawn = draw_mirrored(SLOTS, TASKS, "x", fixed=["b", "c"])
    assert states(drawn.masks, 1) == states(drawn.mirrors, 1)
    assert Counter(states(drawn.masks, 1)).keys() == {0, 1, 2}
    assert all(one != other for one, other in zip(states(drawn.masks, 3), states(drawn.mirrors, 3)))


def test_the_published_design_is_the_plain_draw_and_has_no_mirror():
    drawn = draw_design("published", SLOTS, TASKS, 7, "seed-0/round-000")
    assert list(drawn.masks) == draw_masks(SLOTS, 400, 7)
    assert drawn.mirrors == ()


def test_mirrored_masks_that_cannot_be_told_apart_are_drawn_again():
    slots = [(name,) for name in "abcdefgh"]

    def rank(drawn):
        return np.linalg.matrix_rank(drawn.contrasts)

    names = [f"gate-{number}" for number in range(60)]
    unlucky = next(name for name in names if rank(draw_mirrored(slots, TASKS[:9], name)) < 8)
    drawn = draw_design("foldover", slots, TASKS[:9], 0, unlucky)
    assert rank(drawn) == 8
    lucky = next(name for name in names if rank(draw_mirrored(slots, TASKS[:9], name)) == 8)
    assert draw_design("foldover", slots, TASKS[:9], 0, lucky) == draw_mirrored(slots, TASKS[:9], lucky)
