"""A smoke run that went wrong does not pass."""

import pytest

from intraskill.backends.slime.smoke_verdict import problems

VERSIONS = {1: ["1"], 2: ["2"]}


def rows(before=0.2, after=0.25, complete=1.0):
    evaluation = {"kind": "evaluation", "condition": "skill_free", "success_se": 0.07}
    return [
        {**evaluation, "success_rate": before},
        {"kind": "evaluation", "condition": "equipped", "success_rate": 0.0},
        {"kind": "gate", "round": 0, "gate/complete": complete},
        {**evaluation, "success_rate": after},
    ]


def test_a_good_run_has_no_problems():
    assert problems(rows(), VERSIONS) == []
    assert problems(rows(before=0.3, after=0.2), VERSIONS) == [], "forty tasks cannot tell that from chance"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (problems(rows(before=0.7, after=0.2), VERSIONS), "success fell from 0.700 to 0.200"),
        (problems(rows(complete=0.0), VERSIONS), "gate of round 0 is incomplete"),
        (problems(rows(), {1: ["1", "2"], 2: ["3"]}), "step 1 mixes the weights 1, 2"),
        (problems(rows(), {1: ["1"], 2: ["1"]}), "two steps were sampled with the same weights"),
    ],
)
def test_each_problem_is_named(found, said):
    (problem,) = found
    assert said in problem
