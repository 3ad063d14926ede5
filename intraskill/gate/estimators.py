"""The estimators by name. Each turns a table of runs into an `Estimate`, or raises `UserError` saying why it cannot.

| name | what it compares | runs it needs |
|---|---|---|
| `paired_delta` | a task's masked reward with its bare one (published) | bare, masked |
| `mean_delta` | a masked reward with the mean bare one | bare, masked |
| `adjusted` | the same, the task's bare reward as a fitted control | bare, masked |
| `foldover` | a task under a mask with itself under the mirror | masked, mirror |
| `mixed` | everything with everything, tasks as random effects | any; earlier checkpoints help |

To add one: a function from `RunTable` to `Estimate`, and a line below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from intraskill.core.errors import UserError
from intraskill.gate.baselines import adjusted, mean_delta, paired_delta
from intraskill.gate.design import Mask
from intraskill.gate.estimate import Estimate, estimate_record
from intraskill.gate.foldover import foldover
from intraskill.gate.mixed import mixed
from intraskill.gate.table import RunTable, TableRow, check_ids, check_mask, check_reward, parse_table

Estimator = Callable[[RunTable], Estimate]

ESTIMATORS: dict[str, Estimator] = {
    "paired_delta": paired_delta,
    "mean_delta": mean_delta,
    "adjusted": adjusted,
    "foldover": foldover,
    "mixed": mixed,
}
TWO_RUNS = ("paired_delta", "mean_delta", "adjusted")  # those that a bare and a masked run suffice for


def fit(table: RunTable, estimator: str) -> Estimate:
    """The answer of this estimator."""
    return ESTIMATORS[_known(estimator, ESTIMATORS)](table)


def fit_file(record: Any, estimator: str) -> dict[str, Any]:
    """`fit` on a decoded file, as JSON: a table of runs, or two vectors of rewards and the masks of one of them."""
    if isinstance(record, dict) and "runs" in record:
        _known(estimator, ESTIMATORS)
        estimate = fit(parse_table(record), estimator)
        return {**estimate_record(estimate), "estimator": estimate.estimator, "tasks": estimate.tasks}
    _known(estimator, TWO_RUNS)
    return estimate_record(fit(two_runs(record), estimator))


def two_runs(record: Any) -> RunTable:
    """The table of a decoded observations file: {"interventions", "design", "bare", "masked"}, one row a task."""
    if not isinstance(record, dict):
        raise UserError("observations: expected a JSON object with interventions, design, bare, masked; or with runs")
    for key in ("interventions", "design", "bare", "masked"):
        if not isinstance(record.get(key), list):
            raise UserError(f'observations: "{key}" is missing or not a list')
    ids, design = check_ids(record["interventions"]), record["design"]
    if not design:
        raise UserError("design is empty: there are no observations")
    masks = [check_mask(row, f"design[{i}]", len(ids)) for i, row in enumerate(design)]
    bare, masked = (_rewards(record[name], name, len(masks)) for name in ("bare", "masked"))
    return table_of(ids, {"bare": ([(0,) * len(ids)] * len(masks), bare), "masked": (masks, masked)})


def table_of(ids: Sequence[str], runs: dict[str, tuple[Sequence[Mask], Sequence[float]]]) -> RunTable:
    """A table of whole runs over the same tasks: by name, each task's mask and its reward."""
    rows = [
        TableRow(str(task), name, mask, reward)
        for name, (masks, rewards) in runs.items()
        for task, (mask, reward) in enumerate(zip(masks, rewards, strict=True))
    ]
    return RunTable(tuple(ids), tuple(rows))


def _known(estimator: str, names: Any) -> str:
    if estimator not in names:
        raise UserError(f"estimator {estimator!r} is unknown here; choose one of {', '.join(names)}")
    return estimator


def _rewards(values: Sequence[Any], name: str, n: int) -> list[float]:
    if len(values) != n:
        raise UserError(f"{name} has {len(values)} rewards but design has {n} rows; each row needs one")
    return [check_reward(value, f"{name}[{i}]") for i, value in enumerate(values)]
