"""The mechanisms a shopper can lack, and short ways to say each of them.

A **mechanism** is the kind of care that turns a failure into a purchase that fits: using one piece of evidence, or
handling the page in one way. It names no product, no value and no number, so what is learned from one task is text for
all of them. The rule-based analyst finds out *which* mechanism a failure lacked; the wording comes from here.

Each mechanism has wordings in two lengths. `short` ones suit the compact prompt, which a model of a few million
parameters reads; `full` ones suit a real language model. Of each, the first is proposed first; the others are kept for
rewrites and for the case that a gate turned the first one down. They are English here and Chinese in
`mechanisms_zh.py`: a chunk is written in the language of the catalog.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from intraskill.core.records import Style
from intraskill.families.shop.mechanisms_zh import CHINESE
from intraskill.families.shop.wordings import Mechanism, mechanism
from intraskill.skills.bank import Chunk

ENGLISH: tuple[Mechanism, ...] = (
    mechanism(
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
    mechanism(
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
    mechanism(
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
    mechanism(
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
    mechanism(
        "budget",
        "Compare prices before choosing",
        "the chosen variant costs no more than the limit",
        "the first size listed",
        "price cheapest limit budget cost",
        (
            ("price limit", ("open the cheapest result", "too dear: choose another size")),
            ("limit on the price", ("compare prices", "open the lowest", "change the size until it fits")),
            ("under a price", ("choose the cheapest result", "choose another size while it costs more")),
        ),
        (
            (
                "The task sets a limit on the price.",
                (
                    "Compare the prices of the results and open a product that can meet the limit.",
                    "Choose a variant and read the price that the page then shows.",
                    "While it is above the limit, choose another variant; when all are, go back to the results.",
                ),
            ),
            (
                "A budget is given and variants of one product differ in price.",
                (
                    "Choose one variant after another and compare the prices the page shows for them.",
                    "Buy a variant that keeps the total within the budget.",
                    "If none does, go back and open a cheaper result.",
                ),
            ),
        ),
    ),
    mechanism(
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
    mechanism(
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
    mechanism(
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
    mechanism(
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
_LANGUAGES: Mapping[str, Mapping[str, Mechanism]] = {
    language: {item.name: item for item in items} for language, items in (("en", ENGLISH), ("zh", CHINESE))
}
MECHANISMS = _LANGUAGES["en"]


class ShopMechanisms:
    """The `Mechanisms` of the shop, in whichever language they are worded."""

    def names(self) -> Collection[str]:
        return MECHANISMS.keys()

    def wordings(self, name: str, title: str, style: Style) -> list[tuple[str, tuple[str, ...]]]:
        found = known_mechanism(name, title)
        return [(wording.applies_when, wording.procedure) for wording in found.wordings(style)] if found else []

    def of(self, chunk: Chunk) -> str | None:
        return mechanism_of(chunk)


def mechanisms(language: str) -> Mapping[str, Mechanism]:
    """All mechanisms by name, worded in the language; anything but `zh` reads English."""
    return _LANGUAGES["zh" if language == "zh" else "en"]


def known_mechanism(name: str, title: str) -> Mechanism | None:
    """The mechanism of this name and title, in whichever language it is worded."""
    found = (items[name] for items in _LANGUAGES.values() if name in items)
    return next((item for item in found if item.title == title), None)


def mechanism_of(chunk: Chunk) -> str | None:
    """The mechanism a chunk is about: as its metadata says, else the one most of whose cues it holds, titles first."""
    named = chunk.metadata.get("mechanism")
    if isinstance(named, str):
        return named
    title, body = chunk.title.lower(), " ".join((chunk.applies_when, *chunk.procedure)).lower()
    scores = dict.fromkeys(MECHANISMS, 0)
    for items in _LANGUAGES.values():
        for name, item in items.items():
            scores[name] += 2 * _cues(item, title) + _cues(item, f"{title} {body}")
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] else None


def _cues(item: Mechanism, text: str) -> int:
    """How many cues the text holds; Chinese has no spaces, so there a cue counts wherever it stands."""
    words = set(text.replace(".", " ").split())
    return sum(cue in (words if cue.isascii() else text) for cue in item.cues)
