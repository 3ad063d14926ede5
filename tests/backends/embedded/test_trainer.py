"""The trainer against a plain per-sequence implementation of the same objective, and its edge cases."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from intraskill.backends.embedded.loss import policy_loss
from intraskill.backends.embedded.packing import micro_batches, pack, prompt_groups
from intraskill.backends.embedded.trainer import Trainer
from intraskill.core.errors import NotFinite
from intraskill.core.records import Segment
from intraskill.objectives.weights import token_weights
from intraskill.settings.models import TrainSettings

MakeGroup = Callable[..., list[Segment]]
TEMPERATURE = 0.7
NAMES = {
    "train/loss",
    "train/pg_loss",
    "train/grad_norm",
    "train/clip_fraction",
    "train/entropy",
    "train/ppo_kl",
    "train/train_rollout_logprob_abs_diff",
    "train/lr",
    "train/tokens",
    "train/skipped_updates",
}


def settings(**changes: object) -> TrainSettings:
    return TrainSettings(dtype="float32", **changes)  # type: ignore[arg-type]


def told(segment: Segment, value: float) -> Segment:
    """The segment with this advantage on each of its sampled tokens."""
    return replace(segment, advantages=tuple(value if sampled else 0.0 for sampled in segment.loss_mask))


def plain_loss(model: PreTrainedModel, segments: Sequence[Segment]) -> Tensor:
    """One forward per sequence, loss written as the formula says."""
    tokens: dict[tuple[int, str], int] = {}
    for segment in segments:
        attempt = segment.group_index, segment.episode_id
        tokens[attempt] = tokens.get(attempt, 0) + sum(segment.loss_mask)
    total = torch.zeros(())
    for segment in segments:
        ids = torch.tensor(segment.token_ids)
        logits = model(input_ids=ids[None], use_cache=False).logits[0]
        log_probs = torch.log_softmax(logits / TEMPERATURE, dim=-1)
        for at, sampled in enumerate(segment.loss_mask):
            if sampled:
                ratio = torch.exp(log_probs[at - 1, ids[at]] - segment.log_probs[at])
                gain = torch.minimum(ratio * segment.advantages[at], ratio.clamp(0.8, 1.28) * segment.advantages[at])
                total = total - gain / tokens[segment.group_index, segment.episode_id]
    return total / len(tokens)


def forked(group: list[Segment]) -> list[Segment]:
    """The first episode in two segments: its second one continues a longer prompt of its own."""
    first, *rest = group
    second = replace(
        first,
        token_ids=(*first.token_ids, 8, 9, 10, 11),
        loss_mask=(*[0] * len(first.token_ids), 0, 0, 1, 1),
        log_probs=(*[0.0] * len(first.token_ids), 0.0, 0.0, -2.5, -1.5),
        advantages=(*[0.0] * len(first.token_ids), 0.0, 0.0, 0.7, -1.3),
        prompt_length=len(first.token_ids) + 2,
    )
    return [first, second, *rest]


@pytest.mark.parametrize("budget", [10_000, 60])
def test_shared_prompts_change_neither_loss_nor_gradients(
    model: PreTrainedModel, make_group: MakeGroup, budget: int
) -> None:
    groups = [make_group(0, 1), forked(make_group(1, 2, siblings=3, prompt=14)), make_group(2, 3, siblings=1, prompt=4)]
    twin = copy.deepcopy(model)
    expected = plain_loss(twin, [segment for group in groups for segment in group])
    expected.backward()

    trainer = Trainer(
        model, settings(updates_per_step=1, lr=1e-12, max_grad_norm=1e9), temperature=TEMPERATURE, token_budget=budget
    )
    (metrics,) = trainer.step(groups)
    assert metrics["train/loss"] == pytest.approx(expected.item(), abs=1e-5)
    for (name, ours), theirs in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert ours.grad is not None, name
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4, msg=name)


def test_metrics_are_named_and_finite(qwen: PreTrainedModel, make_group: MakeGroup) -> None:
    trainer = Trainer(qwen, settings(updates_per_step=2, warmup_updates=4, lr=1e-3))
    first, second = trainer.step([make_group(i, i) for i in range(4)])
    assert set(first) == NAMES
    assert all(math.isfinite(value) for value in (*first.values(), *second.values()))
    assert (first["train/lr"], second["train/lr"]) == pytest.approx((0.25e-3, 0.5e-3))
    assert trainer.updates == 2


def test_parts_follow_the_order_of_groups(qwen: PreTrainedModel, make_group: MakeGroup) -> None:
    groups = [make_group(i, i) for i in range(5)]
    updates = Trainer(qwen, settings(updates_per_step=2)).step(groups)
    counts = [sum(sum(s.loss_mask) for s in group) for group in groups]
    assert [u["train/tokens"] for u in updates] == [sum(counts[:2]), sum(counts[2:])]


@pytest.mark.parametrize("kl_coef", [0.0, 0.1])
def test_an_update_without_signal_is_measured_counted_and_not_made(
    qwen: PreTrainedModel, make_group: MakeGroup, kl_coef: float
) -> None:
    """AdamW would go on along the momentum of the updates before it."""
    trainer = Trainer(qwen, settings(kl_coef=kl_coef, warmup_updates=9))
    trainer.step([make_group(i, i) for i in range(2)])
    before, moments = [p.detach().clone() for p in qwen.parameters()], copy.deepcopy(trainer.state_dict())
    flat = [[told(s, 0.0) for s in make_group(i, i)] for i in range(2)]
    mixed = trainer.step([flat[0], make_group(5, 5)])
    assert [metrics["train/skipped_updates"] for metrics in mixed] == [1.0, 0.0]
    trainer.load_state_dict(moments)
    for parameter, value in zip(qwen.parameters(), before, strict=True):
        parameter.data.copy_(value)

    for metrics in trainer.step(flat):
        assert all(math.isfinite(value) for value in metrics.values())
        assert metrics["train/skipped_updates"] == 1.0
        assert metrics["train/pg_loss"] == metrics["train/grad_norm"] == metrics["train/lr"] == 0.0
        assert metrics["train/entropy"] > 0
        assert metrics["train/tokens"] > 0
    assert all(torch.equal(old, new) for old, new in zip(before, qwen.parameters(), strict=True))
    assert trainer.updates == moments["updates"] == 2


@pytest.mark.parametrize(
    ("poison", "said"),
    [
        (lambda segment: told(segment, math.nan), r"update 1: the loss is nan"),
        (lambda segment: told(segment, math.inf), r"update 1: the loss is (nan|-?inf)"),
        (
            lambda segment: replace(segment, log_probs=tuple(-math.inf if m else 0.0 for m in segment.loss_mask)),
            r"update 1: the loss is (nan|-?inf)",
        ),
    ],
)
def test_a_loss_that_is_not_finite_stops_before_the_weights_move(
    qwen: PreTrainedModel, make_group: MakeGroup, poison: Callable[[Segment], Segment], said: str
) -> None:
    before = [p.detach().clone() for p in qwen.parameters()]
    group = [told(segment, -1.0) for segment in make_group(0, 0)]
    with pytest.raises(NotFinite, match=said):
        Trainer(qwen, settings()).step([[poison(group[0]), *group[1:]]])
    assert all(torch.equal(old, new) for old, new in zip(before, qwen.parameters(), strict=True))


def test_gradients_that_are_not_finite_stop_before_the_weights_move(
    qwen: PreTrainedModel, make_group: MakeGroup
) -> None:
    before = [p.detach().clone() for p in qwen.parameters()]
    qwen.lm_head.weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(NotFinite, match=r"update 1: the norm of the gradients is (nan|inf)"):
        Trainer(qwen, settings()).step([make_group(0, 0)])
    assert all(torch.equal(old, new) for old, new in zip(before, qwen.parameters(), strict=True))


def test_weights_that_an_update_breaks_are_named(qwen: PreTrainedModel, make_group: MakeGroup) -> None:
    with pytest.raises(NotFinite, match=r"update 1: model\.\S+weight holds numbers that are not finite"):
        Trainer(qwen, settings(lr=1e39)).step([make_group(0, 0)])


def test_the_kl_penalty_is_k3_of_which_a_token_counts_at_most_ten() -> None:
    now = torch.tensor([-1.0, -1.0, -1.0, -9.0], requires_grad=True)
    start = torch.tensor([-1.0, -0.5, -4.0, -1.0])
    terms = policy_loss(
        now,
        now.detach(),
        torch.zeros(4),
        torch.ones(4),
        clip_low=0.2,
        clip_high=0.28,
        reference_log_probs=start,
        kl_coef=0.5,
    )
    terms.total.backward()
    wanted = [0.0, math.exp(0.5) - 0.5 - 1, math.exp(-3) + 3 - 1, 10.0]
    assert terms.kl.item() == pytest.approx(sum(wanted), rel=1e-6)
    assert terms.total.item() == pytest.approx(0.5 * sum(wanted), rel=1e-6)
    slopes = [0.0, 1 - math.exp(0.5), 1 - math.exp(-3), 0.0]
    assert now.grad.tolist() == pytest.approx([0.5 * slope for slope in slopes], abs=1e-6)


def test_nothing_to_train_on_makes_no_update(qwen: PreTrainedModel, make_group: MakeGroup) -> None:
    assert Trainer(qwen, settings()).step([]) == []
    empty = [[replace(s, loss_mask=(0,) * len(s.token_ids)) for s in make_group(0, 0)]]
    assert Trainer(qwen, settings()).step(empty) == []


def test_training_raises_the_reward(qwen: PreTrainedModel, make_group: MakeGroup) -> None:
    """Tokens of the good half become likelier, those of the bad half less likely."""
    group = [told(s, 1.0 if i % 2 else -1.0) for i, s in enumerate(make_group(0, 5, siblings=6))]
    trainer = Trainer(qwen, settings(lr=1e-3, updates_per_step=1))

    def gap() -> float:
        packed = pack(prompt_groups(group), token_weights(group))
        with torch.no_grad():
            log_probs, _ = trainer.log_probs(packed)
        return float((log_probs * packed.advantages * packed.weights).sum())

    before = gap()
    own = [
        [replace(s, log_probs=tuple(_log_probs(trainer.model, s)))] for s in group
    ]  # sampled by this very model: ratios start at 1
    for _ in range(4):
        trainer.step([[s for g in own for s in g]])
    assert gap() > before + 0.1


def _log_probs(model: PreTrainedModel, segment: Segment) -> list[float]:
    ids = torch.tensor(segment.token_ids)
    with torch.no_grad():
        log_probs = torch.log_softmax(model(input_ids=ids[None], use_cache=False).logits[0], -1)
    return [float(log_probs[i - 1, ids[i]]) if m else 0.0 for i, m in enumerate(segment.loss_mask)]


def test_kl_penalty_holds_the_policy_near_its_start(make_group: MakeGroup, qwen: PreTrainedModel) -> None:
    free, held = copy.deepcopy(qwen), copy.deepcopy(qwen)
    group = [[replace(s, log_probs=tuple(_log_probs(qwen, s))) for s in make_group(0, 5)]]

    def distance(model: PreTrainedModel) -> float:
        pairs = zip(model.parameters(), qwen.parameters(), strict=True)
        return sum((a - b).pow(2).sum().item() for a, b in pairs)

    for model, coefficient in ((free, 0.0), (held, 5.0)):
        trainer = Trainer(model, settings(lr=1e-3, kl_coef=coefficient, updates_per_step=1))
        history = [trainer.step(group)[0] for _ in range(5)]
        if coefficient:
            assert history[0]["train/reference_kl"] == pytest.approx(0.0, abs=1e-6)
            assert history[-1]["train/reference_kl"] > 0
    assert distance(held) < distance(free)


def test_clip_fraction_counts_tokens_the_clip_silenced(qwen: PreTrainedModel, make_group: MakeGroup) -> None:
    group = make_group(0, 5)
    own = [replace(told(s, 1.0), log_probs=tuple(_log_probs(qwen, s))) for s in group]
    unlikely = [replace(s, log_probs=tuple(v - 1.0 if v else 0.0 for v in s.log_probs)) for s in own]
    likely = [replace(s, log_probs=tuple(v + 1.0 if v else 0.0 for v in s.log_probs)) for s in own]
    fractions = [
        Trainer(copy.deepcopy(qwen), settings(updates_per_step=1)).step([g])[0]["train/clip_fraction"]
        for g in (own, unlikely, likely)
    ]
    assert fractions == [0.0, 1.0, 0.0]


def test_micro_batches_keep_order_and_budget(make_group: MakeGroup) -> None:
    everything = [one for i in range(6) for one in prompt_groups(make_group(i, i))]
    for budget in (40, 80, 200, 10_000):
        batches = micro_batches(everything, budget)
        assert [s for b in batches for f in b for s in f.segments] == [s for f in everything for s in f.segments]
        for batch in batches:
            tails = [len(s.token_ids) - s.prompt_length - 1 for f in batch for s in f.segments]
            padded = 9 * len(batch) + max(tails) * len(tails)
            assert padded <= budget or len(tails) == 1
    assert len(micro_batches(everything, 10_000)) == 1
    assert len(micro_batches(everything, 80)) > 1


def test_the_same_step_gives_the_same_weights(model: PreTrainedModel, make_group: MakeGroup) -> None:
    twins = [copy.deepcopy(model) for _ in range(2)]
    for twin in twins:
        Trainer(twin, TrainSettings()).step([make_group(i, i) for i in range(4)])
    assert all(torch.equal(a, b) for a, b in zip(twins[0].parameters(), twins[1].parameters(), strict=True))
