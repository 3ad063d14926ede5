"""One episode to imitate, as training data: its tokens, and which of them are actions to learn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Demonstration:
    """`learned[i]` is true where `token_ids[i]` is an action to imitate.

    `floor` is the demonstrator's own surprise in nats, over all learned tokens: no model can do better.
    """

    task_id: str
    token_ids: np.ndarray  # int32
    learned: np.ndarray  # bool, same length
    floor: float
    success: bool
