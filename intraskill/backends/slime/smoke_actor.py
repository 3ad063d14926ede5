"""The embedded trainer in the seat of slime's Megatron actor, for the smoke run.

It takes what slime hands to its trainers (token tensors, masks, sampled log-probs, normalised rewards), turns it back
into segments and trains on them with the embedded trainer; saves like Megatron, with a tracker file that names the last
complete checkpoint; and hands new weights to the engines by a directory on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
import torch
from slime.ray.train_actor import TrainRayActor

from intraskill.backends.embedded.checkpoint import load_checkpoint, save_checkpoint
from intraskill.backends.embedded.models import load_model
from intraskill.backends.embedded.trainer import Trainer
from intraskill.backends.slime.arguments import load_slime_settings, read_spec
from intraskill.backends.slime.preflight import checkpoint_step
from intraskill.backends.slime.timing import TimingLog
from intraskill.core.records import Segment
from intraskill.storage.documents import write_bytes_atomic

log = logging.getLogger(__name__)


class EmbeddedTrainActor(TrainRayActor):
    """One trainer process on the CPU."""

    def init(self, args: Any, role: str, with_ref: bool = False, with_opd_teacher: bool = False) -> int:
        super().init(args, role, with_ref, with_opd_teacher)
        torch.set_num_threads(1)
        spec = read_spec(args)
        self.settings, self.timing = load_slime_settings(spec.settings, spec.overrides), TimingLog(spec.run)
        self.train_parallel_config = self._get_parallel_config()
        self.trainer = Trainer(
            load_model(str(args.hf_checkpoint)), self.settings.train, temperature=args.rollout_temperature
        )
        self.step = self.version = start = checkpoint_step(Path(args.save))
        if start:
            load_checkpoint(self._checkpoint(start - 1), self.trainer)
        return start

    def train(self, rollout_id: int, rollout_data_ref: Sequence[Any], external_data: Any = None) -> None:
        data = ray.get(rollout_data_ref[0].inner)
        self.step = rollout_id + 1
        with self.timing.part(self.step, "train"):
            updates = self.trainer.step(groups_of(data, self.args.n_samples_per_prompt))
        for metrics in updates:
            log.info("train %d: %s", rollout_id, {name: round(value, 6) for name, value in metrics.items()})

    def save_model(self, rollout_id: int, force_sync: bool = False) -> None:
        checkpoint, model = self._checkpoint(rollout_id), Path(self.args.hf_checkpoint)
        with self.timing.part(self.step, "save"):
            save_checkpoint(checkpoint, self.trainer, model, {"step": rollout_id + 1})
            write_bytes_atomic(Path(self.args.save) / "latest_checkpointed_iteration.txt", str(rollout_id).encode())

    def update_weights(self) -> None:
        """Write the weights where the engines can read them, and have them loaded under a new version."""
        self.version += 1
        directory, version = Path(self.args.save).parent / "weights", str(self.version)
        with self.timing.part(self.step, "weights"):
            save_checkpoint(directory, self.trainer, Path(self.args.hf_checkpoint), {})
            engines = ray.get(self.rollout_manager.get_updatable_engines_and_lock.remote())[0]
            ray.get([one.update_weights_from_disk.remote(str(directory), weight_version=version) for one in engines])

    def sleep(self, tags: Any = None) -> None:
        pass

    def wake_up(self, tags: Any = None) -> None:
        pass

    def clear_memory(self) -> None:
        pass

    def _get_parallel_config(self) -> dict[str, int]:
        return {"dp_size": 1, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}

    def _checkpoint(self, rollout_id: int) -> Path:
        return Path(self.args.save) / f"iter_{rollout_id:07d}"


def groups_of(data: Mapping[str, Any], group_size: int) -> list[list[Segment]]:
    """slime's training data of one rank as groups of segments, in the order they were sampled."""
    groups: dict[int, list[Segment]] = {}
    for position in sorted(range(len(data["tokens"])), key=lambda one: data["partition"][one]):
        tokens, length = data["tokens"][position].tolist(), int(data["response_lengths"][position])
        start = len(tokens) - length
        loss_mask = (0,) * start + tuple(data["loss_masks"][position].tolist())
        advantage = float(data["rewards"][position])
        episode = int(data["rollout_ids"][position])
        groups.setdefault(episode // group_size, []).append(
            Segment(
                episode_id=str(episode),
                group_index=episode // group_size,
                token_ids=tuple(tokens),
                loss_mask=loss_mask,
                log_probs=(0.0,) * start + tuple(data["rollout_log_probs"][position].tolist()),
                prompt_length=start,
                advantages=tuple(advantage if sampled else 0.0 for sampled in loss_mask),
            )
        )
    return list(groups.values())
