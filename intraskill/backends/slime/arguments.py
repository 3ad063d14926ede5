"""The two ways in: our settings file, and slime's argument namespace.

A run is described by one YAML file, the same as for the embedded backend with a `slime` section more. slime is told of
it through `--custom-config-path`, a small YAML file with the single key `intraskill` (`RunSpec`). Everything the file
decides about the method also exists as a slime argument, because slime's own trainer reads it there. `method_arguments`
is that translation; the launcher passes it on the command line, and `check_arguments` refuses a start whose arguments
say anything else, for example because somebody appended `--rollout-top-p 0.9`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from intraskill.core.errors import UserError
from intraskill.settings.files import load_settings_as
from intraskill.settings.models import RunSettings, Settings

PLUGIN = "intraskill.backends.slime"
CONFIG_KEY = "intraskill"


class SlimeSettings(Settings):
    """What only a run with inference servers needs to know."""

    context_length: int = Field(24576, ge=64, description="tokens of a whole episode at most; then it is cut")
    episode_timeout_s: float = Field(3600.0, gt=0, description="an episode that takes longer is a technical failure")
    concurrency: int = Field(256, ge=1, description="requests and environment slots in use at once")
    routing: Literal["group", "episode", "none"] = Field("group", description="what shares an engine's prefix cache")


class SlimeRunSettings(RunSettings):
    """A run's settings with the `slime` section."""

    slime: SlimeSettings = SlimeSettings()

    def method(self) -> RunSettings:
        """The part that both backends share; what run folders store."""
        return RunSettings.model_validate(self.model_dump(exclude={"slime"}))


class RunSpec(Settings):
    """What slime's custom configuration file says about us; `model` holds the hash of each of the model's files."""

    settings: Path
    run: Path
    overrides: tuple[str, ...] = ()
    environment_url: str | None = None
    model: dict[str, str]


def load_slime_settings(path: Path | str, overrides: Sequence[str] = ()) -> SlimeRunSettings:
    """Read and validate a settings file. Raises `UserError` naming file, line, key and remedy."""
    return load_settings_as(SlimeRunSettings, path, overrides)


def read_spec(args: Any) -> RunSpec:
    """The run's own part of slime's arguments. Raises `UserError` when slime was started without it."""
    found = getattr(args, CONFIG_KEY, None)
    if not isinstance(found, Mapping):
        raise UserError(
            f"--custom-config-path: the file has no `{CONFIG_KEY}` mapping; start it with launch/four_rounds.sh"
        )
    return RunSpec.model_validate(dict(found))


def method_arguments(settings: SlimeRunSettings) -> dict[str, Any]:
    """slime arguments (as attribute names) that follow from the settings."""
    rollout, train, sampling = settings.rollout, settings.train, settings.policy.sampling
    return {
        "rollout_function_path": f"{PLUGIN}.rollout.generate_rollout",
        "data_source_path": f"{PLUGIN}.data_source.TaskSource",
        "custom_reward_post_process_path": f"{PLUGIN}.rewards.post_process",
        "num_rollout": settings.rounds * settings.steps_per_round,
        "eval_interval": settings.steps_per_round,
        "rollout_batch_size": rollout.kept_groups,
        "n_samples_per_prompt": rollout.group_size,
        "over_sampling_batch_size": rollout.generated_groups,
        "global_batch_size": rollout.kept_groups * rollout.group_size // train.updates_per_step,
        "rollout_temperature": sampling.temperature,
        "rollout_top_p": sampling.top_p,
        "rollout_top_k": sampling.top_k,
        "rollout_max_response_len": sampling.max_tokens,
        "rollout_max_context_len": settings.slime.context_length,
        "rollout_seed": settings.seed,
        "advantage_estimator": "grpo",
        "eps_clip": train.clip_low,
        "eps_clip_high": train.clip_high,
        "lr": train.lr,
        "lr_decay_style": "constant",
        "lr_warmup_iters": train.warmup_updates,
        "adam_beta1": train.betas[0],
        "adam_beta2": train.betas[1],
        "weight_decay": train.weight_decay,
        "clip_grad": train.max_grad_norm,
        "use_rollout_logprobs": True,
        **(_kl_loss(train.kl_coef) if train.kl_coef else {}),
    }


def _kl_loss(coefficient: float) -> dict[str, Any]:
    """slime's default estimator is k1, whose gradient as a loss is 0 on average; `low_var_kl` is what we mean."""
    return {"use_kl_loss": True, "kl_loss_coef": coefficient, "kl_loss_type": "low_var_kl"}


def command_line(arguments: Mapping[str, Any]) -> list[str]:
    """Arguments as slime's parser takes them; a true flag is its name alone."""
    words: list[str] = []
    for name, value in arguments.items():
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(f"{value:g}" if isinstance(value, float) else str(value))
    return words


def check_arguments(args: Any, settings: SlimeRunSettings) -> None:
    """Raise `UserError` for the first slime argument that contradicts the settings file."""
    for name, wanted in method_arguments(settings).items():
        if not hasattr(args, name):  # an older or newer slime calls it differently, or not a full namespace
            continue
        found = getattr(args, name)
        closing = name == "num_rollout" and found == 0  # slime's way of asking for an evaluation only
        if not closing and not _same(found, wanted):
            raise UserError(
                f"--{name.replace('_', '-')} is {found!r} but the settings file means {wanted!r}; "
                "change the settings file, or leave the argument away"
            )


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and isinstance(found, (int, float)):
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-12)
    return bool(found == wanted)
