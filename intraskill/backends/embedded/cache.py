"""The KV cache: one row per open session, laid out so that attention never copies it.

Batched matrix products want keys that lie contiguously in memory; a slice of a larger buffer is copied first, once
per layer and token, which can cost a third of all decoding time. Hence two rules:

- every layer's keys and values fill a buffer `[rows, K, capacity, D]` **completely** as far as attention sees it: it
  looks at the whole capacity and masks what a row has not written yet. Capacity grows in steps of 32 columns;
- the rows that take part in a forward pass are always the **first** n rows, so a batch is a leading slice, which is
  contiguous. The owner swaps rows to make that so, only those that are out of place.

Shapes are rounded up throughout (columns, lanes, packed tokens): the matrix library compiles and keeps a kernel of
about a megabyte for every new shape, which costs more time than the padding and never ends when lengths vary freely.

Rows beyond their session's length may hold stale numbers, never NaN: buffers start as zeros, and a masked column has
probability exactly 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PretrainedConfig

from intraskill.backends.embedded.attention import attend_padded, blocked, mask_bias

COLUMN_STEP = 32
WIDTH_STEP = 8  # new tokens of a lane
TOKEN_STEP = 64  # packed tokens of a forward pass


def round_up(number: int, step: int) -> int:
    return -(-number // step) * step


def round_lanes(lanes: int) -> int:
    """Lanes of a batch, the idle ones it is filled up with included."""
    return round_up(lanes, 8 if lanes <= 64 else 32)


class LaneCache:
    """Keys and values of many sequences. Rows are dense: 0..`rows`-1 are in use, in an order the owner keeps."""

    def __init__(self, config: PretrainedConfig, dtype: torch.dtype) -> None:
        heads = config.num_attention_heads
        self.kv_heads: int = getattr(config, "num_key_value_heads", None) or heads
        self.head_size: int = getattr(config, "head_dim", None) or config.hidden_size // heads
        self._layers: int = config.num_hidden_layers
        self._dtype = dtype
        self.clear()

    def clear(self) -> None:
        """Forget everything and give the memory back."""
        empty = torch.zeros(0, self.kv_heads, 0, self.head_size, dtype=self._dtype)
        self.keys: list[Tensor] = [empty] * self._layers
        self.values: list[Tensor] = [empty] * self._layers

    @property
    def capacity(self) -> int:
        """Columns every row has room for."""
        return self.keys[0].shape[2]

    def reserve(self, rows: int, columns: int) -> None:
        """Make room; what is stored stays."""
        held = self.keys[0].shape[0]
        new_rows = max(held, round_lanes(rows))
        new_columns = max(self.capacity, round_up(columns, COLUMN_STEP))
        if (new_rows, new_columns) == (held, self.capacity):
            return
        for buffers in (self.keys, self.values):
            for layer, old in enumerate(buffers):
                new = old.new_empty(new_rows, self.kv_heads, new_columns, self.head_size)
                new[:held, :, : old.shape[2]] = old
                new[:held, :, old.shape[2] :] = 0
                new[held:] = 0
                buffers[layer] = new

    def swap(self, left: Sequence[int], right: Sequence[int]) -> None:
        """Exchange the contents of rows pairwise; the two lists are disjoint."""
        if not left:
            return
        there, back = torch.tensor([*left, *right]), torch.tensor([*right, *left])
        for buffer in (*self.keys, *self.values):
            buffer.index_copy_(0, there, buffer.index_select(0, back))

    def copy(self, source: Sequence[int], target: Sequence[int], columns: int) -> None:
        """Copy the first columns of some rows over other rows (a shared prompt to the siblings)."""
        if not source:
            return
        origin, goal = torch.tensor(source), torch.tensor(target)
        for buffer in (*self.keys, *self.values):
            buffer[goal, :, :columns] = buffer[:, :, :columns].index_select(0, origin)


class _Masks:
    """What tokens at `positions` `[B, T]` may look at in their rows of the cache, for each window of the model."""

    def __init__(self, cache: LaneCache, positions: Tensor) -> None:
        self._positions, self._columns = positions, torch.arange(cache.capacity)
        self._dtype = cache.keys[0].dtype
        self._biases: dict[int | None, Tensor] = {}

    def bias(self, window: int | None) -> Tensor:
        if window not in self._biases:
            self._biases[window] = mask_bias(blocked(self._positions, self._columns, window), self._dtype)
        return self._biases[window]


class DecodeLayout:
    """One new token for each of the first n rows."""

    keep = None

    def __init__(self, cache: LaneCache, positions: Tensor) -> None:
        self._cache = cache
        self._lanes = positions.shape[0]
        kv_heads, capacity = cache.kv_heads, cache.capacity
        row_heads = torch.arange(self._lanes * kv_heads).view(self._lanes, kv_heads)
        self._slots = (row_heads * capacity + positions[:, None]).reshape(-1)
        self._masks = _Masks(cache, positions[:, None])

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None) -> Tensor:
        size, lanes = self._cache.head_size, self._lanes
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        keys.view(-1, size).index_copy_(0, self._slots, key.reshape(-1, size))
        values.view(-1, size).index_copy_(0, self._slots, value.reshape(-1, size))
        return attend_padded(query[:, None], keys[:lanes], values[:lanes], self._masks.bias(window))[:, 0]


class ExtendLayout:
    """Several new tokens, a different number for each of the rows `rows`.

    `starts[i]` columns of `rows[i]` are filled already, `counts[i]` tokens are new; the packed tokens come row after
    row, then filler up to the length of `positions`. Each row's last token is read (first in `keep`, then filler).
    Rows that follow each other are used in place, others are gathered.
    """

    def __init__(self, cache: LaneCache, rows: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> None:
        self._cache = cache
        self._width = round_up(max(counts), WIDTH_STEP)
        self._tokens = sum(counts)
        filler = round_up(self._tokens, TOKEN_STEP) - self._tokens
        start, count = torch.tensor(starts), torch.tensor(counts)
        offset = torch.arange(self._width)
        real = offset < count[:, None]  # [rows, width]
        packed = (torch.cumsum(count, 0) - count)[:, None] + offset
        columns = start[:, None] + offset
        row_heads = torch.tensor(rows)[:, None] * cache.kv_heads + torch.arange(cache.kv_heads)
        self._slots = row_heads.repeat_interleave(count, 0) * cache.capacity + columns[real][:, None]
        self._slots = self._slots.reshape(-1)
        self.positions = F.pad(columns[real], (0, filler))

        idle = round_lanes(len(rows)) - len(rows)
        self._first = rows[0] if not idle and list(rows) == list(range(rows[0], rows[0] + len(rows))) else None
        self._rows = torch.tensor([*rows, *[rows[0]] * idle])
        self._pad = F.pad(torch.where(real, packed, 0), (0, 0, 0, idle)).reshape(-1)
        self._unpad = F.pad(real.reshape(-1).nonzero()[:, 0], (0, filler))
        self.keep = F.pad(torch.cumsum(count, 0) - 1, (0, idle))
        self._masks = _Masks(cache, F.pad(torch.where(real, columns, 0), (0, 0, 0, idle)))

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None) -> Tensor:
        size, cache = self._cache.head_size, self._cache
        keys, values = cache.keys[layer], cache.values[layer]
        keys.view(-1, size).index_copy_(0, self._slots, key[: self._tokens].reshape(-1, size))
        values.view(-1, size).index_copy_(0, self._slots, value[: self._tokens].reshape(-1, size))
        heads = query.shape[1]
        padded = query.reshape(-1, heads * size).index_select(0, self._pad).view(-1, self._width, heads, size)
        mixed = attend_padded(padded, self._own(keys), self._own(values), self._masks.bias(window))
        return mixed.reshape(-1, heads * size).index_select(0, self._unpad).view(-1, heads, size)

    def _own(self, buffer: Tensor) -> Tensor:
        if self._first is not None:
            return buffer[self._first : self._first + self._rows.shape[0]]
        return buffer.index_select(0, self._rows)
