"""An interval for a mean difference over seeds and tasks together, by resampling both.

A resample draws S seeds and, independently, T tasks with replacement, and keeps the cells where they cross; a task is
always drawn with both arms, since the table holds paired differences. This two-way cluster bootstrap (Owen 2007, "The
pigeonhole bootstrap") keeps the shape of the data, but not its scale: it counts the rest's variance about three times,
and with eight seeds it knows nothing of Student's t. So the shape is taken from the resamples and the scale from the
table: deviations are expressed in units of their own standard deviation, a tail is never taken to be shorter than the
normal one (few seeds resample to few values), and the result is multiplied by the unbiased standard error of
`two_way` and by the ratio of Student's quantile to the normal one.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from intraskill.stats.two_way import Matrix, NoInterval, t_reach, two_way

SAMPLES = 10_000
_BLOCK = 2_000_000  # counts held in memory at once


def two_way_interval(
    differences: Matrix, *, alpha: float, seed: int = 0, samples: int = SAMPLES
) -> tuple[float, float]:
    """Interval of level 1 - alpha from differences (S, T); the same seed, the same interval. Raises `NoInterval`."""
    table = two_way(differences)
    means = resampled_means(differences, np.random.default_rng(seed), samples)
    spread = float(means.std())
    if spread == 0:
        raise NoInterval(f"{samples} resamples have no spread; take more")
    low, high = np.quantile((means - table.effect) / spread, [alpha / 2, 1 - alpha / 2])
    normal = -float(ndtri(alpha / 2))
    estimate = table.unbiased
    unit = estimate.standard_error * t_reach(alpha, estimate.freedom) / normal
    return table.effect - unit * max(-float(low), normal), table.effect + unit * max(float(high), normal)


def resampled_means(differences: Matrix, random: np.random.Generator, samples: int) -> Matrix:
    """(samples,) means of tables whose rows and columns were each drawn with replacement."""
    seeds, tasks = differences.shape
    block = max(1, _BLOCK // tasks)
    means = []
    for start in range(0, samples, block):
        size = min(block, samples - start)
        rows, columns = _counts(random, size, seeds), _counts(random, size, tasks)
        means.append(np.einsum("bt,bt->b", rows @ differences, columns) / (seeds * tasks))
    return np.concatenate(means)


def _counts(random: np.random.Generator, samples: int, n: int) -> Matrix:
    """(samples, n): how often each of n things is drawn in n draws with replacement."""
    drawn = random.integers(n, size=(samples, n)) + n * np.arange(samples)[:, None]
    return np.bincount(drawn.ravel(), minlength=samples * n).reshape(samples, n).astype(np.float64)
