"""The mechanisms a shopper can lack, and short ways to say each of them.

A **mechanism** is the kind of care that turns a failure into a purchase that fits: using one piece of evidence, or
handling the page in one way. It names no product, no value and no number, so what is learned from one task is text for
all of them. The rule-based analyst finds out *which* mechanism a failure lacked; the wording comes from here.

Each mechanism has wordings in two lengths. `short` ones suit the compact prompt, which a model of a few million
parameters reads; `full` ones suit a real language model. Of each, the first is proposed first; the others are kept for
rewrites and for the case that a gate turned the first one down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from intraskill.skills.bank import Chunk

Style = Literal["full", "compact"]


@dataclass(frozen=True, slots=True)
class Wording:
    """One way to say a mechanism: the condition and the steps."""

    applies_when: str
    procedure: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One kind of care. `cues` are words by which a chunk that does not name its mechanism is recognised."""

    name: str
    title: str
    verify: str
    avoid: str
    cues: frozenset[str]
    short: tuple[Wording, ...]
    full: tuple[Wording, ...]

    def wordings(self, style: Style) -> tuple[Wording, ...]:
        return self.short if style == "compact" else self.full


def _mechanism(
    name: str,
    title: str,
    verify: str,
    avoid: str,
    cues: str,
    short: tuple[tuple[str, tuple[str, ...]], ...],
    full: tuple[tuple[str, tuple[str, ...]], ...],
) -> Mechanism:
    wordings = tuple(Wording(*pair) for pair in short), tuple(Wording(*pair) for pair in full)
    return Mechanism(name, title, verify, avoid, frozenset(cues.split()), *wordings)


_ALL = (
    _mechanism(
        "brand",
        "Search with the usual brand",
        "the opened product carries that brand",
        "the first result of a search without the brand",
        "brand",
        (
            ("usual brand", ("put the high brand in the query",)),
            ("brand left open", ("search with the brand liked most",)),
            ("usual brand wanted", ("read the persona", "add its high brand to the search")),
        ),
        (
            (
                "The task asks for the usual brand, or leaves the brand open.",
                (
                    "Find the brand with the highest preference in the shopper profile.",
                    "Put this brand into the search query together with the kind of product.",
                    "Open only results that carry the brand.",
                ),
            ),
            (
                "The wished brand follows from the shopper profile.",
                (
                    "Read which brand the shopper prefers most.",
                    "Search for that brand and the product's name.",
                    "Before buying, check that the title shows the brand.",
                ),
            ),
        ),
    ),
    _mechanism(
        "recent",
        "Search with what was searched last",
        "the opened product is made of it",
        "older searches",
        "last searched recent searches material",
        (
            ("searched material", ("put the last searched word in the query",)),
            ("material left open", ("search with what was searched last",)),
            ("material looked at last", ("read the persona", "add its last search to the search")),
        ),
        (
            (
                "The task refers to something the shopper searched for or looked at recently.",
                (
                    "Find the recent search keywords in the shopper profile; the last one is the newest.",
                    "Put the newest keyword into the search query together with the kind of product.",
                    "Open only results that match the keyword.",
                ),
            ),
            (
                "A property is left open that the recent searches of the shopper answer.",
                (
                    "Take the newest search keyword of the profile, not an older one.",
                    "Search for this keyword and the product's name.",
                ),
            ),
        ),
    ),
    _mechanism(
        "colour",
        "Search with the own colour and choose it",
        "that colour is selected",
        "the first colour listed",
        "colour color",
        (
            ("my colour", ("put the persona colour in the query", "choose it")),
            ("colour left open", ("search with the persona colour", "click that colour")),
            ("own colour wanted", ("add the liked colour to the search", "select it")),
        ),
        (
            (
                "The task asks for the shopper's colour, or leaves the colour open.",
                (
                    "Find the preferred colour in the shopper profile.",
                    "Put the colour into the search query together with the kind of product.",
                    "On the product's page, select this colour before buying.",
                ),
            ),
            (
                "A colour has to be chosen and the profile tells which one is liked.",
                (
                    "Read the preferred colour in the profile.",
                    "Open a product that offers it and click it; go back when it is not offered.",
                ),
            ),
        ),
    ),
    _mechanism(
        "preference",
        "Follow the preferences of the profile",
        "every preference that applies is met by the selection",
        "a default value where the profile names another",
        "preference prefers persona profile",
        (
            ("property left open", ("read the persona", "search with what it likes", "choose it")),
            ("taste wanted", ("choose what the persona likes",)),
        ),
        (
            (
                "An option or property is left open that the shopper profile answers.",
                (
                    "List the preferences of the profile that concern this kind of product.",
                    "Add them to the search query where they describe the product.",
                    "Select the option values that match them before buying.",
                ),
            ),
            (
                "Several option values fit the task and the profile prefers one.",
                (
                    "Compare the values with the profile.",
                    "Select the preferred value, also where it is not listed first.",
                ),
            ),
        ),
    ),
    _mechanism(
        "budget",
        "Compare prices before choosing",
        "the chosen variant costs no more than the limit",
        "the first size listed",
        "price cheapest limit budget cost",
        (
            ("price limit", ("take the cheapest result and the cheapest size", "back if both cost too much")),
            ("limit on the price", ("compare prices", "open the lowest", "click the lowest size")),
            ("under a price", ("choose the cheapest result", "choose the cheapest size")),
        ),
        (
            (
                "The task sets a limit on the price.",
                (
                    "Compare the prices of the results and open a product that can meet the limit.",
                    "Compare the prices of its variants and select one within the limit.",
                    "Check the price shown for the selection; go back to the results when it is above the limit.",
                ),
            ),
            (
                "A budget is given and variants of one product differ in price.",
                (
                    "Read the price beside every option value.",
                    "Select a value that keeps the total within the budget, starting from the cheapest.",
                    "If none does, go back and open a cheaper result.",
                ),
            ),
        ),
    ),
    _mechanism(
        "stated",
        "Search with every word of the wish",
        "the opened product has every stated property",
        "dropping words of the task",
        "stated words wish task",
        (
            ("every search", ("use all words of the wish",)),
            ("stated word", ("keep it in the query", "open what has it")),
        ),
        (
            (
                "The task states properties of the product.",
                (
                    "Put every stated property and the kind of product into the search query.",
                    "Open a result whose title shows all of them.",
                    "Select the stated option values before buying.",
                ),
            ),
            (
                "The results do not show what the task states.",
                ("Search again with the words of the task that the results lack.",),
            ),
        ),
    ),
    _mechanism(
        "further",
        "Look beyond the first results",
        "the opened product has every wanted property",
        "opening a result that lacks a wanted property",
        "next further more results",
        (
            ("no result fits", ("click next",)),
            ("results lack a word", ("look at more results",)),
        ),
        (
            (
                "No result on the page has every wanted property.",
                ("Look at the next page of results before opening anything.", "Open the first result that fits."),
            ),
        ),
    ),
    _mechanism(
        "finish",
        "Buy before the steps run out",
        "the purchase is made",
        "repeating what has been done",
        "buy finish steps",
        (
            ("options chosen", ("buy",)),
            ("few steps left", ("choose the options", "buy")),
        ),
        (
            (
                "A fitting product is open and steps are running out.",
                (
                    "Select a value for every option that is still open.",
                    "Check the selection once against the task, then buy.",
                ),
            ),
        ),
    ),
    _mechanism(
        "recover",
        "Recover from an action that was refused",
        "the next action is one that the page lists",
        "repeating an action that was refused",
        "refused invalid error recover",
        (
            ("not clickable", ("read the page", "click what it lists")),
            ("action refused", ("choose another one",)),
        ),
        (
            (
                "The page refused the last action.",
                (
                    "Read the reason it gives.",
                    "Choose an action among those the page lists as clickable, written exactly as shown.",
                ),
            ),
        ),
    ),
)
MECHANISMS: Mapping[str, Mechanism] = {mechanism.name: mechanism for mechanism in _ALL}


def mechanism_of(chunk: Chunk) -> str | None:
    """The mechanism a chunk is about: as its metadata says, else the one most of whose cues its text holds."""
    named = chunk.metadata.get("mechanism")
    if isinstance(named, str):
        return named
    words = set(" ".join((chunk.title, chunk.applies_when, *chunk.procedure)).lower().replace(".", " ").split())
    scores = {name: len(words & mechanism.cues) for name, mechanism in MECHANISMS.items()}
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] else None
