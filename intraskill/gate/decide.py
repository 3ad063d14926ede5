"""Selection by evidence: what a gate may conclude, and what it has to leave open.

The published rule reads the sign of every coefficient (see `gate.selection`); with the usual errors that is often a
coin's toss. This one asks for a stated **confidence**, .9 say, before it changes anything:

1. inside a slot the text in force stays, unless the best other one is better with that probability;
2. a slot's text is `selected` if it helps with that probability, and goes (`retired`, or `non_positive` for a new
   chunk) if it harms with that probability. In between it is `undecided`, and the incumbent stays: a chunk of the
   bank stands its ground, a new one stays outside;
3. those that stay are ranked by the shrunken effect and cut at the budget.

A proposal that is neither proved better nor worse than the text in force is `undecided` too. It may be proposed again.
"""

from __future__ import annotations

from collections.abc import Sequence

from intraskill.gate.evidence import Posterior
from intraskill.gate.selection import Contribution, Row, Selection, Status, check_contributions


def decide(contributions: Sequence[Contribution], posterior: Posterior, confidence: float, budget: int) -> Selection:
    """Choose at most `budget` interventions; their coefficients are the posterior means. Raises `UserError`."""
    check_contributions(contributions, budget)
    slots: dict[str, list[Contribution]] = {}
    for item in contributions:
        slots.setdefault(item.logical_chunk_id, []).append(item)
    winners = {name: _winner(texts, posterior, confidence) for name, texts in slots.items()}
    ranked = sorted(winners.values(), key=lambda item: (-item.coefficient, item.order))
    verdicts: dict[str, Status] = {}
    stay: list[Contribution] = []
    for item in ranked:
        in_bank = any(text.kind == "current" for text in slots[item.logical_chunk_id])
        verdict = _verdict(posterior.helps(item.intervention_id), confidence, in_bank)
        if verdict == "selected" or (verdict == "undecided" and in_bank):
            if len(stay) < budget:
                stay.append(item)
            else:
                verdict = "budget_excluded"
        verdicts[item.intervention_id] = verdict
    for item in contributions:
        if item.intervention_id not in verdicts:
            worse = posterior.better(winners[item.logical_chunk_id].intervention_id, item.intervention_id)
            verdicts[item.intervention_id] = "rewrite_loser" if worse >= confidence else "undecided"
    ranks = {item.intervention_id: rank for rank, item in enumerate(ranked, start=1)}
    return Selection(
        rows=tuple(
            Row(item.intervention_id, ranks.get(item.intervention_id), verdicts[item.intervention_id])
            for item in contributions
        ),
        replacement_winners={name: item.intervention_id for name, item in winners.items()},
        selected_ids=tuple(item.intervention_id for item in sorted(stay, key=lambda item: item.order)),
    )


def _winner(texts: Sequence[Contribution], posterior: Posterior, confidence: float) -> Contribution:
    """The text of one slot: the one in force, or the best of the others where that one is better beyond doubt."""
    current = next((item for item in texts if item.kind == "current"), None)
    best = max((item for item in texts if item is not current), key=lambda item: item.coefficient, default=None)
    if current is None or best is None:
        return best or texts[0]
    sure = posterior.better(best.intervention_id, current.intervention_id) >= confidence
    return best if sure else current


def _verdict(helps: float, confidence: float, in_bank: bool) -> Status:
    if helps >= confidence:
        return "selected"
    if helps <= 1 - confidence:
        return "retired" if in_bank else "non_positive"
    return "undecided"
