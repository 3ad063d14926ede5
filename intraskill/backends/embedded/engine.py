"""The embedded sampler as a token engine: asynchronous requests in, deterministic batches out.

Episodes are coroutines; each asks for a reply, acts, and asks again. The engine holds requests back until **every
open session has one pending**, then samples all of them in one batch turn, inline (two CPU cores have nothing better
to do meanwhile). Counting instead of waiting makes the batches, and so the rounding of every number, the same in
every run. A session that is slow or was forgotten must not block the others: after `patience_s` the batch goes
without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from intraskill.backends.embedded.lanes import Lanes, Request
from intraskill.core.records import Sampling
from intraskill.policies.token import Generation


class BatchEngine:
    """Serves replies from a frozen copy of a model's weights in the sampler's own type."""

    def __init__(
        self,
        model: PreTrainedModel,
        stop_ids: Collection[int],
        *,
        dtype: torch.dtype = torch.bfloat16,
        version: str = "0",
        patience_s: float = 1.0,
    ) -> None:
        self._lanes = Lanes(model, stop_ids, dtype)
        self._version = version
        self._patience_s = patience_s
        self._open: set[str] = set()
        self._pending: dict[str, tuple[Request, asyncio.Future[Generation]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._identity = {
            "backend": "torch",
            "architecture": type(model).__name__,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "dtype": str(dtype).removeprefix("torch."),
        }

    def load_weights(self, model: PreTrainedModel, version: str) -> None:
        """Sample from these weights from now on; all caches are dropped."""
        self._lanes.load_weights(model)
        self._version = version

    def open_session(self, session: str) -> None:
        """Announce an episode: batches wait for its requests."""
        self._open.add(session)

    def close_session(self, session: str) -> None:
        """Free the episode's cache; a request still pending ends as aborted."""
        self._open.discard(session)
        self._lanes.drop(session)
        request = self._pending.pop(session, None)
        if request is not None and not request[1].done():
            request[1].set_result(Generation((), (), "abort", self._version, 0))
        if self._pending:
            asyncio.get_running_loop().call_soon(self._run_if_complete)

    async def generate(
        self, prompt_ids: Sequence[int], *, sampling: Sampling, seed: int, session: str, group: str
    ) -> Generation:
        """Sample one reply. One request per session at a time. `group` only routes in other engines: here equal
        prompts are found by themselves."""
        if session in self._pending:
            raise ValueError(f"session {session!r} has a request pending already")
        loop = asyncio.get_running_loop()
        self._open.add(session)
        answer: asyncio.Future[Generation] = loop.create_future()
        self._pending[session] = (Request(session, tuple(prompt_ids), sampling, seed), answer)
        if self._timer is None:
            self._timer = loop.call_later(self._patience_s, self._run)
        loop.call_soon(self._run_if_complete)
        return await answer

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        """Log-probs at temperature 1 of `token_ids[1:]` under the current weights."""
        return self._lanes.score(token_ids)

    def identity(self) -> dict[str, Any]:
        """What decides the numbers of a sample, the weights' version included."""
        return {**self._identity, "weight_version": self._version}

    def _run_if_complete(self) -> None:
        if self._pending and len(self._pending) >= len(self._open):
            self._run()

    def _run(self) -> None:
        """Sample for everything that is pending and hand out the results."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch = [(request, answer) for request, answer in self._pending.values() if not answer.done()]
        self._pending = {}
        if not batch:
            return
        try:
            results = self._lanes.run([request for request, _ in batch], self._version)
        except Exception as error:  # handed to every waiting episode: each must learn that it gets no reply
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), result in zip(batch, results, strict=True):
            if not answer.done():  # an interrupt cancels the episodes while their batch is sampled
                answer.set_result(result)
