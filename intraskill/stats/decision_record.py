"""A decision rule with its observations as JSON, in and out.

A misspelled key would change a decision silently, so unknown keys are refused; those that only describe (`metric`,
`estimand`, `unit`, `seeds`, `version`) may stand there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from intraskill.core.errors import UserError
from intraskill.stats.decision import METHODS, Answer, Criterion, Rule, decide
from intraskill.stats.two_way import Matrix
from intraskill.stats.two_way_bootstrap import SAMPLES

_RULE_KEYS = ("method", "alpha", "criteria", "seed", "samples")
_CRITERION_KEYS = ("id", "bounds", "margin", "weights", "baseline", "treatment")
_DESCRIBING = ("metric", "estimand", "unit", "seeds", "version")
_MOST_SAMPLES = 1_000_000
_LEAST_ALPHA = 1e-6
_LARGEST = 1e60  # whose squares and their ratios are still numbers


def decision_record(record: Any) -> dict[str, Any]:
    """Decide on a decoded observations file. Raises `UserError` with the place of what is wrong."""
    answers, verdict = decide(parse_rule(record))
    return {"criteria": [_answer_record(answer) for answer in answers], "verdict": verdict}


def parse_rule(record: Any) -> Rule:
    """The rule of a decoded observations file."""
    rule = _object(record, "observations", _RULE_KEYS, required=("method", "alpha", "criteria"))
    if rule["method"] not in list(METHODS):
        raise UserError(f"method is {rule['method']!r}; choose one of {', '.join(METHODS)}")
    alpha = _number(rule["alpha"], "alpha")
    if not _LEAST_ALPHA <= alpha < 1:
        raise UserError(f"alpha is {alpha}; give a number from {_LEAST_ALPHA} to below 1, such as 0.05")
    if not isinstance(rule["criteria"], list) or not rule["criteria"]:
        raise UserError("criteria is not a list with entries; give at least one criterion")
    criteria = tuple(_criterion(entry, f"criteria[{i}]") for i, entry in enumerate(rule["criteria"]))
    for i, criterion in enumerate(criteria):
        if criterion.id in [other.id for other in criteria[:i]]:
            raise UserError(f"criteria[{i}]: the id {criterion.id!r} stands there twice; ids must differ")
    return Rule(
        method=rule["method"],
        alpha=alpha,
        criteria=criteria,
        seed=_count(rule.get("seed", 0), "seed", 0, 2**63 - 1),
        samples=_count(rule.get("samples", SAMPLES), "samples", 100, _MOST_SAMPLES),
    )


def _criterion(record: Any, where: str) -> Criterion:
    entry = _object(record, where, _CRITERION_KEYS, required=("id", "bounds", "margin", "baseline", "treatment"))
    if not isinstance(entry["id"], str) or not entry["id"]:
        raise UserError(f"{where}.id is {entry['id']!r}; an id is a text")
    bounds = _bounds(entry["bounds"], f"{where}.bounds")
    baseline, by_seed = _table(entry["baseline"], f"{where}.baseline", bounds)
    treatment, too = _table(entry["treatment"], f"{where}.treatment", bounds)
    if by_seed != too or baseline.shape != treatment.shape:
        raise UserError(
            f"{where}: baseline holds {_shape(baseline, by_seed)}, treatment {_shape(treatment, too)}; give both arms "
            "the same tasks and seeds, in the same order"
        )
    return Criterion(
        id=entry["id"],
        bounds=bounds,
        margin=_number(entry["margin"], f"{where}.margin"),
        baseline=baseline,
        treatment=treatment,
        weights=_weights(entry.get("weights"), f"{where}.weights"),
        by_seed=by_seed,
    )


def _object(value: Any, where: str, known: tuple[str, ...], required: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{where}: expected a JSON object with {', '.join(required)}")
    missing = [key for key in required if key not in value]
    if missing:
        raise UserError(f'{where}: "{missing[0]}" is missing; give {", ".join(required)}')
    unknown = [key for key in value if key not in (*known, *_DESCRIBING)]
    if unknown:
        raise UserError(f'{where}: "{unknown[0]}" is no key here; the keys are {", ".join(known)}')
    return value


def _bounds(value: Any, where: str) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise UserError(f"{where} is {value!r}; give [lowest, highest] that a single value can be")
    low, high = _number(value[0], f"{where}[0]"), _number(value[1], f"{where}[1]")
    if not low < high:
        raise UserError(f"{where} is {value!r}; the lower one comes first")
    return low, high


def _weights(value: Any, where: str) -> tuple[float, float]:
    if value is None:
        return -1.0, 1.0
    if not isinstance(value, dict) or sorted(value) != ["baseline", "treatment"]:
        raise UserError(f'{where} is {value!r}; give {{"baseline": number, "treatment": number}}')
    baseline, treatment = (_number(value[arm], f"{where}.{arm}") for arm in ("baseline", "treatment"))
    if not baseline and not treatment:
        raise UserError(f"{where}: both are 0, so there is nothing to decide; the usual ones are -1 and 1")
    return baseline, treatment


def _table(value: Any, where: str, bounds: tuple[float, float]) -> tuple[Matrix, bool]:
    """(seeds, tasks) and whether the file lists the seeds. A flat list is one row."""
    if not isinstance(value, list) or not value:
        raise UserError(f"{where} is not a list with values; give one value a task")
    by_seed = isinstance(value[0], list)
    rows = value if by_seed else [value]
    for i, row in enumerate(rows):
        if not isinstance(row, list) or not row or len(row) != len(rows[0]):
            raise UserError(f"{where}[{i}] is not a list of {len(rows[0])} values; every seed has the same tasks")
        for j, entry in enumerate(row):
            place = f"{where}[{i}][{j}]" if by_seed else f"{where}[{j}]"
            if not bounds[0] <= _number(entry, place) <= bounds[1]:
                raise UserError(f"{place} is {entry}, outside its bounds {bounds[0]} to {bounds[1]}; mend one of them")
    return np.array(rows, dtype=np.float64), by_seed


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _LARGEST:
        raise UserError(f"{where} is {value!r}; give a number, at most {_LARGEST:g}")
    return float(value)


def _count(value: Any, where: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UserError(f"{where} is {value!r}; give a whole number from {low} to {high}")
    return value


def _shape(table: Matrix, by_seed: bool) -> str:
    seeds, tasks = table.shape
    return f"{seeds} seeds x {tasks} tasks" if by_seed else f"{tasks} values"


def _answer_record(answer: Answer) -> dict[str, Any]:
    """Without an interval its numbers are null and `reason` says why; `seeds` where the file lists them."""
    criterion = answer.criterion
    lower, upper = answer.interval or (None, None)
    record: dict[str, Any] = {
        "id": criterion.id,
        "n": criterion.differences.shape[1],
        "effect": answer.effect,
        "halfwidth": None if lower is None or upper is None else (upper - lower) / 2,
        "lower": lower,
        "upper": upper,
        "met": answer.met,
    }
    if criterion.by_seed:
        record["seeds"] = criterion.differences.shape[0]
    if answer.reason:
        record["reason"] = answer.reason
    return record
