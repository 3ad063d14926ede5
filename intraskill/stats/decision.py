"""A decision by a rule stated before: supported, refuted, or insufficient evidence.

A rule has criteria. Each is a weighted difference of two arms (treatment minus baseline, unless it gives weights) with
a margin: it is **met** where the lower end of its interval is above the margin, **failed** where the upper end is
below it, and open in between. A negative margin makes a guard: "not worse by more than .1". The verdict is `supported`
where all are met, `refuted` where one failed, otherwise `insufficient_evidence`. Alpha is shared equally over the
criteria, so all intervals hold together at level 1 - alpha, whatever the dependence between criteria.

Values stand in a table (seeds, tasks). What the interval is about, its **estimand**, depends on the rule:

    paired_hoeffding  these fixed checkpoints, over tasks like these; a task counts with its mean over the seeds given.
                      The interval is mean +- span sqrt(ln(2 m / alpha) / (2 n)) for m criteria, n tasks and
                      differences in an interval of length span: any distribution, any n, and wide.
    bootstrap         training and tasks together: another seed, other tasks (`two_way_bootstrap`).
    anytime           valid at every look (`anytime`): over tasks in their order for one column of fixed checkpoints,
                      over seeds in their order, on these tasks, for a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from intraskill.stats.anytime import confidence_sequence
from intraskill.stats.paired import hoeffding_radius
from intraskill.stats.two_way import ONE_SEED, Matrix, NoInterval
from intraskill.stats.two_way_bootstrap import SAMPLES, two_way_interval

Verdict = Literal["supported", "refuted", "insufficient_evidence"]


@dataclass(frozen=True, slots=True)
class Criterion:
    """One question of a rule. `baseline` and `treatment` are (seeds, tasks); a single value lies within `bounds`."""

    id: str
    bounds: tuple[float, float]
    margin: float
    baseline: Matrix
    treatment: Matrix
    weights: tuple[float, float] = (-1.0, 1.0)  # of baseline and treatment
    by_seed: bool = False  # the table's rows are seeds of a training, not one set of fixed checkpoints

    @property
    def differences(self) -> Matrix:
        return self.weights[0] * self.baseline + self.weights[1] * self.treatment

    @property
    def limits(self) -> tuple[float, float]:
        """What a single difference can be at all."""
        low, high = self.bounds
        return (
            sum(min(weight * low, weight * high) for weight in self.weights),
            sum(max(weight * low, weight * high) for weight in self.weights),
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """A method of `METHODS` at level alpha, which all criteria share."""

    method: str
    alpha: float
    criteria: tuple[Criterion, ...]
    seed: int = 0  # of the resampling
    samples: int = SAMPLES


@dataclass(frozen=True, slots=True)
class Answer:
    """A criterion's interval, or the reason why there is none."""

    criterion: Criterion
    effect: float
    interval: tuple[float, float] | None
    reason: str | None = None

    @property
    def met(self) -> bool:
        return self.interval is not None and self.interval[0] > self.criterion.margin

    @property
    def failed(self) -> bool:
        return self.interval is not None and self.interval[1] < self.criterion.margin


def decide(rule: Rule) -> tuple[list[Answer], Verdict]:
    """Every criterion's answer at its share of alpha, and the verdict."""
    share = rule.alpha / len(rule.criteria)
    answers = [_answer(criterion, rule, share) for criterion in rule.criteria]
    return answers, verdict(answers)


def verdict(answers: Sequence[Answer]) -> Verdict:
    if any(answer.failed for answer in answers):
        return "refuted"
    return "supported" if all(answer.met for answer in answers) else "insufficient_evidence"


def _answer(criterion: Criterion, rule: Rule, alpha: float) -> Answer:
    effect = float(criterion.differences.mean())
    try:
        return Answer(criterion, effect, METHODS[rule.method](criterion, rule, alpha))
    except NoInterval as error:
        return Answer(criterion, effect, None, str(error))


def _paired_hoeffding(criterion: Criterion, rule: Rule, alpha: float) -> tuple[float, float]:
    low, high = criterion.limits
    effect, tasks = float(criterion.differences.mean()), criterion.differences.shape[1]
    radius = hoeffding_radius(tasks, confidence=1 - alpha, span=high - low)
    return effect - radius, effect + radius


def _bootstrap(criterion: Criterion, rule: Rule, alpha: float) -> tuple[float, float]:
    return two_way_interval(criterion.differences, alpha=alpha, seed=rule.seed, samples=rule.samples)


def _anytime(criterion: Criterion, rule: Rule, alpha: float) -> tuple[float, float]:
    low, high = criterion.limits
    differences = criterion.differences
    if criterion.by_seed and len(differences) < 2:
        raise NoInterval(ONE_SEED)
    looks = differences.mean(axis=1) if criterion.by_seed else differences[0]
    return confidence_sequence(looks, alpha=alpha, low=low, high=high)


METHODS: Mapping[str, Callable[[Criterion, Rule, float], tuple[float, float]]] = {
    "paired_hoeffding": _paired_hoeffding,
    "bootstrap": _bootstrap,
    "anytime": _anytime,
}
