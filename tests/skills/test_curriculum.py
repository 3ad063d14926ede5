import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intraskill.core.errors import UserError
from intraskill.skills.bank import Bank, Chunk
from intraskill.skills.curriculum import (
    build_curriculum,
    curriculum_record,
    draw_assignment,
    parse_curriculum,
    uniform,
)


def bank_of(*contributions):
    return Bank(tuple(Chunk(f"c{i}", contribution=value) for i, value in enumerate(contributions)))


def build(bank, curriculum_id="round-000"):
    return build_curriculum(bank, 0.2, 0.2, 0.9, curriculum_id)


def within(count, n, p):
    """Whether a binomial count lies within 4.5 standard deviations of its mean."""
    return abs(count - n * p) <= 4.5 * math.sqrt(n * p * (1 - p))


def test_reproduces_the_published_curricula_to_the_last_bit(published_json):
    for published in published_json("curricula.json")["rounds"]:
        bank = Bank(tuple(Chunk(item["skill_id"], contribution=item["contribution"]) for item in published["skills"]))
        curriculum = build(bank)
        assert curriculum.contribution_scale == published["contribution_scale"]
        assert curriculum_record(curriculum)["chunks"] == published["skills"]


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8))
def test_probabilities_stay_in_range_and_keep_the_order_of_contributions(contributions):
    items = build(bank_of(*contributions)).probabilities
    assert all(0.2 <= item.rho <= 0.9 for item in items)
    ordered = sorted(items, key=lambda item: item.contribution)
    assert [item.rho for item in ordered] == sorted(item.rho for item in items)


def test_without_a_positive_contribution_every_chunk_gets_rho_min():
    curriculum = build(bank_of(-0.1, 0.0, -0.3))
    assert [item.rho for item in curriculum.probabilities] == [0.2, 0.2, 0.2]
    assert curriculum.contribution_scale == 0.0


def test_an_empty_bank_is_a_curriculum_of_bare_prompts():
    curriculum = build(Bank())
    assert {draw_assignment(curriculum, i).skill_ids for i in range(50)} == {()}


def test_a_given_scale_replaces_the_largest_contribution():
    curriculum = build_curriculum(bank_of(0.1, 0.4), 0.2, 0.2, 0.9, "x", scale=0.2)
    assert [item.rho for item in curriculum.probabilities] == [0.2 + (0.9 - 0.2) * 0.1 / 0.2, 0.9]


@pytest.mark.parametrize(
    ("bank", "numbers", "message"),
    [
        (bank_of(0.1, None), (0.2, 0.2, 0.9), "chunk 'c1' has no contribution"),
        (bank_of(0.1, math.inf), (0.2, 0.2, 0.9), "chunk 'c1' has the contribution inf"),
        (bank_of(0.1), (0.2, 0.9, 0.2), "swap them"),
        (bank_of(0.1), (1.2, 0.2, 0.9), "q is 1.2"),
        (bank_of(0.1), (math.nan, 0.2, 0.9), "q is nan"),
        (bank_of(0.1), (0.2, -0.1, 0.9), "rho_min is -0.1"),
    ],
)
def test_impossible_curricula_are_refused(bank, numbers, message):
    with pytest.raises(UserError, match=message):
        build_curriculum(bank, *numbers, "x")


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_a_scale_must_be_positive_and_finite(scale):
    with pytest.raises(UserError, match="scale is"):
        build_curriculum(bank_of(0.1), 0.2, 0.2, 0.9, "x", scale=scale)


def test_a_curriculum_survives_writing_and_reading():
    curriculum = build(bank_of(0.1, 0.3))
    assert parse_curriculum(curriculum_record(curriculum), "x") == curriculum
    with pytest.raises(UserError, match="intraskill-curriculum-v2"):
        parse_curriculum(curriculum_record(curriculum) | {"schema": "intraskill-curriculum-v2"}, "x")
    with pytest.raises(UserError, match="'q' is missing"):
        parse_curriculum({k: v for k, v in curriculum_record(curriculum).items() if k != "q"}, "x")


def test_assignments_occur_as_often_as_the_curriculum_says():
    curriculum, n = build(bank_of(0.05, 0.2, 0.4)), 20_000
    drawn = [draw_assignment(curriculum, i) for i in range(n)]
    assisted = [a for a in drawn if not a.skill_free]
    assert within(n - len(assisted), n, 0.2)
    for item in curriculum.probabilities:
        assert within(sum(item.skill_id in a.skill_ids for a in assisted), len(assisted), item.rho)
    rho = [item.rho for item in curriculum.probabilities]
    both = sum({"c0", "c1"} <= set(a.skill_ids) for a in assisted)
    assert within(both, len(assisted), rho[0] * rho[1])
    assert all(not a.skill_ids for a in drawn if a.skill_free)


def test_an_assignment_is_a_pure_function_of_curriculum_and_group():
    curriculum = build(bank_of(0.1, 0.2, 0.3))
    drawn = [draw_assignment(curriculum, i) for i in range(100)]
    assert [draw_assignment(curriculum, i) for i in reversed(range(100))] == drawn[::-1]
    assert [draw_assignment(build(bank_of(0.1, 0.2, 0.3), "round-001"), i) for i in range(100)] != drawn


def test_a_chunk_is_drawn_the_same_whatever_stands_around_it():
    curriculum = build(bank_of(0.1, 0.2, 0.3))
    shuffled = replace(curriculum, probabilities=curriculum.probabilities[::-1])
    alone = replace(curriculum, probabilities=curriculum.probabilities[1:2])
    for i in range(200):
        drawn = draw_assignment(curriculum, i)
        assert draw_assignment(shuffled, i).skill_ids == drawn.skill_ids[::-1]
        assert draw_assignment(alone, i).skill_ids == tuple(x for x in drawn.skill_ids if x == "c1")


def test_the_draws_are_the_same_on_every_machine():
    assert uniform("round-000", 0, "skill-free") == 0.4845733937881208
    assert uniform("round-000", 0, "chunk", "brand") == 0.7181272228391052


def test_neighbouring_coordinates_do_not_collide():
    assert uniform("a", 1, "b") != uniform("a", "1", "b") != uniform("a1", "b")
