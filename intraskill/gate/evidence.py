"""How sure a gate may be: what is believed of each effect once it was measured.

A coefficient of .05 with a standard error of .04 is no proof of anything, and the largest of several noisy coefficients
is too large. So an estimate is read together with what was known before:

- a text that an earlier gate measured starts from what was believed then, widened by how far effects may **drift**
  while the policy learns;
- all others start from a normal distribution around 0, whose spread is fitted to the pool itself (empirical Bayes):
  where the coefficients scatter no more than their errors, everything is shrunk towards 0.

Estimate and prior are normal, so the posterior is too, correlations between versions of a text included; from it come
the probability that a text helps at all, and that a new wording is better than the old one.

The spread maximises the likelihood of the pool times the spread itself. The factor is the usual remedy for small pools,
where the likelihood alone often has its maximum at 0 and would call every chunk worthless.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from intraskill.core.errors import UserError
from intraskill.gate.estimate import Estimate

Matrix = NDArray[np.float64]
POWER = 0.8
_NORMAL = NormalDist()
_SPREADS = np.geomspace(0.02, 50, 200)  # in typical standard errors


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed of one effect: a normal distribution."""

    mean: float
    variance: float

    def later(self, drift: float) -> Belief:
        """The belief one gate later; `drift` is the standard deviation of how an effect moves between two gates."""
        return Belief(self.mean, self.variance + drift**2)


@dataclass(frozen=True)
class Posterior:
    """Beliefs about all effects of one gate, together. `spread` is the prior's standard deviation around 0."""

    ids: tuple[str, ...]
    mean: Matrix
    covariance: Matrix
    spread: float

    def belief(self, name: str) -> Belief:
        column = self.ids.index(name)
        return Belief(float(self.mean[column]), float(self.covariance[column, column]))

    def helps(self, name: str) -> float:
        """Probability that the effect is above 0."""
        belief = self.belief(name)
        return probability_positive(belief.mean, belief.variance)

    def better(self, new: str, old: str) -> float:
        """Probability that one effect is above another."""
        i, j = self.ids.index(new), self.ids.index(old)
        variance = self.covariance[i, i] + self.covariance[j, j] - 2 * self.covariance[i, j]
        return probability_positive(float(self.mean[i] - self.mean[j]), float(variance))


def probability_positive(mean: float, variance: float) -> float:
    """Probability that a normal variable is above 0; a certain 0 is a coin's toss."""
    if variance <= 0:
        return 0.5 if mean == 0 else float(mean > 0)
    return _NORMAL.cdf(mean / math.sqrt(variance))


def believe(estimate: Estimate, known: Mapping[str, Belief]) -> Posterior:
    """What is believed after this estimate; `known` are the beliefs before it, of those texts that have any.

    Raises `UserError` when the estimate has no standard errors.
    """
    ids, covariance = tuple(estimate.coefficients), estimate.covariance
    coefficients = np.array(list(estimate.coefficients.values()))
    if not np.all(np.isfinite(covariance)):
        raise UserError("the rule `evidence` needs standard errors, and these data do not determine them; add tasks")
    new = [column for column, name in enumerate(ids) if name not in known]
    spread = pool_spread(coefficients[new], covariance[np.ix_(new, new)])
    mean = np.array([known[name].mean if name in known else 0.0 for name in ids])
    variance = np.array([known[name].variance if name in known else spread**2 for name in ids])
    gain = np.diag(variance) @ np.linalg.pinv(np.diag(variance) + covariance)
    after = np.diag(variance) - gain @ np.diag(variance)
    return Posterior(ids, mean + gain @ (coefficients - mean), (after + after.T) / 2, spread)


def pool_spread(coefficients: Matrix, covariance: Matrix) -> float:
    """The standard deviation of effects around 0 that explains these coefficients best; 0 for an empty pool."""
    if not len(coefficients):
        return 0.0
    errors = np.sqrt(np.diag(covariance))
    unit = float(np.median(errors))
    if unit == 0:  # known exactly: nothing is to be shrunk
        return float(np.sqrt(np.mean(coefficients**2)))
    values, vectors = np.linalg.eigh(covariance)
    turned = (vectors.T @ coefficients) ** 2
    totals = np.maximum(values, 0.0) + (_SPREADS[:, None] * unit) ** 2
    score = -0.5 * (np.log(totals) + turned / totals).sum(axis=1) + np.log(_SPREADS)
    return float(_SPREADS[int(np.argmax(score))]) * unit


def smallest_effect(standard_error: float, spread: float, confidence: float) -> float:
    """The smallest effect that is called helpful with 80 % power, where `confidence` is asked for.

    Shrinking divides the z-score that is asked for by the root of the estimate's reliability. `confidence` .5 is the
    published rule: the sign alone.
    """
    reliability = 1 / (1 + (standard_error / spread) ** 2) if spread else 1.0
    asked = _NORMAL.inv_cdf(confidence) / math.sqrt(reliability) if confidence != 0.5 else 0.0
    return standard_error * (asked + _NORMAL.inv_cdf(POWER))


def expected_errors(posterior: Posterior, kept: Sequence[str], dropped: Sequence[str]) -> tuple[float, float]:
    """How many of `kept` are likely worthless or harmful, and how many of `dropped` helpful."""
    return sum(1 - posterior.helps(name) for name in kept), sum(posterior.helps(name) for name in dropped)
