"""One batch turn: many episodes' replies sampled together, each continuing its own cached sequence.

A **lane** is one open session and its row of the KV cache. A turn has two phases:

- *extend*: every lane gets the tokens its prompt has beyond what is cached. Sessions that start with the very same
  prompt (siblings of a group) compute it once; the others receive a copy of its keys and values. Work is cut into
  chunks of lanes with similarly many new tokens, small enough to bound memory;
- *decode*: one token per lane and forward pass, until each lane has sampled an end-of-turn token or reached its
  limit. Finished lanes idle along until a fraction is done, then they are moved behind the active ones.

The last sampled token of a reply is not cached yet; it is the first token of the next turn's extension. A prompt that
contradicts the cache keeps the part that agrees. A prompt that fills the model's context gets an empty reply.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from intraskill.backends.embedded.cache import DecodeLayout, ExtendLayout, LaneCache, round_lanes
from intraskill.backends.embedded.models import copy_model, copy_weights
from intraskill.backends.embedded.sampling import draw, uniforms
from intraskill.core.records import FinishReason, Sampling
from intraskill.policies.token import Generation

CHUNK_TOKENS = 2048  # packed tokens of one extension forward
IDLE_SHARE = 0.15  # finished lanes tolerated in a decode batch before they are moved away


@dataclass(frozen=True, slots=True)
class Request:
    """One reply to sample."""

    session: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int


@dataclass(slots=True)
class _Lane:
    """A request being served: where its row is, and what was sampled so far."""

    request: Request
    cached: int  # leading prompt tokens that need no computation
    noise: np.ndarray
    limit: int
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    finish: FinishReason | None = None

    @property
    def length(self) -> int:
        """Cached columns once the newest sampled token is fed."""
        return len(self.request.prompt_ids) + len(self.token_ids) - 1


class Lanes:
    """The sampler's weights, its KV cache, and which session owns which row."""

    def __init__(self, model: PreTrainedModel, stop_ids: Collection[int], dtype: torch.dtype) -> None:
        self._model = copy_model(model, dtype)
        self._stop_ids = frozenset(stop_ids)
        self._cache = LaneCache(model.config, dtype)
        self._rows: list[str | None] = []  # row -> session; None: free
        self._cached: dict[str, tuple[int, ...]] = {}  # session -> the ids its row holds
        self._longest: int = getattr(model.config, "max_position_embeddings", None) or 1 << 30

    def load_weights(self, model: PreTrainedModel) -> None:
        """Take over the trainer's weights; every cached key belongs to the old ones and is dropped."""
        copy_weights(model, self._model)
        self._rows, self._cached = [], {}
        self._cache.clear()

    def drop(self, session: str) -> None:
        """Free the session's row."""
        if self._cached.pop(session, None) is not None:
            self._rows[self._rows.index(session)] = None
        if not self._cached:
            self._rows = []
            self._cache.clear()

    @torch.inference_mode()
    def score(self, token_ids: Sequence[int]) -> list[float]:
        """Log-probs at temperature 1 of `token_ids[1:]`, each given what precedes it."""
        ids = torch.tensor(token_ids)
        logits = self._model(input_ids=ids[None, :-1], use_cache=False).logits[0].float()
        return torch.log_softmax(logits, dim=-1).gather(1, ids[1:, None])[:, 0].tolist()

    @torch.inference_mode()
    def run(self, requests: Sequence[Request], weight_version: str) -> list[Generation]:
        """Sample a reply to every request (distinct sessions) -> results in the same order."""
        everyone = [self._lane(request) for request in requests]
        lanes = {lane.request.session: lane for lane in everyone if lane.finish is None}
        if lanes:
            self._seat(list(lanes))
            self._decode(lanes, self._extend(lanes))
        for session, lane in lanes.items():
            self._cached[session] = (*lane.request.prompt_ids, *lane.token_ids[:-1])
        return [
            Generation(tuple(lane.token_ids), tuple(lane.log_probs), lane.finish or "stop", weight_version, lane.cached)
            for lane in everyone
        ]

    def _lane(self, request: Request) -> _Lane:
        prompt = request.prompt_ids
        if not prompt:
            raise ValueError(f"session {request.session!r}: empty prompt")
        held = self._cached.get(request.session, ())
        agreed = len(held) if prompt[: len(held)] == held else _common_prefix(held, prompt)
        limit = max(0, min(request.sampling.max_tokens, self._longest - len(prompt)))
        lane = _Lane(request, min(agreed, len(prompt) - 1), uniforms(request.seed, len(prompt), limit), limit)
        lane.finish = None if limit else "length"
        return lane

    def _seat(self, sessions: Sequence[str]) -> None:
        """Give new sessions rows, and make the asking sessions' rows the first ones."""
        free = [row for row, owner in enumerate(self._rows) if owner is None]
        for session in sessions:
            if session not in self._cached:
                if free:
                    self._rows[free.pop(0)] = session
                else:
                    self._rows.append(session)
                self._cached[session] = ()
        self._cache.reserve(len(self._rows), 0)
        self._bring_forward(set(sessions))
        while self._rows and self._rows[-1] is None:
            self._rows.pop()

    def _bring_forward(self, sessions: set[str]) -> None:
        """Swap rows so that `sessions` own exactly the first `len(sessions)` rows."""
        count = len(sessions)
        holes = [row for row in range(count) if self._rows[row] not in sessions]
        movers = [row for row in range(count, len(self._rows)) if self._rows[row] in sessions]
        self._cache.swap(holes, movers)
        for hole, mover in zip(holes, movers, strict=True):
            self._rows[hole], self._rows[mover] = self._rows[mover], self._rows[hole]

    def _extend(self, lanes: dict[str, _Lane]) -> Tensor:
        """Feed every lane's new prompt tokens -> logits of each row's last token `[n, vocabulary]`."""
        order = [lanes[session] for session in self._rows[: len(lanes)]]  # type: ignore[index]
        self._cache.reserve(len(order), max(len(lane.request.prompt_ids) for lane in order))
        first: dict[tuple[int, ...], int] = {}  # a fresh prompt -> the row that computes it
        leader = [
            first.setdefault(lane.request.prompt_ids, row) if lane.cached == 0 else row
            for row, lane in enumerate(order)
        ]
        fresh = [len(lane.request.prompt_ids) - lane.cached for lane in order]
        computing = [row for row in range(len(order)) if leader[row] == row]
        computing.sort(key=lambda row: fresh[row])  # like with like: attention pads to a chunk's longest
        logits: Tensor | None = None
        for chunk in _chunks(computing, [fresh[row] for row in computing]):
            part = self._extend_rows(chunk, [order[row] for row in chunk])
            if logits is None:
                logits = part.new_empty(len(order), part.shape[1])
            logits[chunk] = part
        assert logits is not None
        self._share_prompts(order, leader)
        return logits[leader]

    def _extend_rows(self, rows: list[int], lanes: list[_Lane]) -> Tensor:
        starts = [lane.cached for lane in lanes]
        fresh = [lane.request.prompt_ids[lane.cached :] for lane in lanes]
        layout = ExtendLayout(self._cache, rows, starts, [len(ids) for ids in fresh])
        ids = torch.zeros_like(layout.positions)
        tokens = torch.tensor([token for own in fresh for token in own])
        ids[: len(tokens)] = tokens
        return self._forward(ids, layout.positions, layout)[: len(rows)]

    def _share_prompts(self, order: list[_Lane], leader: list[int]) -> None:
        followers: dict[int, list[int]] = {}
        for row, computed in enumerate(leader):
            if row != computed:
                followers.setdefault(len(order[row].request.prompt_ids), []).append(row)
        for length, rows in followers.items():
            self._cache.copy([leader[row] for row in rows], rows, length)
            for row in rows:
                order[row].cached = length

    def _decode(self, lanes: dict[str, _Lane], logits: Tensor) -> None:
        """Sample until every lane is finished; `logits` belong to the first rows in order."""
        order = [lanes[session] for session in self._rows[: len(lanes)]]  # type: ignore[index]
        while True:
            self._sample(order, logits)
            active = [lane for lane in order if lane.finish is None]
            if not active:
                return
            if len(active) < (1 - IDLE_SHARE) * len(order):
                self._bring_forward({lane.request.session for lane in active})
                order = [lanes[session] for session in self._rows[: len(active)]]  # type: ignore[index]
            idle = [self._free_column(row, lanes) for row in range(len(order), round_lanes(len(order)))]
            position = torch.tensor([lane.length for lane in order] + idle)
            self._cache.reserve(len(position), int(position.max()) + 1)
            newest = torch.tensor([lane.token_ids[-1] for lane in order] + [0] * len(idle))
            logits = self._forward(newest, position, DecodeLayout(self._cache, position))[: len(order)]

    def _free_column(self, row: int, lanes: dict[str, _Lane]) -> int:
        """A column of a row that sits a step out, where the filler that is fed to it does no harm."""
        owner = self._rows[row] if row < len(self._rows) else None
        if owner is None:
            return 0
        return lanes[owner].length if owner in lanes else len(self._cached[owner])

    def _sample(self, order: list[_Lane], logits: Tensor) -> None:
        """Draw one token for each unfinished lane."""
        by_sampling: dict[Sampling, list[int]] = {}
        for row, lane in enumerate(order):
            if lane.finish is None:
                by_sampling.setdefault(lane.request.sampling, []).append(row)
        for sampling, rows in by_sampling.items():
            mine = [order[row] for row in rows]
            noise = torch.tensor([lane.noise[len(lane.token_ids)] for lane in mine], dtype=torch.float64)
            ids, log_probs = draw(logits if len(rows) == len(order) else logits[rows], noise, sampling)
            for lane, token, log_prob in zip(mine, ids.tolist(), log_probs.tolist(), strict=True):
                lane.token_ids.append(token)
                lane.log_probs.append(log_prob)
                if token in self._stop_ids:
                    lane.finish = "stop"
                elif len(lane.token_ids) == lane.limit:
                    lane.finish = "length"

    def _forward(self, ids: Tensor, positions: Tensor, layout: DecodeLayout | ExtendLayout) -> Tensor:
        """Packed forward -> float32 logits of the tokens the layout says are read."""
        output = self._model(
            input_ids=ids[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=0 if layout.keep is None else layout.keep,
            layout=layout,
        )
        return output.logits[0].float()


def _common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))


def _chunks(rows: list[int], counts: list[int]) -> list[list[int]]:
    """Cut rows, ascending in `counts`, into lists of at most CHUNK_TOKENS tokens padding included, in eights."""
    chunks: list[list[int]] = []
    for start in range(0, len(rows), 8):
        block = rows[start : start + 8]
        widest = counts[start + len(block) - 1]
        if chunks and widest * (len(chunks[-1]) + len(block)) <= CHUNK_TOKENS:
            chunks[-1] += block
        else:
            chunks.append(block)
    return chunks
