"""Samples are the sampled tokens, exactly, and count episodes."""

import pytest

from intraskill.backends.slime.samples import episode_samples, group_samples, prefix_cache


def test_an_episode_with_one_growing_prompt_is_one_sample(recorded):
    turns = [recorded.turn((1, 2, 3), (10, 11)), recorded.turn((1, 2, 3, 10, 11, 4), (12,))]
    (sample,) = episode_samples(recorded.episode(1.0, turns), 5, 41)
    assert sample["tokens"] == [1, 2, 3, 10, 11, 4, 12]
    assert sample["response_length"] == 4
    assert sample["loss_mask"] == [1, 1, 0, 1]
    assert sample["rollout_log_probs"] == pytest.approx([-0.1, -0.2, 0.0, -0.1])
    assert (sample["group_index"], sample["rollout_id"], sample["reward"]) == (5, 41, 1.0)
    assert sample["status"] == "COMPLETED"


def test_a_changed_prefix_starts_a_new_sample_of_the_same_episode(recorded):
    turns = [recorded.turn((1, 2), (10,)), recorded.turn((9, 2, 10, 3), (11,))]
    first, second = episode_samples(recorded.episode(0.0, turns), 0, 7)
    assert first["rollout_id"] == second["rollout_id"] == 7
    assert first["index"] != second["index"]
    assert (first["tokens"], second["tokens"]) == ([1, 2, 10], [9, 2, 10, 3, 11])


def test_an_episode_without_sampled_tokens_keeps_its_place_and_teaches_nothing(recorded):
    (sample,) = episode_samples(recorded.episode(0.0, [recorded.turn((1, 2, 3), ())]), 0, 3)
    assert sample["loss_mask"] == [0]
    assert sample["remove_sample"]
    assert len(sample["tokens"]) > sample["response_length"] == len(sample["rollout_log_probs"])


def test_siblings_have_ids_of_their_own_across_groups(recorded):
    groups = [recorded.group(i, [recorded.episode(0.0, [recorded.turn((1, 2), (3,))])] * 4) for i in range(3)]
    ids = [sample["rollout_id"] for group in groups for episode in group_samples(group, 4) for sample in episode]
    assert ids == list(range(12))


def test_a_cut_episode_is_marked_and_still_scored(recorded):
    (sample,) = episode_samples(
        recorded.episode(0.0, [recorded.turn((1, 2), (3,))], termination="generation_length"), 0, 0
    )
    assert sample["status"] == "TRUNCATED"
    assert sample["reward"] == 0.0


def test_a_technical_failure_has_no_reward(recorded):
    (sample,) = episode_samples(recorded.episode(0.0, [recorded.turn((1, 2), (3,))], status="failed"), 0, 0)
    assert sample["reward"] is None


def test_the_prefix_cache_counts_all_turns(recorded):
    turns = [recorded.turn((1, 2), (3,)), recorded.turn((1, 2, 3, 4), (5,), cached=3)]
    assert prefix_cache(recorded.episode(0.0, turns)) == (3, 6)
