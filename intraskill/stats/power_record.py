"""Power from a pilot's observations, as one JSON object.

The pilot is a decision rule with observations (`decision_record`), read for its variances alone: its own effect, seen
on few seeds and tasks, says little of the true one, so the effect worth finding is asked for.
"""

from __future__ import annotations

from typing import Any

from intraskill.core.errors import UserError
from intraskill.stats.decision import Criterion, Rule
from intraskill.stats.decision_record import parse_rule
from intraskill.stats.power import needed_seeds, needed_tasks, power_of_hoeffding, power_over_training
from intraskill.stats.two_way import NoInterval, two_way

_TASK_FACTORS = (1, 2, 4, 8)  # of the pilot's tasks


def power_record(record: Any, effect: float, power: float) -> dict[str, Any]:
    """What the pilot's rule would find of a true `effect`, and what size finds it with probability `power`."""
    rule = parse_rule(record)
    if not 0 < power < 1:
        raise UserError(f"power is {power}; give a probability between 0 and 1, such as 0.8")
    if not abs(effect) < float("inf"):
        raise UserError(f"effect is {effect}; give the difference worth finding")
    if rule.method == "anytime":
        raise UserError(
            "method anytime: its power depends on when you stop looking; ask with paired_hoeffding or bootstrap"
        )
    answer = _over_training if rule.method == "bootstrap" else _fixed_checkpoints
    return {"criteria": [answer(criterion, rule, effect, power) for criterion in rule.criteria]}


def _over_training(criterion: Criterion, rule: Rule, effect: float, power: float) -> dict[str, Any]:
    try:
        table = two_way(criterion.differences)
    except NoInterval as error:
        raise UserError(f"criterion {criterion.id!r}: {error}") from None
    parts, asked = table.components, _asked(criterion, rule, effect)
    sizes = needed_seeds(parts, [factor * table.tasks for factor in _TASK_FACTORS], power=power, **asked)
    return {
        "id": criterion.id,
        "variances": {"training": parts.training, "task": parts.task, "rest": parts.rest},
        "power": power_over_training(parts, table.seeds, table.tasks, **asked),
        "needed": [{"tasks": size.tasks, "seeds": size.seeds, "power": size.power} for size in sizes],
    }


def _fixed_checkpoints(criterion: Criterion, rule: Rule, effect: float, power: float) -> dict[str, Any]:
    differences = criterion.differences.mean(axis=0)
    if len(differences) < 2:
        raise UserError(f"criterion {criterion.id!r}: one task has no spread; pilot on more")
    low, high = criterion.limits
    deviation = float(differences.std(ddof=1))
    asked = _asked(criterion, rule, effect) | {"deviation": deviation, "span": high - low}
    return {
        "id": criterion.id,
        "deviation": deviation,
        "power": power_of_hoeffding(len(differences), **asked),
        "needed": [{"tasks": needed_tasks(power=power, **asked)}],
    }


def _asked(criterion: Criterion, rule: Rule, effect: float) -> dict[str, float]:
    return {"effect": effect, "margin": criterion.margin, "alpha": rule.alpha / len(rule.criteria)}
