"""A scripted shopper for the generated (English) world: the teacher of the warm-up checkpoint.

It knows nothing a policy does not see. `read_errand` takes the wish apart as written in the instruction, with the
evidence of the persona; `next_action` is a pure function of the page. What makes two shoppers differ is their *care*:
the set of needs they take care of. With care for a need, they use the evidence (search with the usual brand, with the
material searched last, with the own colour and click it; open the cheapest result, take the cheapest size, go back
when the page asks for more than the limit). Without, they take the first of everything.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

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


def next_action(
    errand: Errand, care: Collection[Need], state: dict[str, Any], left: Collection[str], steps: int
) -> Action:
    """What a shopper with this care does on the page; `left`: titles it went back from, `steps`: what remains."""
    if state["page"] == "search":
        return "search", errand.query(care)
    if state["page"] == "results":
        return _on_results(errand, care, state, left)
    return _on_product(errand, care, state, steps)


def _on_results(errand: Errand, care: Collection[Need], state: dict[str, Any], left: Collection[str]) -> Action:
    if not set(errand.query(care).split()) <= set(state["query"].split()):
        return "search", errand.query(care)
    rows = [row for row in state["results"] if row["title"] not in left]
    fitting = [row for row in rows if _named(errand, care, row["title"])] or rows
    if not fitting:
        return "click", state["actions"][-1]
    chosen = min(fitting, key=lambda row: row["price"]) if "budget" in care else fitting[0]
    return "click", chosen["label"]


def _on_product(errand: Errand, care: Collection[Need], state: dict[str, Any], steps: int) -> Action:
    options: dict[str, list[dict[str, Any]]] = state["product"]["options"]
    wanted = {axis: _wanted(errand, care, axis, values) for axis, values in options.items()}
    if steps > _STEPS_TO_BUY and not _acceptable(errand, care, state["product"], wanted):
        return "click", "back"
    for axis, value in wanted.items():
        selected = state["selected_options"].get(axis)
        if selected is None or (selected != value and _cares_about(care, axis)):
            return "click", value
    return "click", "buy"


def _wanted(errand: Errand, care: Collection[Need], axis: str, values: list[dict[str, Any]]) -> str:
    """The value to choose on an axis; the first one where nothing speaks for another."""
    names = [str(value["value"]) for value in values]
    if axis == ENGLISH.colour_axis and "colour" in care and errand.colour in names:
        return errand.colour
    if axis == ENGLISH.size_axis and "budget" in care:
        return str(min(values, key=lambda value: value["price"])["value"])
    return names[0]


def _cares_about(care: Collection[Need], axis: str) -> bool:
    return {ENGLISH.colour_axis: "colour", ENGLISH.size_axis: "budget"}[axis] in care


def _acceptable(errand: Errand, care: Collection[Need], product: dict[str, Any], wanted: Mapping[str, str]) -> bool:
    """Whether the opened product can be what is wanted; with less care, fewer things speak against it."""
    if not _named(errand, care, product["title"]):
        return False
    if "colour" in care and wanted[ENGLISH.colour_axis] != errand.colour:
        return False
    cheapest = min(value["price"] for value in product["options"][ENGLISH.size_axis])
    return "budget" not in care or errand.limit is None or cheapest <= errand.limit


def _named(errand: Errand, care: Collection[Need], title: str) -> bool:
    answers = errand.answers([need for need in care if need != "colour"])
    return set(answers) | set(errand.stated) <= set(title.split())
