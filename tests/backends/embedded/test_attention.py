"""The packed attention function against the model library's own eager attention."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel


def test_without_a_layout_it_is_plain_causal_attention(model: PreTrainedModel) -> None:
    eager = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32, attn_implementation="eager")
    eager.load_state_dict(model.state_dict())
    ids = torch.randint(2, 97, (3, 17), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours, theirs = (m.eval()(input_ids=ids, use_cache=False).logits for m in (model, eager))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
