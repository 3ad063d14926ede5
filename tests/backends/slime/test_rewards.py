"""Rewards are compared between episodes, however many samples each was cut into."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intraskill.backends.slime.rewards import OBJECTIVE_ARGUMENT, post_process
from intraskill.backends.slime.samples import group_samples
from intraskill.objectives.objective import OBJECTIVES, lesson

CENTRED = SimpleNamespace(**{OBJECTIVE_ARGUMENT: "group_mean"})


def sample(group, episode, reward):
    return SimpleNamespace(group_index=group, rollout_id=episode, reward=reward, remove_sample=False)


def test_a_long_episode_counts_once():
    samples = [sample(0, 0, 1.0), sample(0, 0, 1.0), sample(0, 0, 1.0), sample(0, 1, 0.0)]
    raw, values = post_process(CENTRED, samples)
    assert raw == [1.0, 1.0, 1.0, 0.0]
    assert values == [0.5, 0.5, 0.5, -0.5]


def test_groups_of_unequal_size_are_kept_apart():
    samples = [sample(0, 0, 1.0), sample(1, 9, 0.0), sample(0, 1, 0.0), sample(1, 8, 0.0), sample(1, 7, 3.0)]
    assert post_process(CENTRED, samples)[1] == pytest.approx([0.5, -1.0, -0.5, -1.0, 2.0])


def test_equal_rewards_teach_nothing():
    samples = [sample(0, i, 0.25) for i in range(8)]
    assert post_process(SimpleNamespace(), samples)[1] == [0.0] * 8


def test_a_group_with_an_unscored_member_is_masked_out():
    samples = [sample(0, 0, 1.0), sample(0, 1, None), sample(1, 2, 1.0), sample(1, 3, 0.0)]
    raw, values = post_process(CENTRED, samples)
    assert values == [0.0, 0.0, 0.5, -0.5]
    assert [one.remove_sample for one in samples] == [True, True, False, False]
    assert raw[1] == 0.0


def test_a_sample_without_episode_is_one_by_itself():
    assert post_process(CENTRED, [sample(0, None, 1.0), sample(0, None, 0.0)])[1] == [0.5, -0.5]


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.integers(1, 3)), min_size=2, max_size=8),
    st.randoms(use_true_random=False),
)
def test_the_cut_into_segments_changes_no_advantage(episodes, draw):
    whole = [sample(0, i, reward) for i, (reward, _) in enumerate(episodes)]
    cut = [sample(0, i, reward) for i, (reward, pieces) in enumerate(episodes) for _ in range(pieces)]
    draw.shuffle(cut)
    expected = dict(enumerate(post_process(SimpleNamespace(), whole)[1]))
    values = post_process(SimpleNamespace(), cut)[1]
    assert values == pytest.approx([expected[one.rollout_id] for one in cut], abs=1e-9)


def test_both_backends_give_the_same_advantages(recorded):
    turns = [[recorded.turn((1, 2), (3,))], [recorded.turn((1, 2), (4,)), recorded.turn((8, 2, 4), (5,))]]
    groups = [
        recorded.group(i, [recorded.episode(reward, turns[n % 2], sample_id=n) for n, reward in enumerate(rewards)])
        for i, rewards in enumerate([(1.0, 0.0, 0.5, 0.1), (0.0, 0.0, 0.0, 1.0), (0.5, 0.5, 0.5, 0.5)])
    ]
    lessons = [segment for group in groups for segment in lesson(group, OBJECTIVES["grpo"])]
    samples = [
        sample(fields["group_index"], fields["rollout_id"], fields["reward"])
        for group in groups
        for episode in group_samples(group, 4)
        for fields in episode
    ]
    values = post_process(SimpleNamespace(), samples)[1]
    assert [{value} for value in values] == [
        {told for told, sampled in zip(segment.advantages, segment.loss_mask) if sampled} for segment in lessons
    ]
