"""slime's rollout function: `--rollout-function-path intraskill.backends.slime.rollout.generate_rollout`.

Training: one step of the method, as samples. Evaluation: the end of a round (analysis, bare and masked runs, fit,
selection, next curriculum) on the engines that hold the fresh weights.
"""

from __future__ import annotations

from typing import Any

from slime.rollout.base_types import RolloutFnEvalOutput, RolloutFnTrainOutput
from slime.utils.types import Sample

from intraskill.backends.slime.run import validation_data
from intraskill.backends.slime.samples import group_samples, prefix_cache
from intraskill.core.records import Group
from intraskill.report.wandb_sink import name_axes_of_current_run


def generate_rollout(
    args: Any, rollout_id: int, data_source: Any, evaluation: bool = False
) -> RolloutFnTrainOutput | RolloutFnEvalOutput:
    """slime's entry point; the parameter names are part of its contract."""
    if getattr(args, "use_wandb", False):
        name_axes_of_current_run()  # slime names its own families only
    if evaluation:
        rewards, metrics = data_source.run.evaluate(rollout_id)
        return RolloutFnEvalOutput(data=validation_data(rewards), metrics=metrics)
    generated = data_source.run.generate(rollout_id)
    groups = [slime_group(group, args.n_samples_per_prompt) for group in generated.groups]
    return RolloutFnTrainOutput(samples=groups, metrics=dict(generated.metrics))


def slime_group(group: Group, group_size: int) -> list[list[Sample]]:
    """group -> episodes -> samples; nested like this, slime itself checks the samples' `rollout_id`."""
    nested = []
    for episode, fields in zip(group.episodes, group_samples(group, group_size)):
        samples = [Sample(**{**one, "status": Sample.Status[one["status"]]}) for one in fields]
        samples[0].response = "\n".join(step.turn.text for step in episode.steps)
        cached, prompt = prefix_cache(episode)
        samples[0].prefix_cache_info.cached_tokens = cached
        samples[0].prefix_cache_info.total_prompt_tokens = prompt
        nested.append(samples)
    return nested
