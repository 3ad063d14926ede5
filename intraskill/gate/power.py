"""What a gate of a given size could see, before it is run.

Rewards are taken to vary by v = p (1 - p) around a success rate p, and two rewards of one task to correlate by r (what
tasks differ in difficulty). The masks are drawn as the gate would draw them, so the numbers of texts and of competing
versions count as they do in the real regression. Then, with X the masks, D what a mask has and its mirror has not, and
h_j = sum_i P_ji how far a shift of all rows moves coefficient j:

    paired_delta   2 v (1 - r) (X'X)^-1
    mean_delta     v (X'X)^-1 + h h' v (1 - 2 r) / n
    adjusted       v (1 - r^2) (X'X)^-1 + h h' v (1 - r)^2 / n
    foldover       2 v (1 - r) (D'D)^-1
    mixed          the inverse information of all three runs, a task's covariance being v ((1 - r) I + r J)

An effect is **detected** when its decision is reached with 80 % power: the sign of the estimate under the published
rule, the stated confidence under `evidence` (without what shrinking takes away, which depends on the pool).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from intraskill.core.errors import UserError
from intraskill.gate.design import DESIGNS, Masks, Slots, draw_design
from intraskill.gate.estimators import ESTIMATORS, TWO_RUNS
from intraskill.gate.evidence import smallest_effect

Matrix = NDArray[np.float64]
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Question:
    """The gate in question: tasks, chunks of the bank, new chunks and new wordings of old ones beside them."""

    tasks: int
    chunks: int
    additions: int = 0
    rewrites: int = 0
    success: float = 0.5
    correlation: float = 0.3
    confidence: float = 0.9
    effect: float = 0.05

    def slots(self) -> Slots:
        """The texts that would compete; the first chunks of the bank are those with a new wording."""
        if self.rewrites > self.chunks:
            raise UserError(f"{self.rewrites} rewrites of {self.chunks} chunks; a chunk has at most one here")
        bank = [(f"c{i}", f"c{i}-new") if i < self.rewrites else (f"c{i}",) for i in range(self.chunks)]
        return [*bank, *((f"n{i}",) for i in range(self.additions))]


def power(question: Question) -> dict[str, Any]:
    """What every design and estimator could see, as JSON. Raises `UserError` for what no gate could measure."""
    _check(question)
    slots, tasks = question.slots(), [str(task) for task in range(question.tasks)]
    rows = []
    for design in DESIGNS:
        drawn = draw_design(design, slots, tasks, 0, "power")
        names = TWO_RUNS if design == "published" else [name for name in ESTIMATORS if name not in TWO_RUNS]
        for estimator in names:
            errors = np.sqrt(np.diag(covariance(estimator, drawn, question.success, question.correlation)))
            rows.append(_row(design, estimator, errors, question))
    return {**{name: getattr(question, name) for name in Question.__dataclass_fields__}, "gates": rows}


def covariance(estimator: str, drawn: Masks, success: float, correlation: float) -> Matrix:
    """The covariance of an estimator's coefficients over gates with these masks."""
    variance, n = success * (1 - success), len(drawn.masks)
    if estimator == "mixed":
        return _mixed(drawn, variance, correlation)
    contrasts = drawn.contrasts if estimator == "foldover" else Masks(drawn.masks).contrasts
    inverse = np.linalg.inv(contrasts.T @ contrasts)
    if estimator in ("foldover", "paired_delta"):
        return 2 * variance * (1 - correlation) * inverse
    reach = (inverse @ contrasts.T).sum(axis=1)
    common = np.outer(reach, reach) * variance / n
    if estimator == "mean_delta":
        return variance * inverse + common * (1 - 2 * correlation)
    return variance * (1 - correlation**2) * inverse + common * (1 - correlation) ** 2


def _mixed(drawn: Masks, variance: float, correlation: float) -> Matrix:
    """Generalised least squares of the task's runs; a level beside the texts."""
    masks = [np.array(masks, dtype=np.float64) for masks in (drawn.masks, drawn.mirrors) if masks]
    runs = [np.zeros_like(masks[0]), *masks]
    rows = np.stack([np.column_stack([run, np.ones(len(run))]) for run in runs], axis=1)  # (tasks, runs, columns)
    within = variance * ((1 - correlation) * np.eye(len(runs)) + correlation)
    information = np.einsum("tra,rs,tsb->ab", rows, np.linalg.inv(within), rows)
    return np.linalg.inv(information)[:-1, :-1]


def _row(design: str, estimator: str, errors: Matrix, question: Question) -> dict[str, Any]:
    error, confidence = float(errors.mean()), question.confidence
    asked, reached = _NORMAL.inv_cdf(confidence), question.effect / error
    return {
        "design": design,
        "estimator": estimator,
        "episodes": question.tasks * (2 if design == "published" else 3),
        "standard_error": error,
        "largest_standard_error": float(errors.max()),
        "published": {
            "detects": smallest_effect(error, math.inf, 0.5),
            "keeps_worthless": 0.5,
            "drops_useful": _NORMAL.cdf(-reached),
        },
        "evidence": {
            "detects": smallest_effect(error, math.inf, confidence),
            "keeps_worthless": 1 - confidence,
            "drops_useful": _NORMAL.cdf(-reached - asked),
            "leaves_useful_undecided": _NORMAL.cdf(asked - reached) - _NORMAL.cdf(-asked - reached),
        },
    }


def _check(question: Question) -> None:
    ranges: Sequence[tuple[str, float, float]] = (
        ("success", 0, 1),
        ("correlation", -0.99, 1),
        ("confidence", 0.5, 1),
    )
    for name, low, high in ranges:
        value = getattr(question, name)
        if not low < value < high:
            raise UserError(f"--{name} is {value}; give a number between {low} and {high}")
    if question.chunks + question.additions < 1:
        raise UserError("--chunks is 0 and there are no additions; there is nothing to measure")
