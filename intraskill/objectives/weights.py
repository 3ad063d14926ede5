"""What one sampled token's loss counts for in an update.

Every attempt counts the same, however long it is and however many segments it was cut into: the loss is the mean over
an attempt's sampled tokens, then the mean over attempts. An attempt is a sibling of a **group**: a task that occurs
twice in one update has two groups and twice as many attempts, although their episode ids are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from intraskill.core.records import Segment

Attempt = tuple[int, str]  # group index, episode id


def attempt_of(segment: Segment) -> Attempt:
    """The attempt a segment belongs to."""
    return segment.group_index, segment.episode_id


def token_weights(segments: Sequence[Segment]) -> Mapping[Attempt, float]:
    """The weight of each sampled token of an attempt; attempts without sampled tokens have none."""
    counts: dict[Attempt, int] = {}
    for segment in segments:
        counts[attempt_of(segment)] = counts.get(attempt_of(segment), 0) + sum(segment.loss_mask)
    trained = {attempt: count for attempt, count in counts.items() if count}
    return {attempt: 1.0 / (count * len(trained)) for attempt, count in trained.items()}
