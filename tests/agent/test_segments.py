import pytest
from hypothesis import given
from hypothesis import strategies as st

from intraskill.agent.segments import segments
from intraskill.core.records import Episode, EpisodeJob, EpisodeStep, Turn

IDS = st.lists(st.integers(0, 9), max_size=5).map(tuple)
SAMPLED = st.lists(st.tuples(st.integers(0, 9), st.floats(-9, 0)), max_size=4)


def turn(prompt, sampled) -> Turn:
    ids, log_probs = tuple(i for i, _ in sampled), tuple(p for _, p in sampled)
    return Turn("", "", "", (), "stop", prompt_ids=tuple(prompt), token_ids=ids, log_probs=log_probs)


def episode(turns) -> Episode:
    steps = tuple(EpisodeStep(turn, None, None) for turn in turns)
    return Episode(EpisodeJob(1, 2, 3, "train"), "completed", (), None, (), steps, 0.0, False, {}, None)


def said(turns):
    return [(i, p) for turn in turns for i, p in zip(turn.token_ids, turn.log_probs)]


def learned(segment):
    return [(i, p) for i, p, mask in zip(segment.token_ids, segment.log_probs, segment.loss_mask, strict=True) if mask]


@given(IDS.filter(bool), st.lists(st.tuples(IDS, SAMPLED), min_size=1, max_size=6))
def test_growing_prompts_are_one_segment(prompt, rounds):
    turns, seen = [], prompt
    for new, sampled in rounds:
        seen += new
        turns.append(turn(seen, sampled))
        seen += turns[-1].token_ids
    found = segments(episode(turns), 5)
    if not said(turns):
        assert found == ()
        return
    (segment,) = found
    last = max(index for index, one in enumerate(turns) if one.token_ids)
    assert segment.token_ids == turns[last].prompt_ids + turns[last].token_ids
    assert learned(segment) == said(turns)
    assert segment.prompt_length == segment.loss_mask.index(1)
    assert (segment.episode_id, segment.group_index, segment.advantage) == ("task-000001__sample-002", 5, 0.0)


@given(st.lists(st.tuples(IDS.filter(bool), SAMPLED), max_size=6))
def test_every_sampled_token_is_learned_once_and_nothing_else(rounds):
    turns = [turn(prompt, sampled) for prompt, sampled in rounds]
    found = segments(episode(turns), 0)
    assert [pair for segment in found for pair in learned(segment)] == said(turns)
    for segment in found:
        assert len(segment.token_ids) == len(segment.loss_mask) == len(segment.log_probs)
        assert segment.loss_mask[segment.prompt_length] == 1
        assert not any(segment.loss_mask[: segment.prompt_length])
        assert all(p == 0.0 for p, mask in zip(segment.log_probs, segment.loss_mask) if not mask)


@given(st.lists(st.tuples(IDS.filter(bool), SAMPLED.filter(bool)), min_size=1, max_size=6))
def test_each_turn_was_sampled_after_exactly_its_prompt(rounds):
    """Whatever merges, the ids before a turn's sampled ids in its segment are the prompt that turn saw."""
    turns = [turn(prompt, sampled) for prompt, sampled in rounds]
    remaining = list(turns)
    for segment in segments(episode(turns), 0):
        while remaining:
            seen, ids = remaining[0].prompt_ids, remaining[0].token_ids
            end = len(seen) + len(ids)
            if segment.token_ids[:end] != seen + ids or segment.loss_mask[len(seen) : end] != (1,) * len(ids):
                break  # that turn must then be found in a later segment
            remaining.pop(0)
    assert remaining == []


def test_a_changed_prompt_forks():
    turns = [turn((1, 2), [(3, -0.1)]), turn((1, 2, 3, 4), [(5, -0.2)]), turn((9, 2, 3, 4, 5), [(6, -0.3)])]
    first, second = segments(episode(turns), 0)
    assert (first.token_ids, first.loss_mask) == ((1, 2, 3, 4, 5), (0, 0, 1, 0, 1))
    assert (second.token_ids, second.prompt_length, second.log_probs[-1]) == ((9, 2, 3, 4, 5, 6), 5, -0.3)


def test_a_shorter_prompt_forks():
    turns = [turn((1, 2), [(3, -0.1), (4, -0.1)]), turn((1, 2, 3), [(5, -0.2)])]
    assert len(segments(episode(turns), 0)) == 2


def test_turns_without_ids_cannot_be_trained_on():
    with pytest.raises(ValueError, match="text endpoint"):
        segments(episode([Turn("x", "x", "", (), "stop")]), 0)
    with pytest.raises(ValueError, match="log-probs"):
        segments(episode([Turn("x", "x", "", (), "stop", prompt_ids=(1,), token_ids=(2,))]), 0)
