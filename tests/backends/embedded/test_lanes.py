"""Batched sampling against the plain model: same distribution, whatever is cached, shared or batched together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from intraskill.backends.embedded.lanes import Lanes, Request
from intraskill.core.records import Sampling
from intraskill.policies.token import Generation

SAMPLING = Sampling(temperature=0.8, max_tokens=7)


def lanes_of(model: PreTrainedModel) -> Lanes:
    return Lanes(model, (1,), torch.float32)


def requests(count: int, groups: int = 3, seed: int = 0) -> list[Request]:
    rng = np.random.default_rng(seed)
    prompts = [tuple(int(i) for i in rng.integers(2, 97, rng.integers(3, 14))) for _ in range(groups)]
    return [Request(f"s{i}", prompts[i % groups], SAMPLING, seed=100 * seed + i) for i in range(count)]


def follow_up(request: Request, answer: Generation, observed: int) -> Request:
    ids = tuple(2 + (observed * 7 + k) % 90 for k in range(observed))
    return replace(request, prompt_ids=(*request.prompt_ids, *answer.token_ids, *ids))


def plain_log_probs(model: PreTrainedModel, request: Request, answer: Generation) -> list[float]:
    """What a forward over the whole sequence says about the sampled tokens."""
    ids = torch.tensor([*request.prompt_ids, *answer.token_ids])
    with torch.no_grad():
        logits = model(input_ids=ids[None, :-1], use_cache=False).logits[0, len(request.prompt_ids) - 1 :]
    log_probs = torch.log_softmax(logits.float() / (request.sampling.temperature or 1.0), dim=-1)
    return log_probs.gather(1, ids[len(request.prompt_ids) :, None])[:, 0].tolist()


def test_log_probs_equal_the_plain_forward_over_many_turns(model: PreTrainedModel) -> None:
    lanes, batch = lanes_of(model), requests(11)
    held: dict[str, int] = {}
    for turn in range(5):
        answers = lanes.run(batch, "v")
        for request, answer in zip(batch, answers, strict=True):
            assert answer.log_probs == pytest.approx(plain_log_probs(model, request, answer), abs=2e-5)
            assert 1 <= len(answer.token_ids) <= 7
            assert (answer.finish_reason == "stop") == (answer.token_ids[-1] == 1)
            if request.session in held:
                assert answer.cached_tokens == held[request.session]
            held[request.session] = len(request.prompt_ids) + len(answer.token_ids) - 1
        batch = [follow_up(r, a, 1 + (turn + i) % 6) for i, (r, a) in enumerate(zip(batch, answers, strict=True))]
        if turn == 2:  # some episodes end, others begin
            for request in batch[::3]:
                lanes.drop(request.session)
            del batch[::3]
            batch += [replace(request, session=f"late-{request.session}") for request in requests(3)]


def test_a_sample_does_not_depend_on_its_company(qwen: PreTrainedModel) -> None:
    batch = requests(9)
    together = lanes_of(qwen).run(batch, "v")
    backwards = lanes_of(qwen).run(batch[::-1], "v")[::-1]
    alone = [lanes_of(qwen).run([request], "v")[0] for request in batch]
    for one, two, three in zip(together, backwards, alone, strict=True):
        assert one.token_ids == two.token_ids == three.token_ids
        assert one.log_probs == pytest.approx(three.log_probs, abs=1e-5)


def test_the_same_run_gives_the_same_numbers(qwen: PreTrainedModel) -> None:
    assert lanes_of(qwen).run(requests(9), "v") == lanes_of(qwen).run(requests(9), "v")


def test_siblings_compute_their_prompt_once(qwen: PreTrainedModel) -> None:
    answers = lanes_of(qwen).run(requests(6, groups=2), "v")
    assert [answer.cached_tokens > 0 for answer in answers] == [False, False, True, True, True, True]


def test_a_prompt_that_contradicts_the_cache_is_computed_anew(qwen: PreTrainedModel) -> None:
    lanes = lanes_of(qwen)
    (request,) = requests(1)
    lanes.run([request], "v")
    changed = replace(request, prompt_ids=(*request.prompt_ids[:2], 50, 51, 52, 53))
    (answer,) = lanes.run([changed], "v")
    assert answer.cached_tokens == 2
    assert answer.log_probs == pytest.approx(plain_log_probs(qwen, changed, answer), abs=2e-5)


def test_greedy_takes_the_likeliest_token(qwen: PreTrainedModel) -> None:
    batch = [replace(r, sampling=Sampling(temperature=0.0, max_tokens=6)) for r in requests(5)]
    for request, answer in zip(batch, lanes_of(qwen).run(batch, "v"), strict=True):
        ids = list(request.prompt_ids)
        for token in answer.token_ids:
            with torch.no_grad():
                assert int(qwen(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()) == token
            ids.append(token)
        assert answer.log_probs == pytest.approx(plain_log_probs(qwen, request, answer), abs=2e-5)


def test_different_sampling_settings_share_a_batch(qwen: PreTrainedModel) -> None:
    batch = requests(4)
    batch[1] = replace(batch[1], sampling=Sampling(temperature=0.0, max_tokens=3))
    batch[2] = replace(batch[2], sampling=Sampling(temperature=2.0, max_tokens=12))
    together = lanes_of(qwen).run(batch, "v")
    assert [a.token_ids for a in together] == [lanes_of(qwen).run([r], "v")[0].token_ids for r in batch]


def test_a_full_context_is_answered_with_nothing(qwen: PreTrainedModel) -> None:
    full = Request("full", tuple([5] * 256), SAMPLING, 0)
    nearly = Request("nearly", tuple([5] * 254), SAMPLING, 0)
    empty, short = lanes_of(qwen).run([full, nearly], "v")
    assert (empty.token_ids, empty.finish_reason) == ((), "length")
    assert 1 <= len(short.token_ids) <= 2


def test_new_weights_drop_every_cache(qwen: PreTrainedModel) -> None:
    lanes = lanes_of(qwen)
    batch = requests(4)
    answers = lanes.run(batch, "v")
    with torch.no_grad():
        for parameter in qwen.parameters():
            parameter.mul_(1.1)
    lanes.load_weights(qwen)
    batch = [follow_up(r, a, 3) for r, a in zip(batch, answers, strict=True)]
    for request, answer in zip(batch, lanes.run(batch, "w"), strict=True):
        assert answer.cached_tokens == 0
        assert answer.weight_version == "w"
        assert answer.log_probs == pytest.approx(plain_log_probs(qwen, request, answer), abs=2e-5)


def test_score_is_the_plain_log_prob(model: PreTrainedModel) -> None:
    ids = [5, 9, 33, 2, 60]
    with torch.no_grad():
        expected = torch.log_softmax(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0], -1)
    scores = lanes_of(model).score(ids)
    assert scores == pytest.approx([float(expected[i, ids[i + 1]]) for i in range(4)], abs=1e-5)
