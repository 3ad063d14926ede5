"""From an episode's turns to the token sequences a trainer learns from.

A turn's prompt and its sampled ids form one sequence. If the next turn's prompt begins with exactly that sequence,
the two turns are one growing sequence and become one **segment**: the ids in between (observations, feedback, an
end-of-turn token the model did not get to sample) are context, the sampled ids are learned from. If it does not (a
tool schema that changed, a template that re-renders history), a new segment begins. With static schemas an
episode is one segment.

The mask is 1 on sampled ids and nowhere else, and ids and log-probs are taken over as they are: nothing here can
encode text. Advantages are 0 until an objective sets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from intraskill.core.records import Episode, Segment, Turn


def segments(episode: Episode, group_index: int) -> tuple[Segment, ...]:
    """The episode's segments in order. Raises `ValueError` for turns that carry no token ids."""
    return tuple(
        _segment(run, episode.job.episode_id, group_index) for run in _contiguous(step.turn for step in episode.steps)
    )


def _contiguous(turns: Iterable[Turn]) -> Iterator[list[Turn]]:
    """Runs of turns in which each prompt begins with everything before it; turns without sampled ids teach nothing."""
    run: list[Turn] = []
    for turn in turns:
        _check(turn)
        if not turn.token_ids:
            continue
        if run and not _extends(turn, run[-1]):
            yield run
            run = []
        run.append(turn)
    if run:
        yield run


def _extends(turn: Turn, previous: Turn) -> bool:
    seen = previous.prompt_ids + previous.token_ids
    return turn.prompt_ids[: len(seen)] == seen


def _segment(run: list[Turn], episode_id: str, group_index: int) -> Segment:
    token_ids: list[int] = []
    loss_mask: list[int] = []
    log_probs: list[float] = []
    for turn in run:
        context = turn.prompt_ids[len(token_ids) :]
        token_ids += context + turn.token_ids
        loss_mask += [0] * len(context) + [1] * len(turn.token_ids)
        log_probs += [0.0] * len(context) + list(turn.log_probs)
    return Segment(
        episode_id=episode_id,
        group_index=group_index,
        token_ids=tuple(token_ids),
        loss_mask=tuple(loss_mask),
        log_probs=tuple(log_probs),
        prompt_length=len(run[0].prompt_ids),
        advantages=(0.0,) * len(token_ids),
    )


def _check(turn: Turn) -> None:
    if not turn.prompt_ids:
        raise ValueError("the turn carries no prompt ids; episodes of a text endpoint cannot be trained on")
    if len(turn.token_ids) != len(turn.log_probs):
        raise ValueError(f"{len(turn.token_ids)} sampled ids but {len(turn.log_probs)} log-probs")
