"""Everything that can be checked before a GPU is touched.

Four rounds run for a day; what would stop it in its tenth minute, or spoil it unnoticed, is looked for here
first. Every check is one function that yields problems; a problem is one line that says what, where and how to mend
it. `remaining` then says what there is to do: train, close the last round only, or nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from intraskill.assets import bank_path, model_directory
from intraskill.backends.slime.arguments import SlimeRunSettings
from intraskill.core.errors import IntraSkillError, UserError
from intraskill.families.registry import open_family
from intraskill.policies.chat import load_chat
from intraskill.policies.model_files import model_files, weight_files
from intraskill.report.wandb_sink import wandb_mode
from intraskill.skills.bank import read_bank
from intraskill.storage.documents import read_json
from intraskill.storage.fingerprint import describe_difference
from intraskill.storage.lock import lock_holder
from intraskill.storage.run_folder import RUN_SCHEMA, RunFolder
from intraskill.training.open_run import check_run
from intraskill.training.round import read_round

SUPPORTED_SLIME = ("624b824a898ab0ec1fcb4d373004c7f3852bf515",)  # version 0.3.1
SLIME_FILES = {  # SHA-256 of what we build on, for a slime without its git history
    "train.py": "1fcb0f4ad79177105d66f942ef31385f0c2a23810cc471d712e8f93c4eca8868",
    "slime/ray/rollout.py": "a54dea5e8e3c2ce4791c97bec795b4d78a423aa9f4f8adc9f8705b1475eb5b4e",
    "slime/rollout/base_types.py": "6195ae1d3f122e9b2fd3ed6b63f19aea239275ca79b47ee074babf2f8f2b3f40",
    "slime/rollout/data_source.py": "446595578aff88fac1637b8956a245853db1167e7964896bbab2fff61b1db616",
}
_BYTES_PER_WEIGHT_BYTE = 7  # bfloat16 weights on disk; a checkpoint adds float32 weights and Adam's two moments


@dataclass(frozen=True)
class Launch:
    """What the launcher is about to start. `model_copy` is the torch_dist directory, None to start from HF weights."""

    settings: SlimeRunSettings
    run: Path
    checkpoints: Path
    slime: Path
    megatron: Path | None
    model_copy: Path | None
    environment_url: str | None
    gpus: int
    train_tp: int
    rollout_tp: int
    save_interval: int


@dataclass(frozen=True)
class Remaining:
    """`num_rollout` is slime's argument of that name: the absolute number of steps, 0 to evaluate only."""

    action: Literal["train", "close", "done"]
    num_rollout: int
    checkpoint_step: int


def problems(launch: Launch) -> list[str]:
    """Every problem found, one line each; empty when it may start."""
    checks: tuple[Callable[[Launch], Iterator[str]], ...] = (
        _slime,
        _paths,
        _model,
        _topology,
        _method,
        _environment,
        _run_folder,
        _wandb,
        _disk,
    )
    found: list[str] = []
    for check in checks:
        try:
            found += check(launch)
        except IntraSkillError as error:
            found.append(str(error))
    return found


def remaining(launch: Launch) -> Remaining:
    """What is left to do, from the last checkpoint and the run folder."""
    settings = launch.settings
    target = settings.rounds * settings.steps_per_round
    step, state = checkpoint_step(launch.checkpoints), RunFolder(launch.run).read_state()
    if state.finished and step >= target:
        return Remaining("done", target, step)
    if step >= target:
        return Remaining("close", 0, step)
    return Remaining("train", target, step)


def checkpoint_step(directory: Path) -> int:
    """Steps finished at the last checkpoint (slime numbers them from 0); 0 without one."""
    tracker = directory / "latest_checkpointed_iteration.txt"
    if not tracker.is_file():
        return 0
    text = tracker.read_text(encoding="utf-8").strip()
    if not text.isdigit():
        raise UserError(f"{tracker} says {text!r}, not a number; put the number of the last complete checkpoint there")
    return int(text) + 1


def slime_commit(directory: Path) -> str | None:
    """The commit of a slime checkout; None without git history."""
    done = subprocess.run(
        ["git", "-C", str(directory), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    top = subprocess.run(
        ["git", "-C", str(directory), "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=False
    )
    own = top.returncode == 0 and Path(top.stdout.strip()).resolve() == directory.resolve()
    return done.stdout.strip() if own and done.returncode == 0 else None


def _slime(launch: Launch) -> Iterator[str]:
    if find_spec("slime") is None and not (launch.slime / "slime" / "__init__.py").exists():
        yield f"slime is not at {launch.slime}; clone it there, or set SLIME_DIR to its checkout"
        return
    if not (launch.slime / "train.py").is_file():
        yield f"{launch.slime} has no train.py; set SLIME_DIR to the root of a slime checkout"
        return
    commit = slime_commit(launch.slime)
    if commit in SUPPORTED_SLIME:
        return
    differing = [name for name, digest in SLIME_FILES.items() if _sha256(launch.slime / name) != digest]
    if differing:
        yield (
            f"slime at {launch.slime} is {commit or 'of an unknown commit'} and differs in {', '.join(differing)}; "
            f"check out {SUPPORTED_SLIME[-1][:8]}, the one this plugin was tried with"
        )


def _paths(launch: Launch) -> Iterator[str]:
    for name, path in (("MEGATRON_DIR", launch.megatron), ("MODEL_TORCH_DIST", launch.model_copy)):
        if path is not None and not path.is_dir():
            yield f"{name}: {path} is not a directory; correct the path (see launch/convert_checkpoint.md)"
    if launch.megatron is not None and not (launch.megatron / "megatron" / "training").is_dir():
        yield f"MEGATRON_DIR: {launch.megatron} has no megatron/training; give a checkout, not the megatron-core wheel"


def _model(launch: Launch) -> Iterator[str]:
    directory = model_directory(launch.settings.policy.model)
    weight_files(directory)
    config = read_json(directory / "config.json")
    positions = config.get("text_config", config).get("max_position_embeddings")
    if positions is not None and positions < launch.settings.slime.context_length:
        yield (
            f"slime.context_length is {launch.settings.slime.context_length}, but the model reads {positions} tokens "
            "at most; lower it, or every long episode is cut unseen"
        )
    chat = load_chat(directory)
    static = launch.settings.policy.tool_schema == "static"
    if not chat.prefix_preserving and not static:
        yield (
            "policy.tool_schema: this model's chat template drops earlier reasoning when it renders a conversation "
            "anew, so a dynamic schema shows the policy less than it said; use static"
        )


def _topology(launch: Launch) -> Iterator[str]:
    rollout, train = launch.settings.rollout, launch.settings.train
    for name, size in (("TRAIN_TP", launch.train_tp), ("ROLLOUT_TP", launch.rollout_tp)):
        if size < 1 or launch.gpus % size:
            yield f"{name} is {size}, which does not divide NUM_GPUS ({launch.gpus}); choose a divisor"
            return
    episodes = rollout.kept_groups * rollout.group_size
    if episodes % train.updates_per_step:
        yield f"{episodes} episodes a step cannot be cut into {train.updates_per_step} updates; change kept_groups"
    ranks = launch.gpus // launch.train_tp
    if (episodes // train.updates_per_step) % ranks:
        yield (
            f"global batch {episodes // train.updates_per_step} is not a multiple of the {ranks} data-parallel ranks "
            "(NUM_GPUS / TRAIN_TP); change TRAIN_TP"
        )
    if launch.save_interval < 1 or launch.settings.steps_per_round % launch.save_interval:
        yield (
            f"SAVE_INTERVAL is {launch.save_interval}; a round of {launch.settings.steps_per_round} steps must end "
            "with a checkpoint, so choose a divisor"
        )


def _method(launch: Launch) -> Iterator[str]:
    family = open_family(launch.settings.environment.offline(), launch.run.parent / ".worlds")
    check_run(launch.settings, family.splits(), read_bank(bank_path(launch.settings.bank)))
    yield from ()


def _environment(launch: Launch) -> Iterator[str]:
    environment = launch.settings.environment
    if launch.environment_url is not None:
        environment = environment.at(launch.environment_url)
    yield from environment.service_problems(launch.settings.slime.concurrency)


def _run_folder(launch: Launch) -> Iterator[str]:
    bank = read_bank(bank_path(launch.settings.bank))
    holder = lock_holder(launch.run)
    if holder is not None:
        yield f"{launch.run} is in use by process {holder}; wait for it to end, or stop it"
    step = checkpoint_step(launch.checkpoints)
    if not (launch.run / "run.json").exists():
        if step:
            yield (
                f"{launch.checkpoints} holds a checkpoint of step {step} but {launch.run} is no run folder; "
                "give the folder that belongs to it, or an empty checkpoint directory"
            )
        return
    recorded = read_json(launch.run / "run.json", RUN_SCHEMA)
    changes = describe_difference(recorded["semantic"]["settings"], launch.settings.method().semantic())
    if changes:
        yield f"{launch.run} belongs to a run with other settings ({'; '.join(changes)}); choose another name"
    meaning = recorded["semantic"]
    if meaning.get("bank_sha256", bank.sha256) != bank.sha256:
        yield f"bank: {launch.settings.bank} is not what {launch.run} began with; put it back, or choose another name"
    found = model_files(model_directory(launch.settings.policy.model))
    if exchanged := describe_difference(meaning.get("model", found), found):
        yield (
            f"policy.model is not the one {launch.run} began with ({'; '.join(exchanged)}); put it back, or choose "
            "another name"
        )
    state = RunFolder(launch.run).read_state()
    if state.opened and not state.finished:
        read_round(RunFolder(launch.run), state.rounds_closed, launch.settings.seed)
    if step > state.step:
        yield (
            f"{launch.checkpoints} is at step {step}, {launch.run} only at step {state.step}; they do not belong "
            "together: give the run folder of that checkpoint"
        )


def _wandb(launch: Launch) -> Iterator[str]:
    if wandb_mode(launch.settings.report) != "online":
        return
    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").split("//")[-1].split("/")[0]
    if not os.environ.get("WANDB_API_KEY") and not (Path.home() / ".netrc").exists():
        yield "W&B is online but there is no WANDB_API_KEY and no ~/.netrc; set one, or use offline"
    name, _, port = host.partition(":")
    try:
        socket.create_connection((name, int(port or 443)), timeout=5).close()
    except (OSError, ValueError) as error:
        yield f"W&B is online but {host} cannot be reached ({error}); use offline and sync later"


def _disk(launch: Launch) -> Iterator[str]:
    weights = sum(file.stat().st_size for file in weight_files(model_directory(launch.settings.policy.model)))
    left = launch.settings.rounds * launch.settings.steps_per_round - checkpoint_step(launch.checkpoints)
    needed = _BYTES_PER_WEIGHT_BYTE * weights * -(-max(0, left) // max(1, launch.save_interval))
    place = next(path for path in (launch.checkpoints, *launch.checkpoints.resolve().parents) if path.exists())
    free = shutil.disk_usage(place).free
    if free < needed:
        yield (
            f"{place} has {free / 1e9:.0f} GB free, the checkpoints still to come need about {needed / 1e9:.0f} GB; "
            "free space, or save less often (SAVE_INTERVAL)"
        )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
