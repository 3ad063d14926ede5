"""The plugin's parts in the shapes slime's own contract suites want to see: no job, no server, plain groups of two.

The suites call with `args=None` and a data source that only hands out samples, so each wrapper makes recorded episodes
of them and sends these through the plugin's real functions.
"""

from __future__ import annotations

from dataclasses import replace

from slime.rollout.base_types import RolloutFnEvalOutput, RolloutFnTrainOutput
from slime.rollout.filter_hub.base_types import DynamicFilterOutput
from slime.utils.types import Sample

from intraskill.backends.slime.rollout import slime_group
from intraskill.core.records import Assignment, Episode, EpisodeJob, EpisodeStep, Group, Turn
from intraskill.objectives.objective import OBJECTIVES
from intraskill.rollout.filter import GroupFilter
from intraskill.rollout.tasks import TaskStream


def episode(reward: float, number: int) -> Episode:
    turn = Turn("text", "text", "", (), "stop", (1, 2, 3 + number), (10, 11), (-0.5, -0.25), None, "1", {})
    job = EpisodeJob(number, number, 0, "train")
    empty = {"skill_ids": (), "reset": None, "messages": (), "detail": {}, "termination": "purchase"}
    return Episode(
        job=job, status="completed", steps=(EpisodeStep(turn, None, None),), reward=reward, success=False, **empty
    )


def group(index: int, rewards: list[float]) -> Group:
    episodes = tuple(episode(reward, number) for number, reward in enumerate(rewards))
    return Group(index, index, Assignment(index, True, ()), episodes)


def rollout(args, rollout_id, data_source, evaluation=False):
    groups = [group(i, [float(s.index or 0) for s in asked]) for i, asked in enumerate(data_source.get_samples(2))]
    samples = [[one for nested in slime_group(g, len(g.episodes)) for one in nested] for g in groups]
    if evaluation:
        flat = [sample for one in samples for sample in one]
        rewards, truncated = [sample.reward for sample in flat], [False] * len(flat)
        return RolloutFnEvalOutput(data={"skill_free": {"rewards": rewards, "truncated": truncated, "samples": flat}})
    return RolloutFnTrainOutput(samples=samples, metrics={"rollout/shopsim/group_count": float(len(groups))})


async def generate(args, sample, sampling_params):
    (made,) = slime_group(group(0, [0.25]), 1)[0]
    for name in ("tokens", "response", "response_length", "reward", "status", "loss_mask", "rollout_log_probs"):
        setattr(sample, name, getattr(made, name))
    return sample


def keep(args, samples, **named):
    judge = GroupFilter(OBJECTIVES["grpo"].carries_signal, target=1, technical_limit=8)
    judge.submit(2)
    verdict = judge.judge(replace(group(0, [sample.reward for sample in samples])))
    return DynamicFilterOutput(keep=verdict == "kept", reason=None if verdict == "kept" else verdict)


class Tasks:
    """The driver's task stream as a data source."""

    def __init__(self, args):
        self.args, self.stream = args, TaskStream((3, 5, 8), seed=0)

    def get_samples(self, num_samples):
        tasks = self.stream.take(num_samples)
        return [[Sample(metadata={"task_id": task}) for _ in range(self.args.n_samples_per_prompt)] for task in tasks]

    def add_samples(self, samples):
        self.stream.give_back([one[0].metadata["task_id"] for one in samples])

    def save(self, rollout_id):
        self.saved = self.stream.state()

    def load(self, rollout_id=None):
        self.stream.restore(self.saved)

    def __len__(self):
        return len(self.stream.task_ids)


def log_rollout(rollout_id, args, samples, rollout_extra_metrics, rollout_time):
    args.logged_rollout_id = rollout_id
    return False


def log_evaluation(rollout_id, args, data, extra_metrics):
    args.logged_eval_rollout_id = rollout_id
    return False
