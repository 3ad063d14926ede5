"""Skipping the last feed-forward block for tokens nobody reads changes nothing that is read."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from intraskill.backends.embedded.cache import ExtendLayout, LaneCache


def test_read_tokens_are_exact_and_others_skip_the_block(model: PreTrainedModel) -> None:
    ids = torch.randint(2, 97, (1, 12), generator=torch.Generator().manual_seed(1))
    seen: list[int] = []
    model.base_model.layers[-1].mlp.down_proj.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
    cache = LaneCache(model.config, torch.float32)
    cache.reserve(2, 8)
    layout = ExtendLayout(cache, [0, 1], [0, 0], [7, 5])
    with torch.no_grad():
        filled = torch.nn.functional.pad(ids, (0, len(layout.positions) - 12))
        packed = model(input_ids=filled, position_ids=layout.positions[None], use_cache=False, layout=layout).logits[0]
        plain = [model(input_ids=part, use_cache=False).logits[0] for part in (ids[:, :7], ids[:, 7:])]
    assert seen == [len(layout.keep), 7, 5] == [8, 7, 5]
    torch.testing.assert_close(packed[[6, 11]], torch.stack([plain[0][-1], plain[1][-1]]), atol=1e-5, rtol=1e-4)
