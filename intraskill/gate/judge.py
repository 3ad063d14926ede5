"""From a table of runs to a decision: every estimator's answer, what is believed, what is selected. Pure.

The protocol's own estimator decides; the others stand beside it. Under the `published` rule its coefficients select by
their sign; under `evidence` they are shrunk to what may be believed, and select by probability. What is believed is
worked out under either rule, so that every gate can say how much it could see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from intraskill.core.errors import UserError
from intraskill.gate.decide import decide
from intraskill.gate.estimate import Estimate
from intraskill.gate.estimators import TWO_RUNS, fit
from intraskill.gate.evidence import Belief, Posterior, believe
from intraskill.gate.interventions import Intervention
from intraskill.gate.protocol import GateProtocol
from intraskill.gate.selection import Contribution, Selection, select
from intraskill.gate.table import RunTable


@dataclass(frozen=True)
class Judgement:
    """`estimates` begins with the protocol's own estimator; it is empty where that one, or the rule, has no answer, and
    `problems` says why, by estimator. `coefficients` are the numbers that were selected by. `posterior` is None where
    the data do not determine the errors."""

    estimates: Mapping[str, Estimate]
    problems: Mapping[str, str]
    coefficients: Mapping[str, float]
    posterior: Posterior | None
    selection: Selection | None


def judge(
    protocol: GateProtocol,
    pool: Sequence[Intervention],
    table: RunTable,
    known: Mapping[str, Belief],
    confidence: float,
) -> Judgement:
    """Fit, believe and select; `known` are the beliefs before this gate, `confidence` what `evidence` asks for."""
    estimates: dict[str, Estimate] = {}
    problems: dict[str, str] = {}
    repeated = sum(row.run == "masked" for row in table.here) > len(protocol.task_ids)
    for name in protocol.estimators:
        if repeated and name in TWO_RUNS and name != protocol.estimator:
            continue  # they compare one masked run with the bare one
        try:
            estimates[name] = fit(table, name)
        except UserError as error:
            problems[name] = str(error)
    if protocol.estimator in problems:
        return Judgement({}, problems, {}, None, None)
    estimate, posterior = estimates[protocol.estimator], None
    try:
        posterior = believe(estimate, known)
    except UserError as error:
        if protocol.rule == "evidence":
            return Judgement({}, {protocol.estimator: str(error)}, {}, None, None)
    if protocol.rule == "published" or posterior is None:
        coefficients = estimate.coefficients
        selection = select(_contributions(pool, coefficients), protocol.budget)
    else:
        coefficients = dict(zip(posterior.ids, posterior.mean.tolist()))
        selection = decide(_contributions(pool, coefficients), posterior, confidence, protocol.budget)
    return Judgement(estimates, problems, coefficients, posterior, selection)


def _contributions(pool: Sequence[Intervention], coefficients: Mapping[str, float]) -> list[Contribution]:
    return [
        Contribution(
            item.intervention_id,
            item.kind,
            item.logical_chunk_id,
            item.operation,
            item.order,
            coefficients[item.intervention_id],
        )
        for item in pool
    ]
