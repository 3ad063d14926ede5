"""Do chunks work by themselves, or does one change what another is worth?

A gate's coefficient is a chunk's value averaged over the states of all others, and a bank is chosen as if these values
added up. Two questions test that, on all runs of a gate together (tasks as random effects, a column for every text and
for every pair of texts that can meet):

- **pairs**: is any pair worth more or less than the sum of its two? Every pair is asked, and the p-values are Holm's:
  the probability of even one false alarm stays below the stated level;
- **the full bank**: is a chunk's value where all the others are shown, the reward it takes along when it alone is
  left out, other than its average value? Under the model it is the average value plus half the chunk's pairs with
  those shown (and less half of those with texts that are not). The equipped run, where there is one, counts here
  most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from intraskill.gate.design import Slots
from intraskill.gate.table import RunTable, TableRow, masks_of, rewards_of
from intraskill.stats.panel import PanelFit, random_effects

LEVEL = 0.05
Matrix = NDArray[np.float64]
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Pair:
    """How much two texts together are worth beyond the sum of both; `p_value` is Holm's, over all pairs."""

    first: str
    second: str
    effect: float
    standard_error: float
    p_value: float


@dataclass(frozen=True, slots=True)
class FullBankValue:
    """A chunk's value in the full bank, and by how much that differs from its average value; Holm over all chunks."""

    name: str
    value: float
    standard_error: float
    difference: float
    difference_error: float
    p_value: float


@dataclass(frozen=True, slots=True)
class Interactions:
    pairs: tuple[Pair, ...]
    full_bank: tuple[FullBankValue, ...]

    @property
    def telling(self) -> tuple[Pair, ...]:
        """The pairs that matter beyond a family-wise error of 5 %."""
        return tuple(pair for pair in self.pairs if pair.p_value < LEVEL)


def interactions(table: RunTable, slots: Slots, bank: Sequence[str]) -> Interactions | None:
    """Both questions, of a table of all runs; `bank` are the texts that the full bank shows.

    None where the runs do not tell the pairs apart: too few tasks for so many of them, or too few texts.
    """
    ids, rows = table.interventions, table.here
    rivals = [set(slot) for slot in slots]
    pairs = [
        (i, j) for i, j in combinations(range(len(ids)), 2) if not any({ids[i], ids[j]} <= texts for texts in rivals)
    ]
    masks = masks_of(rows)
    together = [masks[:, i] * masks[:, j] for i, j in pairs]
    design = np.column_stack([masks, *together, np.ones(len(rows))])
    if not pairs or np.linalg.matrix_rank(design) < design.shape[1] or len({row.task for row in rows}) <= len(pairs):
        return None
    fitted = random_effects(design, rewards_of(rows), [row.task for row in rows])
    found = _questions(ids, pairs, _average_shown(rows), [name in bank for name in ids])
    return Interactions(_pairs(ids, pairs, fitted), _full_bank(ids, bank, found, fitted))


def _average_shown(rows: Sequence[TableRow]) -> Matrix:
    """How often each text was shown where chance decided."""
    random = [row for row in rows if row.run in ("masked", "mirror")]
    return masks_of(random).mean(axis=0) if random else np.full(len(rows[0].mask), 0.5)


def _questions(
    ids: Sequence[str], pairs: Sequence[tuple[int, int]], average: Matrix, shown: Sequence[bool]
) -> tuple[Matrix, Matrix]:
    """Each chunk's value in the full bank, and how it differs from the average, in terms of the coefficients."""
    size = len(ids) + len(pairs) + 1
    value, difference = np.zeros((len(ids), size)), np.zeros((len(ids), size))
    value[:, : len(ids)] = np.eye(len(ids))
    for column, (i, j) in enumerate(pairs, start=len(ids)):
        for one, other in ((i, j), (j, i)):
            value[one, column] = float(shown[other])
            difference[one, column] = float(shown[other]) - average[other]
    return value, difference


def _pairs(ids: Sequence[str], pairs: Sequence[tuple[int, int]], fitted: PanelFit) -> tuple[Pair, ...]:
    columns = np.arange(len(ids), len(ids) + len(pairs))
    effects, errors = fitted.coefficients[columns], np.sqrt(np.diag(fitted.covariance)[columns])
    p_values = _holm(effects, errors)
    return tuple(
        Pair(ids[i], ids[j], float(effect), float(error), float(p))
        for (i, j), effect, error, p in zip(pairs, effects, errors, p_values)
    )


def _full_bank(
    ids: Sequence[str], bank: Sequence[str], questions: tuple[Matrix, Matrix], fitted: PanelFit
) -> tuple[FullBankValue, ...]:
    mine = [column for column, name in enumerate(ids) if name in bank]
    answers = []
    for rows in questions:
        spread = np.einsum("ij,jk,ik->i", rows, fitted.covariance, rows)
        answers.append((rows[mine] @ fitted.coefficients, np.sqrt(np.maximum(spread[mine], 0.0))))
    (values, errors), (differences, difference_errors) = answers
    p_values = _holm(differences, difference_errors)
    return tuple(
        FullBankValue(ids[column], *map(float, numbers))
        for column, *numbers in zip(mine, values, errors, differences, difference_errors, p_values)
    )


def _holm(effects: Matrix, errors: Matrix) -> Matrix:
    """Two-sided p-values, adjusted so that one false alarm among all of them is as rare as the level says."""
    from statsmodels.stats.multitest import multipletests

    if not len(effects):
        return np.zeros(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.where(errors > 0, np.abs(effects) / errors, 0.0)
    return np.asarray(multipletests([2 * _NORMAL.cdf(-float(score)) for score in scores], method="holm")[1])
