"""The one place where an analyst is asked: its card passes the firewall, its failures end here.

Whatever goes wrong in an analyst is the analyst's problem: it becomes a card without a proposal, never an error of the
run.
"""

from __future__ import annotations

from intraskill.evolution.cards import card_record
from intraskill.evolution.firewall import held_back, release
from intraskill.families.analysis import Analyst, Card, Case, Facts, no_proposal
from intraskill.storage.documents import encode


async def checked_card(analyst: Analyst, case: Case, facts: Facts) -> Card:
    """The analyst's card after the firewall."""
    try:
        card = await analyst.analyse(case)
        _, hits = release(card, facts)
        card = held_back(card, hits) if hits else card
        encode(card_record(card))  # half a character, which a model can write in JSON, fits into no file
    except Exception as error:  # whatever an analyst does wrong must not end a run
        said = " ".join(str(error).split()).encode("utf-8", "replace").decode("utf-8")
        return no_proposal(case, analyst.name, f"analyst_failed: {type(error).__name__}: {said}")
    return card
