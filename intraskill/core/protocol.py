"""The two seams of the agent loop: where it acts (`Environment`) and who answers (`Policy`).

Both are async because real ones wait for a network. Implementations share one contract suite each, under
`tests/contracts/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from intraskill.core.records import Limit, Reset, StepResult, Turn, TurnRequest


@runtime_checkable
class Environment(Protocol):
    """One episode's environment. Raises `EnvironmentUnavailable` when it cannot answer."""

    async def reset(self, task_id: str) -> Reset:
        """Start the task. Raises `UserError` when the task id is unknown."""

    async def step(self, action: str) -> StepResult:
        """Execute an action as the family writes it; an invalid one is answered, not raised."""

    async def terminate(self, reason: Limit) -> StepResult:
        """End the episode with the standard zero-reward terminal; the agent loop has hit a limit."""

    async def close(self) -> None:
        """Give the slot back. Safe to call twice."""

    def identity(self) -> dict[str, Any]:
        """Versions and settings that decide what an episode means (part of every fingerprint)."""


@runtime_checkable
class Policy(Protocol):
    """A sampled language model. Raises `PolicyUnavailable` when it cannot answer after its own retries."""

    async def generate(self, request: TurnRequest) -> Turn:
        """Sample one reply."""

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        """Log-probs (nats, temperature 1) of `token_ids[1:]` given what precedes each; length len(token_ids) - 1."""

    def open_session(self, session: str) -> None:
        """Announce an episode that will ask for turns; lets a batching engine wait for all of them."""

    def close_session(self, session: str) -> None:
        """The episode will ask for no more turns; its cache may go, its running request is aborted."""

    def identity(self) -> dict[str, Any]:
        """Model, weights, tokenizer and sampling-relevant settings (part of every fingerprint)."""
