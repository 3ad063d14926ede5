"""A scripted shopper for the generated (English) world: the teacher of the warm-up checkpoint.

It knows nothing a policy does not see. `read_errand` takes the wish apart as written in the instruction, with the
evidence of the persona; `next_action` is a pure function of the page and of what this episode has tried already. What
makes two shoppers differ is their *care*: the set of needs they take care of. With care for a need, they use the
evidence (search with the usual brand, with the material searched last, with the own colour and choose it; open a
result whose price starts within the limit, and change the size while the page shows a price above it). Without, they
take the first of everything.

Sizes do not show what they cost before they are chosen. The first one is tried first, then the last of those that are
offered, and again the last: whichever was chosen is not offered, so this order visits all of up to three sizes, and
the page alone tells which is next.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from shopsimulator.actions import BACK, BUY, NEXT, PREVIOUS, option_action
from shopsimulator.words import ENGLISH

from intraskill.core.records import Reset
from intraskill.families.shop.persona import persona_of

Need = Literal["brand", "recent", "colour", "budget"]
Action = tuple[str, str]  # tool and argument

_MARKS: tuple[tuple[Need, re.Pattern[str]], ...] = (
    ("brand", re.compile(r"usual brand")),
    ("recent", re.compile(r"(searched|looked at) last")),
    ("colour", re.compile(r"my colour|colour i like")),
    ("budget", re.compile(r"(?:under|at most|not over) (\d+)")),
)
_NOUNS = frozenset(noun for _, _, nouns in ENGLISH.families for noun in nouns)
_NAMES = frozenset((*ENGLISH.brands, *ENGLISH.materials))
_STEPS_TO_BUY = 5  # back, open, colour, size, buy: with fewer steps left, going back comes too late


@dataclass(frozen=True, slots=True)
class Errand:
    """What the shopper is after: what is said, what is left open, and the persona's answers to that."""

    needs: tuple[Need, ...]
    stated: tuple[str, ...]  # words of the instruction that name the product, noun last
    brand: str
    material: str
    colour: str
    limit: float | None

    def answers(self, care: Collection[Need]) -> list[str]:
        """The words a careful shopper adds to the search."""
        found: dict[Need, str] = {"colour": self.colour, "brand": self.brand, "recent": self.material}
        return [word for need, word in found.items() if need in care]

    def query(self, care: Collection[Need]) -> str:
        return " ".join((*self.answers(care), *self.stated))


@dataclass(slots=True)
class Tried:
    """What an episode has tried so far: products it went back from, and sizes chosen on each product."""

    left: set[str] = field(default_factory=set)  # asins
    sizes: dict[str, set[str]] = field(default_factory=dict)

    def note(self, action: Action, state: Mapping[str, Any]) -> None:
        """Remember what `action` does on the page of `state`."""
        if state["page_type"] != "product_detail":
            return
        asin, (_, value) = state["product"]["asin"], action
        if value == PREVIOUS:
            self.left.add(asin)
        axis, _, chosen = value.partition("=")
        if axis == ENGLISH.size_axis:
            self.sizes.setdefault(asin, set()).add(chosen)


def read_errand(reset: Reset) -> Errand:
    """The errand as instruction and persona tell it."""
    marks = {need: match for need, mark in _MARKS if (match := mark.search(reset.instruction))}
    words = reset.instruction.split()
    noun = next(word for word in words if word in _NOUNS)
    persona = persona_of(reset)
    taste: Mapping[str, Any] = persona["兴趣偏好"]
    return Errand(
        needs=tuple(marks),
        stated=(*(word for word in words if word in _NAMES), noun),
        brand=next(entry["品牌名称"] for entry in taste["品牌偏好"] if entry["偏好程度"] == "高"),
        material=persona["行为特征"]["最近14天搜索关键词"][-1],
        colour=taste["商品属性偏好"]["颜色"][0],
        limit=float(marks["budget"].group(1)) if "budget" in marks else None,
    )


def next_action(errand: Errand, care: Collection[Need], state: Mapping[str, Any], tried: Tried, steps: int) -> Action:
    """What a shopper with this care does on the page, with `steps` left."""
    if state["page_type"] == "search_home":
        return "search", errand.query(care)
    if state["page_type"] == "search_results":
        return "click", _on_results(errand, care, state, tried, steps)
    return "click", _on_product(errand, care, state, tried, steps)


def _on_results(errand: Errand, care: Collection[Need], state: Mapping[str, Any], tried: Tried, steps: int) -> str:
    if steps > _STEPS_TO_BUY and not set(errand.query(care).split()) <= set(state["search_text"].split()):
        return BACK
    rows = [row for row in state["products"] if row["asin"] not in tried.left]
    fitting = [row for row in rows if _named(errand, care, row["title"])] or rows
    if not fitting:
        return NEXT if NEXT in state["actions"] else BACK
    if "budget" in care and errand.limit is not None:
        fitting = [row for row in fitting if lowest_price(row["price"]) <= errand.limit] or fitting
    return str(fitting[0]["asin"])


def _on_product(errand: Errand, care: Collection[Need], state: Mapping[str, Any], tried: Tried, steps: int) -> str:
    if steps > _STEPS_TO_BUY and not _acceptable(errand, care, state, tried):
        return PREVIOUS
    for axis in state["missing_option_axes"]:
        values = state["available_options"][axis]
        own = axis == ENGLISH.colour_axis and "colour" in care and errand.colour in values
        return option_action(axis, errand.colour if own else values[0])
    if "colour" in care and (change := option_action(ENGLISH.colour_axis, errand.colour)) in state["actions"]:
        return change
    if "budget" in care and _too_dear(errand, state) and (sizes := _other_sizes(state, tried)):
        return option_action(ENGLISH.size_axis, sizes[-1])
    return BUY


def _acceptable(errand: Errand, care: Collection[Need], state: Mapping[str, Any], tried: Tried) -> bool:
    """Whether the opened product can be what is wanted; with less care, fewer things speak against it."""
    if not _named(errand, care, state["product"]["title"]):
        return False
    if "colour" in care and errand.colour not in state["available_options"][ENGLISH.colour_axis]:
        return False
    return "budget" not in care or not _too_dear(errand, state) or bool(_other_sizes(state, tried))


def _too_dear(errand: Errand, state: Mapping[str, Any]) -> bool:
    """Whether the chosen size costs more than the limit; unknown prices are not too dear."""
    return errand.limit is not None and state.get("selected_price", 0.0) > errand.limit


def _other_sizes(state: Mapping[str, Any], tried: Tried) -> list[str]:
    """Sizes of the product that have not been chosen yet, as listed."""
    known = tried.sizes.get(state["product"]["asin"], set())
    return [size for size in state["available_options"][ENGLISH.size_axis] if size not in known]


def lowest_price(text: str) -> float:
    """The lower end of a listed price: 30.0 of `30.0 to 55.0`."""
    return float(text.partition(" to ")[0])


def _named(errand: Errand, care: Collection[Need], title: str) -> bool:
    answers = errand.answers([need for need in care if need != "colour"])
    return set(answers) | set(errand.stated) <= set(title.split())
