"""One step's rollout metrics under their published names.

Outcome means count every scorable episode of all finished groups, also of those that were later dropped; drop rates
are over admitted + dropped groups of that kind. `all_wrong` and the rates that follow from it are over scorable
groups, as in the published curves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from intraskill.core.records import Episode, Group
from intraskill.families.base import TaskFamily
from intraskill.rollout.filter import Verdict
from intraskill.rollout.triage import Triage
from intraskill.skills.curriculum import Curriculum


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; 0.0 for nothing."""
    return sum(values) / len(values) if values else 0.0


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean (sample standard deviation over the root of n); 0.0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.sqrt(sum((value - centre) ** 2 for value in values) / (len(values) - 1) / len(values))


def step_metrics(
    family: TaskFamily,
    groups: Sequence[Group],
    verdicts: Sequence[Verdict],
    triages: Sequence[Triage],
    retries: Sequence[Episode],
    curriculum: Curriculum,
) -> dict[str, float]:
    """All rollout metrics of one step, under the family's prefix. `verdicts` and `triages` run parallel to `groups`."""
    values = _outcomes(groups, verdicts) | _reward_parts(family, groups)
    values |= _assistance(groups, curriculum) | _frontier(groups, triages, retries)
    kept = verdicts.count("kept")
    for kind, name in (("technical", "technical"), ("zero_std", "zero_std")):
        count = verdicts.count(kind)
        values[f"{name}_group_drop_count"] = count
        values[f"{name}_group_drop_rate"] = count / max(1, kept + count)
    return {family.settings.metric_prefix + name: float(value) for name, value in values.items()}


def _outcomes(groups: Sequence[Group], verdicts: Sequence[Verdict]) -> dict[str, float]:
    episodes = [episode for group in groups for episode in group.episodes]
    scored = [episode for episode in episodes if episode.scorable]
    trained = [group for group, verdict in zip(groups, verdicts) if verdict == "kept"]
    return {
        "trajectory_count": len(episodes),
        "group_count": len(groups),
        "train_trajectory_count": sum(len(group.episodes) for group in trained),
        "train_group_count": len(trained),
        "scored_rate": len(scored) / max(1, len(episodes)),
        "reward_mean": mean([episode.reward for episode in scored]),
        "success_rate": mean([float(episode.success) for episode in scored]),
        "steps_mean": mean([len(episode.steps) for episode in scored]),
        "protocol_error_rate": mean([float(step.protocol_error is not None) for e in scored for step in e.steps]),
    }


def _reward_parts(family: TaskFamily, groups: Sequence[Group]) -> dict[str, float]:
    scored = [episode for group in groups for episode in group.episodes if episode.scorable]
    return {
        name: mean([float(episode.detail.get(part, episode.reward)) for episode in scored])
        for name, part in family.settings.mean_parts.items()
    }


def _assistance(groups: Sequence[Group], curriculum: Curriculum) -> dict[str, float]:
    assisted = [group.assignment for group in groups if not group.assignment.skill_free]
    rhos = [rho for _, _, rho in curriculum.probabilities]
    values = {
        "q": curriculum.q,
        "rho_min": min(rhos, default=0.0),
        "rho_mean": mean(rhos),
        "rho_max": max(rhos, default=0.0),
        "skill_free_group_rate": 1 - len(assisted) / max(1, len(groups)),
        "assisted_empty_group_rate": mean([float(not assignment.skill_ids) for assignment in assisted]),
        "skills_per_assisted_group_mean": mean([len(assignment.skill_ids) for assignment in assisted]),
    }
    for skill_id, _, rho in curriculum.probabilities:
        values[f"chunk/{skill_id}/target_rho"] = rho
        values[f"chunk/{skill_id}/inclusion_rate"] = mean([float(skill_id in a.skill_ids) for a in assisted])
    return values


def _frontier(groups: Sequence[Group], triages: Sequence[Triage], retries: Sequence[Episode]) -> dict[str, float]:
    scorable = max(1, sum(group.scorable for group in groups))
    judged = [retry for retry in retries if retry.scorable]
    return {
        "all_wrong_group_rate": sum(group.all_wrong for group in groups) / scorable,
        "full_skill_retry_rate": len(retries) / scorable,
        "full_skill_retry_success_rate": mean([float(retry.success) for retry in judged]),
        "internalization_deficit_rate": triages.count("model_internalization_deficit") / scorable,
        "pending_analysis_rate": triages.count("full_skill_failure_pending_analysis") / scorable,
    }
