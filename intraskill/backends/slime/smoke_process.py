"""The smoke run's job process: slime's own `train.train`, with another trainer and without Megatron's parser.

    python -m intraskill.backends.slime.smoke_process SLIME_ARGUMENTS

slime's arguments are parsed by slime's own parser for them; what Megatron's would add is not needed here.
"""

from __future__ import annotations

import argparse
import functools
import sys
from typing import Any

from intraskill.backends.slime.smoke_cpu import register


def parse(words: list[str]) -> Any:
    """slime's namespace for these words, validated by slime."""
    from slime.backends.sglang_utils.arguments import sglang_parse_args
    from slime.backends.sglang_utils.arguments import validate_args as validate_sglang
    from slime.utils.arguments import get_slime_extra_args_provider, slime_validate_args

    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name, kind in (("adam-beta1", float), ("adam-beta2", float), ("weight-decay", float), ("lr-decay-style", str)):
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--lr-warmup-iters", type=int)
    parser = get_slime_extra_args_provider()(parser)
    args, _ = parser.parse_known_args(words)
    sys.argv = [sys.argv[0], *words]
    for name, value in {**vars(sglang_parse_args()), **_PREPARSED, **_OF_MEGATRON}.items():
        if not hasattr(args, name) or name in _PREPARSED:
            setattr(args, name, value)
    slime_validate_args(args)
    validate_sglang(args)
    return args


def main() -> None:
    register()
    args = parse(sys.argv[1:])
    import ray
    import train as slime_train  # slime's own script; its checkout is on PYTHONPATH
    from slime.ray.placement_group import create_training_models

    from intraskill.backends.slime.smoke_actor import EmbeddedTrainActor

    slime_train.create_training_models = functools.partial(create_training_models, actor_cls=EmbeddedTrainActor)
    hook = "intraskill.backends.slime.smoke_cpu.register"
    ray.init(num_cpus=4, num_gpus=1, include_dashboard=False, runtime_env={"worker_process_setup_hook": hook})
    slime_train.train(args)


_PREPARSED = {
    "train_backend": "megatron",
    "debug_rollout_only": False,
    "debug_train_only": False,
    "load_debug_rollout_data": None,
}
_OF_MEGATRON = {
    "distributed_backend": "nccl",
    "distributed_timeout_minutes": 10,
    "rank": 0,
    "world_size": 1,
    "fp16": False,
    "ckpt_step": None,
    "no_load_optim": False,
    "no_load_rng": False,
    "finetune": False,
    "untie_embeddings_and_output_weights": False,
}

if __name__ == "__main__":
    main()
