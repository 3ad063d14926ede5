"""Settings and slime's arguments say the same thing, or the job does not start."""

import argparse
from pathlib import Path
from types import SimpleNamespace

import pytest

from intraskill.backends.slime.arguments import (
    SlimeRunSettings,
    check_arguments,
    command_line,
    load_slime_settings,
    method_arguments,
    read_spec,
)
from intraskill.core.errors import UserError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def published_settings():
    return load_slime_settings(ROOT / "configs" / "qwen35_4b_4gpu.yaml")


def test_the_published_settings_are_the_frozen_ones(published_settings):
    found = method_arguments(published_settings)
    frozen = {
        "num_rollout": 80,
        "eval_interval": 20,
        "rollout_batch_size": 16,
        "n_samples_per_prompt": 8,
        "over_sampling_batch_size": 32,
        "global_batch_size": 64,
        "rollout_temperature": 0.6,
        "rollout_top_p": 1.0,
        "rollout_top_k": -1,
        "rollout_max_response_len": 4096,
        "rollout_max_context_len": 24576,
        "lr": 1e-6,
        "lr_decay_style": "constant",
        "eps_clip": 0.2,
        "eps_clip_high": 0.28,
    }
    assert {name: found[name] for name in frozen} == frozen
    settings = published_settings
    assert (settings.gate.tasks, settings.gate.budget, settings.gate.candidates) == (400, 10, 6)
    assert (settings.curriculum.q, settings.curriculum.rho_min, settings.curriculum.rho_max) == (0.2, 0.2, 0.9)
    assert settings.environment.max_steps == 30


def test_a_flag_is_its_name_alone():
    words = command_line({"use_rollout_logprobs": True, "lr": 1e-6, "eval_interval": 20, "x_path": "a.b"})
    assert words == ["--use-rollout-logprobs", "--lr", "1e-06", "--eval-interval", "20", "--x-path", "a.b"]


def test_numbers_survive_the_command_line(published_settings):
    wanted = method_arguments(published_settings)
    parser = argparse.ArgumentParser()
    for name, value in wanted.items():
        options = {"action": "store_true"} if value is True else {"type": type(value)}
        parser.add_argument(f"--{name.replace('_', '-')}", **options)
    check_arguments(parser.parse_args(command_line(wanted)), published_settings)


@pytest.mark.parametrize(("name", "value"), [("rollout_top_p", 0.9), ("n_samples_per_prompt", 4), ("lr", 2e-6)])
def test_a_contradiction_names_the_argument(published_settings, name, value):
    args = SimpleNamespace(**{**method_arguments(published_settings), name: value})
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} is {value}"):
        check_arguments(args, published_settings)


def test_an_evaluation_only_job_may_have_no_rollouts(published_settings):
    check_arguments(SimpleNamespace(**{**method_arguments(published_settings), "num_rollout": 0}), published_settings)


def test_a_job_without_our_configuration_is_refused():
    with pytest.raises(UserError, match=r"four_rounds\.sh"):
        read_spec(SimpleNamespace())


def with_kl(settings: SlimeRunSettings, coefficient: float) -> SlimeRunSettings:
    return settings.model_copy(update={"train": settings.train.model_copy(update={"kl_coef": coefficient})})


def test_a_kl_penalty_names_its_estimator(published_settings):
    """slime's own default is k1, which is no loss: its gradient is 0 on average."""
    assert not any("kl" in name for name in method_arguments(published_settings))
    found = method_arguments(with_kl(published_settings, 0.05))
    assert (found["use_kl_loss"], found["kl_loss_coef"], found["kl_loss_type"]) == (True, 0.05, "low_var_kl")


@pytest.mark.slime
def test_slime_computes_the_penalty_that_the_embedded_trainer_computes(published_settings):
    torch = pytest.importorskip("torch")
    slime_losses = pytest.importorskip("slime.utils.ppo_utils")
    from intraskill.backends.embedded.loss import policy_loss

    kind = method_arguments(with_kl(published_settings, 1.0))["kl_loss_type"]
    start = torch.tensor([-1.0, -0.5, -4.0, -1.0, -0.01])
    gradients, values = [], []
    for of_slime in (True, False):
        now = torch.tensor([-1.0, -1.0, -1.0, -9.0, -2.0], requires_grad=True)
        if of_slime:
            penalty = slime_losses.compute_approx_kl(now, start, kl_loss_type=kind).sum()
        else:
            still, zeros, ones = now.detach(), torch.zeros(5), torch.ones(5)
            limits = {"clip_low": 0.2, "clip_high": 0.28}
            penalty = policy_loss(now, still, zeros, ones, **limits, reference_log_probs=start, kl_coef=1.0).total
        penalty.backward()
        gradients.append(now.grad.tolist())
        values.append(penalty.item())
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    assert gradients[0] == pytest.approx(gradients[1], abs=1e-6)
