"""What an all-wrong group and its full-bank retry tell."""

import pytest

from intraskill.rollout.triage import triage

WRONG = [0.0] * 8


@pytest.mark.parametrize(
    ("rewards", "retry", "expected"),
    [
        ([0.0] * 7 + [1.0], None, "solved"),
        (WRONG, 1.0, "model_internalization_deficit"),
        (WRONG, 0.5, "full_skill_failure_pending_analysis"),
        ([0.5] * 8, 0.0, "full_skill_failure_pending_analysis"),
        ([0.0] * 7 + [None], None, "environment_or_runtime_error"),
    ],
)
def test_triage(make_group, make_episode, rewards, retry, expected):
    episode = None if retry is None else make_episode(retry)
    assert triage(make_group(rewards), episode) == expected


def test_a_retry_that_broke_is_a_technical_failure(make_group, make_episode):
    assert triage(make_group(WRONG), make_episode(None)) == "environment_or_runtime_error"


def test_an_all_wrong_group_without_its_retry_is_a_bug(make_group):
    with pytest.raises(ValueError, match="not retried"):
        triage(make_group(WRONG), None)
