"""The 32 -> 16 filter keeps what carries a signal and never pays for an idle wave."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intraskill.core.errors import TooManyTechnicalFailures
from intraskill.core.records import Assignment, Group
from intraskill.objectives.objective import OBJECTIVES
from intraskill.rollout.filter import GroupFilter

SIGNAL = OBJECTIVES["grpo"].carries_signal
MIXED, FLAT, BROKEN = [1.0, 0.0] * 4, [0.1] * 8, [1.0] * 7 + [None]


def judge_all(make_group, kinds, target=16, limit=8):
    judge = GroupFilter(SIGNAL, target, limit)
    judge.submit(len(kinds))
    return judge, [judge.judge(make_group(kind, index)) for index, kind in enumerate(kinds)]


def test_the_first_sixteen_groups_with_a_spread_are_kept_and_the_rest_is_surplus(make_group):
    judge, verdicts = judge_all(make_group, [MIXED] * 32)
    assert verdicts == ["kept"] * 16 + ["surplus"] * 16
    assert judge.complete
    assert not judge.wave_due


def test_flat_groups_are_dropped_only_while_there_are_more_than_needed(make_group):
    judge, verdicts = judge_all(make_group, [FLAT] * 32)
    assert verdicts == ["zero_std"] * 16 + ["kept"] * 16
    assert judge.complete


def test_what_carries_signal_is_for_the_objective_to_say(make_group):
    judge = GroupFilter(lambda group: group.index % 2 == 1, target=2, technical_limit=8)
    judge.submit(4)
    verdicts = [judge.judge(make_group(FLAT, index)) for index in range(4)]
    assert verdicts == ["zero_std", "kept", "zero_std", "kept"]


def test_unscorable_groups_are_always_dropped_and_may_cost_another_wave(make_group):
    kinds = [BROKEN, BROKEN, MIXED] * 10 + [BROKEN, BROKEN]
    judge, verdicts = judge_all(make_group, kinds)
    assert verdicts.count("technical") == 22
    assert judge.remaining == 10
    assert judge.wave_due


def test_after_the_last_wave_none_is_due_however_little_was_kept(make_group):
    judge = GroupFilter(SIGNAL, 2, 33, max_waves=2)
    for wave in (1, 2):
        assert judge.wave_due
        judge.submit(2)
        verdicts = [judge.judge(make_group(BROKEN)), judge.judge(make_group(MIXED if wave == 2 else BROKEN))]
    assert verdicts == ["technical", "kept"]
    assert not judge.complete
    assert not judge.wave_due


def test_technical_groups_in_a_row_stop_the_run(make_group):
    with pytest.raises(TooManyTechnicalFailures, match=r"8 groups in a row .* environment: gone"):
        judge_all(make_group, [MIXED] * 3 + [BROKEN] * 8)


def test_the_row_of_technical_groups_goes_on_across_steps(make_group):
    judge = GroupFilter(SIGNAL, 16, 8, technical_run=7)
    judge.submit(32)
    with pytest.raises(TooManyTechnicalFailures):
        judge.judge(make_group(BROKEN))


def test_a_scorable_group_ends_the_row(make_group):
    judge, _ = judge_all(make_group, [BROKEN] * 7 + [MIXED] + [BROKEN] * 7)
    assert judge.technical_run == 7


@given(st.lists(st.sampled_from(["mixed", "flat", "broken"]), min_size=32, max_size=32), st.integers(1, 32))
def test_a_wave_ends_complete_or_asks_for_another(kinds, target):
    from intraskill.core.records import Episode, EpisodeJob

    rewards = {"mixed": [0.0, 1.0], "flat": [1.0, 1.0], "broken": [None, 0.0]}

    def group(kind, index):
        episodes = tuple(
            Episode(
                EpisodeJob(1, i, 0, "train"),
                "failed" if reward is None else "completed",
                (),
                None,
                (),
                (),
                reward or 0.0,
                bool(reward),
                {},
                None,
            )
            for i, reward in enumerate(rewards[kind])
        )
        return Group(index, 1, Assignment(index, True, ()), episodes)

    judge = GroupFilter(SIGNAL, target, technical_limit=33)
    judge.submit(32)
    verdicts = [judge.judge(group(kind, index)) for index, kind in enumerate(kinds)]
    assert judge.kept <= target
    assert judge.complete or judge.wave_due
    assert all((verdict == "technical") == (kind == "broken") for verdict, kind in zip(verdicts, kinds))
    scorable = 32 - kinds.count("broken")
    assert not judge.complete or scorable >= target
