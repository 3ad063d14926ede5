"""Training batches in which siblings share their prompt's computation.

Eight siblings start with the same prompt, often half of all tokens. A **prompt group** is a prompt and the **tails**
that continue it; the prompt is packed once, every tail attends to its keys and values, and gradients from all tails
flow back through them. The result equals running every sequence by itself, up to rounding.

A tail ends before its last sampled token (nothing needs that token as input). `targets[k]` is the k-th sampled token;
row `rows[k]` of the logits read predicts it, which for the first token of every tail is the shared prompt's last one.

Shapes are rounded up, by filler tokens at the end of tails and by logits that are read for nothing: see
`cache.py` for why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from intraskill.backends.embedded.attention import attend_padded, blocked, mask_bias
from intraskill.backends.embedded.cache import TOKEN_STEP, round_up
from intraskill.core.records import Segment
from intraskill.objectives.weights import Attempt, attempt_of

WIDTH_STEP = 16


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """Segments that continue one prompt."""

    prompt_ids: tuple[int, ...]
    segments: tuple[Segment, ...]

    @property
    def longest_tail(self) -> int:
        """What tails are padded to; batches of groups alike in it waste least."""
        return max(_input_length(segment) for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Pack:
    """One forward pass. `weights` are each sampled token's share of the loss, `advantages` what it is told."""

    input_ids: Tensor  # [N]
    positions: Tensor  # [N]
    rows: Tensor  # [M]
    targets: Tensor  # [M]
    sampled_log_probs: Tensor  # [M]
    advantages: Tensor  # [M]
    weights: Tensor  # [M]
    layout: SharedPromptLayout


def prompt_groups(segments: Sequence[Segment]) -> list[PromptGroup]:
    """Group segments by prompt, in order of first appearance; those without sampled tokens are left out."""
    by_prompt: dict[tuple[int, ...], list[Segment]] = {}
    for segment in segments:
        if any(segment.loss_mask):
            by_prompt.setdefault(segment.token_ids[: segment.prompt_length], []).append(segment)
    return [PromptGroup(prompt, tuple(members)) for prompt, members in by_prompt.items()]


def micro_batches(everything: Sequence[PromptGroup], token_budget: int) -> list[list[PromptGroup]]:
    """Cut into consecutive batches of at most `token_budget` cells, padding included.

    A prompt group beyond the budget is cut too (its prompt is then computed once per piece); one segment never is.
    """
    batches: list[list[PromptGroup]] = []
    for group in (piece for whole in everything for piece in _pieces(whole, token_budget)):
        if batches and _cells([*batches[-1], group]) <= token_budget:
            batches[-1].append(group)
        else:
            batches.append([group])
    return batches


def _pieces(group: PromptGroup, token_budget: int) -> list[PromptGroup]:
    pieces: list[PromptGroup] = []
    for segment in group.segments:
        grown = PromptGroup(group.prompt_ids, (*(pieces[-1].segments if pieces else ()), segment))
        if pieces and _cells([grown]) <= token_budget:
            pieces[-1] = grown
        else:
            pieces.append(PromptGroup(group.prompt_ids, (segment,)))
    return pieces


def _cells(batch: Sequence[PromptGroup]) -> int:
    """Size of the batch once prompts are padded to the longest prompt and tails to the longest tail."""
    tails = [_input_length(segment) for group in batch for segment in group.segments]
    return len(batch) * max(len(group.prompt_ids) for group in batch) + len(tails) * max(tails)


def pack(batch: Sequence[PromptGroup], weight_of: Mapping[Attempt, float]) -> Pack:
    """Lay prompt groups out one after the other: prompt, then its tails."""
    ids: list[int] = []
    positions: list[int] = []
    sampled: list[tuple[int, int, float, float, float]] = []  # source, target, log-prob, advantage, weight
    spans: list[tuple[int, int]] = []  # (start, length) of each prompt
    tails: list[tuple[int, int, int]] = []  # (prompt group, start, length)
    filler = iter(_filler(batch))
    for index, group in enumerate(batch):
        prompt = len(group.prompt_ids)
        spans.append((len(ids), prompt))
        last_of_prompt = len(ids) + prompt - 1
        ids.extend(group.prompt_ids)
        positions.extend(range(prompt))
        for segment in group.segments:
            start, length, unread = len(ids), _input_length(segment), next(filler)
            tails.append((index, start, length + unread))
            ids.extend((*segment.token_ids[prompt : prompt + length], *[0] * unread))
            positions.extend((*range(prompt, prompt + length), *[prompt] * unread))
            sampled += _sampled(segment, start, last_of_prompt, weight_of[attempt_of(segment)])
    source, target, log_prob, advantage, weights = (torch.tensor(column) for column in zip(*sampled, strict=True))
    keep, rows = _read(source, len(ids))
    layout = SharedPromptLayout(spans, tails, len(ids), keep)
    return Pack(torch.tensor(ids), torch.tensor(positions), rows, target, log_prob, advantage, weights, layout)


def _sampled(
    segment: Segment, start: int, last_of_prompt: int, weight: float
) -> list[tuple[int, int, float, float, float]]:
    """(predicting packed token, token, its log-prob when sampled, advantage, weight) of each sampled token."""
    return [
        (
            start + at - segment.prompt_length - 1 if at > segment.prompt_length else last_of_prompt,
            segment.token_ids[at],
            segment.log_probs[at],
            segment.advantages[at],
            weight,
        )
        for at in range(segment.prompt_length, len(segment.token_ids))
        if segment.loss_mask[at]
    ]


def _filler(batch: Sequence[PromptGroup]) -> list[int]:
    """Filler tokens for each tail: the batch becomes a multiple of TOKEN_STEP, no tail beyond the padded width."""
    lengths = [_input_length(segment) for group in batch for segment in group.segments]
    tokens = sum(lengths) + sum(len(group.prompt_ids) for group in batch)
    missing, width = round_up(tokens, TOKEN_STEP) - tokens, round_up(max(lengths), WIDTH_STEP)
    filler = []
    for length in lengths:
        filler.append(min(missing, width - length))
        missing -= filler[-1]
    return filler


def _read(source: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """Packed tokens whose logits are read (each once, filled up to a multiple of TOKEN_STEP), and where each is."""
    keep, rows = source.unique(return_inverse=True)
    others = torch.ones(tokens, dtype=torch.bool)
    others[keep] = False
    spare = others.nonzero()[:, 0][: round_up(len(keep), TOKEN_STEP) - len(keep)]
    return torch.cat([keep, spare]), rows


def _input_length(segment: Segment) -> int:
    """Tail tokens that some sampled token needs as input."""
    last = max(index for index, sampled in enumerate(segment.loss_mask) if sampled)
    return last - segment.prompt_length


class _Rearrange(torch.autograd.Function):
    """`rows[there]`, for a `there` in which every row that matters occurs once: backward is a gather too."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, there: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return rows.index_select(0, there)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (back,) = ctx.saved_tensors
        return gradients[0].index_select(0, back), None, None


class SharedPromptLayout:
    """Prompts attend causally within themselves; tails to their prompt and causally within themselves.

    `there` lists, for every cell of the padded prompts `[F, P]` and then of the padded tails `[B, T]`, the packed
    token it holds (cells of padding repeat token 0); `back` lists each packed token's cell.
    """

    def __init__(
        self, prompts: Sequence[tuple[int, int]], tails: Sequence[tuple[int, int, int]], tokens: int, keep: Tensor
    ) -> None:
        self.keep = keep
        self._groups, self._tails = len(prompts), len(tails)
        self._prompt_width = round_up(max(length for _, length in prompts), WIDTH_STEP)
        self._tail_width = round_up(max(length for _, _, length in tails), WIDTH_STEP)
        self._group_of_tail = torch.tensor([group for group, _, _ in tails])
        self._there = torch.zeros(self._prompt_cells + self._tails * self._tail_width, dtype=torch.long)
        self._back = torch.zeros(tokens, dtype=torch.long)
        for row, (start, length) in enumerate(prompts):
            self._place(start, length, row * self._prompt_width)
        for row, (_, start, length) in enumerate(tails):
            self._place(start, length, self._prompt_cells + row * self._tail_width)
        self._prompt_lengths = torch.tensor([length for _, length in prompts])[self._group_of_tail]
        self._bias: dict[tuple[torch.dtype, int | None], tuple[Tensor, Tensor]] = {}

    @property
    def _prompt_cells(self) -> int:
        return self._groups * self._prompt_width

    def _place(self, start: int, length: int, cell: int) -> None:
        self._there[cell : cell + length] = torch.arange(start, start + length)
        self._back[start : start + length] = torch.arange(cell, cell + length)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None) -> Tensor:
        query_prompt, query_tail = self._split(query)
        key_prompt, key_tail = (part.transpose(1, 2) for part in self._split(key))
        value_prompt, value_tail = (part.transpose(1, 2) for part in self._split(value))
        bias_prompt, bias_tail = self._biases(query.dtype, window)
        of_prompts = attend_padded(query_prompt, key_prompt, value_prompt, bias_prompt)
        heads, size = query.shape[1:]
        cells = [of_prompts.reshape(-1, heads * size)]
        if self._tail_width:
            keys = torch.cat([key_prompt.index_select(0, self._group_of_tail), key_tail], dim=2)
            values = torch.cat([value_prompt.index_select(0, self._group_of_tail), value_tail], dim=2)
            of_tails = attend_padded(query_tail, keys, values, bias_tail)
            cells.append(of_tails.reshape(-1, heads * size))
        return _Unpad.apply(torch.cat(cells), self._back, self._there).view(-1, heads, size)

    def _split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Packed `[N, h, D]` -> padded prompts `[F, P, h, D]` and tails `[B, T, h, D]`."""
        heads, size = rows.shape[1:]
        cells = _Rearrange.apply(rows.reshape(-1, heads * size), self._there, self._back)
        prompts, tails = cells[: self._prompt_cells], cells[self._prompt_cells :]
        return (
            prompts.view(self._groups, self._prompt_width, heads, size),
            tails.view(self._tails, self._tail_width, heads, size),
        )

    def _biases(self, dtype: torch.dtype, window: int | None) -> tuple[Tensor, Tensor]:
        """The masks of prompts (the same for all) and of tails."""
        if (dtype, window) not in self._bias:
            prompt = torch.arange(self._prompt_width)
            masks = blocked(prompt, prompt, window)[None], self._blocked_tails(window)
            self._bias[dtype, window] = mask_bias(masks[0], dtype), mask_bias(masks[1], dtype)
        return self._bias[dtype, window]

    def _blocked_tails(self, window: int | None) -> Tensor:
        """Columns of its prompt, then of itself, that each token of a tail may not look at `[B, T, P + T]`."""
        prompt, tail = torch.arange(self._prompt_width), torch.arange(self._tail_width)
        out_of_sight = blocked(self._prompt_lengths[:, None] + tail, prompt, window)
        padding = (prompt >= self._prompt_lengths[:, None])[:, None]
        own = blocked(tail, tail, window)[None].expand(self._tails, -1, -1)
        return torch.cat([out_of_sight | padding, own], dim=2)


class _Unpad(torch.autograd.Function):
    """`cells[back]`; backward puts each token's gradient into its cell and zeros into the padding."""

    @staticmethod
    def forward(ctx: Any, cells: Tensor, back: Tensor, there: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        ctx.cells = cells.shape[0]
        return cells.index_select(0, back)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (back,) = ctx.saved_tensors
        gradient = gradients[0]
        return gradient.new_zeros(ctx.cells, gradient.shape[1]).index_copy_(0, back, gradient), None, None
