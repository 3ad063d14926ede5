"""The analyst that needs no language model.

**Failure.** It walks back from the end of the episode. At each decision it tries the smallest change that belongs to
the page: other options where a product was open, another result where results were listed, a completed query where a
search was made; what follows is mechanical (`repair.py`). The last decision at which such a change still buys
successfully is the one that made success impossible: after it, no local change helps any more. The need that the
original decision neglected names the mechanism. If turning pages alone would help, or nothing was neglected and the
episode merely ran out of steps, the card says that instead.

**Success** (for a cold start). The needs whose evidence the trajectory used name what it rested on.

The wording is not the analyst's: it comes from `mechanisms.py`, in the language of the catalog.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shopsimulator.actions import NEXT, NotAnAction, parse_action
from shopsimulator.products import Product
from shopsimulator.reward import resembles
from shopsimulator.text import search_tokens

from intraskill.core.records import Style
from intraskill.families.analysis import Abstraction, Card, Case, PrivilegedAudit, bare_audit, no_proposal
from intraskill.families.shop.analysts.needs import Need, lacks_word, task_needs, unmet_needs
from intraskill.families.shop.analysts.repair import Repair, Workbench
from intraskill.families.shop.analysts.world import AnalystWorld
from intraskill.families.shop.mechanisms import mechanism_of, mechanisms
from intraskill.families.shop.wordings import Mechanism
from intraskill.skills.bank import Bank

_PAGES = 3  # result pages turned in the second attempt
_WASTED = 2  # refused or unreadable replies from which on an episode "did not recover"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What went wrong (`category`), where, and what the decision neglected, most important first."""

    category: str
    repair: Repair
    neglected: tuple[Need, ...]
    mechanisms: tuple[str, ...]


class RulesAnalyst:
    """Diagnoses by replay and verified purchase. `style` chooses the length of the wording."""

    name = "rules"

    def __init__(self, world: AnalystWorld, style: Style = "compact") -> None:
        self._world = world
        self._style: Style = style
        self._mechanisms = mechanisms(world.catalog.language)
        titles = (product.title for product in world.catalog.products.values())
        self._title_words = {token for title in titles for token in search_tokens(title)}

    async def analyse(self, case: Case) -> Card:
        if case.channel == "success":
            return self._success(case)
        bench = Workbench(self._world, case)
        needs = _needs(bench)
        diagnosis = await self._diagnose(bench, needs)
        if diagnosis is None:
            hidden = any(need.mechanism is None for need in needs)
            return no_proposal(case, self.name, "unobservable_need" if hidden else "no_verified_repair")
        if not diagnosis.mechanisms:
            return no_proposal(case, self.name, "unobservable_need", _audit(case, diagnosis))
        return self._propose(case, diagnosis)

    async def close(self) -> None:
        """Nothing is held."""

    async def _diagnose(self, bench: Workbench, needs: tuple[Need, ...]) -> Diagnosis | None:
        for pages in (0, _PAGES):
            for decision in reversed(range(len(bench.states))):
                async for first in self._changes(bench, decision, needs, pages):
                    repair = await bench.attempt(decision, first, pages)
                    if repair is not None:
                        return _explain(bench, repair, needs, pages)
        return None

    async def _changes(
        self, bench: Workbench, decision: int, needs: tuple[Need, ...], pages: int
    ) -> AsyncIterator[tuple[str, ...]]:
        """The changes that belong to the decision's page, smallest first; each is the actions that replace it."""
        state, action = bench.states[decision], bench.case.actions[decision]
        page = state["page_type"]
        if page == "product_detail" and bench.fits(state["product"]["asin"]):
            yield ()
        if page == "search_results" and (pages or any(bench.fits(row["asin"]) for row in state["products"])):
            yield ()
        if page == "search_home":
            instruction = bench.case.trace["reset"]["task_instruction"]
            for changed in self._queries(_original_query(action), instruction, needs):
                yield (f"search[{changed}]",)

    def _queries(self, query: str, instruction: str, needs: tuple[Need, ...]) -> list[str]:
        """Completed queries: one neglected word, all of them, and the wish written anew with all of them."""
        missing = [n.value for n in needs if n.kind != "price" and n.mechanism and lacks_word(query, n.value)]
        evident = [n.value for n in needs if n.kind != "price" and n.mechanism not in (None, "stated")]
        stated = [word for word in search_tokens(instruction) if word in self._title_words]
        tried = [query, *(f"{word} {query}" for word in missing), " ".join((*missing, query))]
        anew = " ".join(dict.fromkeys((*evident, *stated)))
        return [text for text in dict.fromkeys(part.strip() for part in (*tried, anew)) if text]

    def _propose(self, case: Case, diagnosis: Diagnosis) -> Card:
        covered = {mechanism_of(chunk): chunk.skill_id for chunk in case.bank.chunks}
        chosen = next((name for name in diagnosis.mechanisms if name not in covered), diagnosis.mechanisms[0])
        target = covered.get(chosen)
        return Card(
            card_id=case.card_id(self.name),
            channel=case.channel,
            analyst=self.name,
            checkpoint=case.checkpoint,
            step=case.step,
            group_index=case.group_index,
            outcome="PROPOSE_REWRITE" if target else "PROPOSE_ADD",
            reason="",
            target=target,
            privileged_audit=_audit(case, diagnosis),
            deployable_abstraction=abstraction(self._mechanisms[chosen], self._style, case.bank),
        )

    def _success(self, case: Case) -> Card:
        """What a successful episode rested on: the first need whose evidence it used and that was not plainly said."""
        bench = Workbench(self._world, case)
        final = case.trace["final"]
        used = [need for need in _needs(bench) if need.mechanism not in (None, "stated") and _used(case, need)]
        audit = replace(
            bare_audit(case),
            category="success",
            repair=tuple(action for action in case.actions if action),
            ending={"purchase": final["purchase"]},
            reward_detail=dict(final["reward_detail"]),
            verified=bool(final["success"]),
        )
        if not used or used[0].mechanism is None:
            return no_proposal(case, self.name, "needed_no_care", audit)
        card = no_proposal(case, self.name, "", audit)
        lesson = abstraction(self._mechanisms[used[0].mechanism], self._style, case.bank)
        return replace(card, outcome="PROPOSE_ADD", deployable_abstraction=lesson)


def abstraction(mechanism: Mechanism, style: Style, bank: Bank) -> Abstraction:
    """The mechanism's first wording that no chunk of the bank has already."""
    present = {(chunk.applies_when, chunk.procedure) for chunk in bank.chunks}
    wordings = mechanism.wordings(style)
    fresh = next((w for w in wordings if (w.applies_when, w.procedure) not in present), wordings[0])
    return Abstraction(
        mechanism.name, mechanism.title, fresh.applies_when, fresh.procedure, mechanism.verify, mechanism.avoid
    )


def _needs(bench: Workbench) -> tuple[Need, ...]:
    reset = bench.case.trace["reset"]
    ceiling = bench.world.shop.price_upper(bench.task)
    return task_needs(bench.task, ceiling, reset["task_instruction"], reset.get("user_persona"))


def _used(case: Case, need: Need) -> bool:
    """Whether the episode acted on the need: searched for its value or chose it, or bought within the ceiling."""
    if need.kind == "price":
        return True
    return any(
        (verb == "search" and not lacks_word(value, need.value))
        or (verb == "click" and resembles(value.partition("=")[2], need.value))
        for verb, value in map(_parsed, case.actions)
    )


def _explain(bench: Workbench, repair: Repair, needs: tuple[Need, ...], pages: int) -> Diagnosis:
    """Name the category and what the changed decision had neglected."""
    state = bench.states[repair.decision]
    searched, query = repair.actions[0].startswith("search["), _original_query(bench.case.actions[repair.decision])
    if state["page_type"] == "product_detail":
        category, neglected = _product_fault(bench, repair, needs)
    elif searched:
        category = "search_missed"
        neglected = [need for need in needs if query and need.kind != "price" and lacks_word(query, need.value)]
    else:
        category, neglected = _choice_fault(bench, repair, needs)
    if pages and f"click[{NEXT}]" in repair.actions:
        return Diagnosis("results_not_searched", repair, tuple(neglected), ("further",))
    observable = tuple(dict.fromkeys(need.mechanism for need in neglected if need.mechanism))
    if neglected:
        return Diagnosis(category, repair, tuple(neglected), observable)
    if searched and query:
        return Diagnosis("search_lost_words", repair, (), ("stated",))
    wasted = sum(step["action"] is None or _refused(step) for step in bench.case.trace["steps"])
    name = "recover" if wasted >= _WASTED else "finish"
    return Diagnosis("wasted_steps" if name == "recover" else "gave_up", repair, (), (name,))


def _product_fault(bench: Workbench, repair: Repair, needs: tuple[Need, ...]) -> tuple[str, list[Need]]:
    """On a product that fits: which needs the selection that was made (or bought) left unmet."""
    final = bench.case.trace["final"] or {}
    purchase = final.get("purchase") or {}
    bought_here = purchase.get("asin") == repair.opened.asin
    selected = purchase["options"] if bought_here else _last_selection(bench, repair)
    neglected = unmet_needs(needs, bench.score, repair.opened, selected)
    kinds = {need.kind for need in neglected}
    if "price" in kinds:
        return "budget_broken", neglected
    return ("wrong_option" if "option" in kinds else "missing_option"), neglected


def _last_selection(bench: Workbench, repair: Repair) -> dict[str, str]:
    """What was selected on the product when it was last looked at, completed by what fits."""
    pages = [state for state in bench.states if state["page_type"] == "product_detail"]
    seen = [state for state in pages if state["product"]["asin"] == repair.opened.asin]
    return {**repair.selected, **(seen[-1]["selected_options"] if seen else {})}


def _choice_fault(bench: Workbench, repair: Repair, needs: tuple[Need, ...]) -> tuple[str, list[Need]]:
    """Where a fitting result was listed: what the result that was opened instead does not meet."""
    opened = _opened(bench, repair.decision)
    if opened is None:
        return "product_dismissed", []
    reference = _first_values(opened)
    neglected = unmet_needs(needs, bench.score, opened, reference)
    if any(need.kind == "price" for need in neglected):
        listed = opened.pricing[0] if opened.pricing else None
        ceiling = next(float(need.value) for need in neglected if need.kind == "price")
        return ("price_not_rechecked" if listed is not None and listed <= ceiling else "budget_broken"), neglected
    return "wrong_product", neglected


def _opened(bench: Workbench, decision: int) -> Product | None:
    """The product that the original decision on a results page opened."""
    clicked = _parsed(bench.case.actions[decision])
    rows = bench.states[decision]["products"]
    asin = next((row["asin"] for row in rows if clicked == ("click", row["asin"].lower())), None)
    return bench.world.catalog.products[asin] if asin else None


def _first_values(product: Product) -> dict[str, str]:
    return {axis: options[0].value for axis, options in product.options.items()}


def _original_query(action: str | None) -> str:
    verb, query = _parsed(action)
    return query if verb == "search" else ""


def _parsed(action: str | None) -> tuple[str, str]:
    """Verb and argument; both empty for what is no action."""
    try:
        verb, argument = parse_action(action or "")
    except NotAnAction:
        return "", ""
    return verb.casefold(), argument or ""


def _refused(step: dict[str, Any]) -> bool:
    feedback: dict[str, Any] = (step["environment"] or {}).get("action_feedback") or {}
    return not feedback.get("valid", True)


def _audit(case: Case, diagnosis: Diagnosis) -> PrivilegedAudit:
    repair = diagnosis.repair
    return replace(
        bare_audit(case),
        category=diagnosis.category,
        decision_step=repair.decision,
        original_action=case.actions[repair.decision],
        repair=repair.actions,
        ending={"purchase": repair.purchase},
        reward_detail=repair.reward_detail,
        verified=True,
        notes=_notes(diagnosis.neglected),
    )


def _notes(neglected: Sequence[Need]) -> str:
    return "; ".join(f"neglected {need.kind} {need.value} ({need.mechanism or 'unobservable'})" for need in neglected)
