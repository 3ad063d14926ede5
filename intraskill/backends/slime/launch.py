"""slime's command line for one run: what the settings decide, and where its files are.

How the work is spread over GPUs and memory is not here but in `launch/four_rounds.sh`, where a user of slime looks for
it and changes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from intraskill.assets import model_directory
from intraskill.backends.slime.arguments import CONFIG_KEY, command_line, method_arguments
from intraskill.backends.slime.preflight import Launch, remaining
from intraskill.policies.model_files import model_files
from intraskill.report.wandb_sink import wandb_mode
from intraskill.storage.documents import write_bytes_atomic


def wandb_run_id(launch: Launch) -> str:
    """The W&B run that every start of this run folder continues."""
    return f"{launch.settings.name[:40]}-{hashlib.sha256(str(launch.run).encode()).hexdigest()[:8]}"


def run_arguments(launch: Launch, config: Path) -> list[str]:
    """All words that follow from the run; `config` is the absolute path of its settings file."""
    settings, model = launch.settings, model_directory(launch.settings.policy.model).resolve()
    start = str(launch.model_copy.resolve()) if launch.model_copy else str(model)
    places: dict[str, Any] = {
        "hf_checkpoint": model,
        "ref_load": start,
        "load": launch.checkpoints,
        "save": launch.checkpoints,
        "save_interval": launch.save_interval,
        "custom_config_path": launch.run / "slime.yaml",
    }
    method = {**method_arguments(settings), "num_rollout": remaining(launch).num_rollout}
    words = command_line({**method, **places})
    words += ["--eval-prompt-data", "validation", str(config)]  # slime wants a data set; the plugin has its own
    if (mode := wandb_mode(settings.report)) != "disabled":
        words += command_line(
            {
                "use_wandb": True,
                "wandb_mode": mode,
                "wandb_project": settings.report.project,
                "wandb_group": settings.name,
                "disable_wandb_random_suffix": True,
                "wandb_dir": launch.run / "wandb",
            }
        )
    return words


def write_run_file(config: Path, overrides: Sequence[str], run: Path, environment_url: str | None, model: Path) -> Path:
    """RUN/slime.yaml: the file that `--custom-config-path` names; `model` is the model's directory."""
    entry: dict[str, Any] = {"settings": str(config.resolve()), "run": str(run), "model": model_files(model)}
    if overrides:
        entry["overrides"] = list(overrides)
    if environment_url:
        entry["environment_url"] = environment_url
    path = run / "slime.yaml"
    write_bytes_atomic(path, yaml.safe_dump({CONFIG_KEY: entry}, sort_keys=False).encode())
    return path
