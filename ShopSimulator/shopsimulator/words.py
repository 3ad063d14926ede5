"""The vocabulary of generated worlds, in one language each.

A generated product is called `{brand} {material} {noun}`. Words are chosen so that none is part of another and none
resembles another: what makes two products differ is then always one whole word on the page, never a matter of
spelling, and the lenient matching of the reward takes none for another. Brands are invented; they name the shop.
Phrases carry `{thing}` (what is wanted, as far as the shopper says it) and, for a budget, `{limit}`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Everything a generated world needs to say in one language. `families` are (department, family, nouns)."""

    language: str
    joint: str  # between the words of a title
    families: tuple[tuple[str, str, tuple[str, ...]], ...]
    brands: tuple[str, ...]
    materials: tuple[str, ...]
    colours: tuple[str, ...]
    sizes: tuple[str, ...]
    packs: tuple[str, ...]
    features: tuple[str, ...]
    places: tuple[str, ...]
    colour_axis: str
    size_axis: str
    pack_axis: str
    description: str  # {title} {feature}
    plain: tuple[str, ...]  # wordings of what is wanted, by what the shopper leaves to be found out
    brand: tuple[str, ...]
    recent: tuple[str, ...]
    colour: tuple[str, ...]
    budget: tuple[str, ...]
    and_colour: str  # the same wishes as additions to another one
    and_budget: str
    full: str  # the complete instruction: {title} {colour} {size} {limit}, the last one either empty or:
    full_budget: str


ENGLISH = Vocabulary(
    language="en",
    joint=" ",
    families=(
        ("home", "storage", ("shelf", "box", "basket", "hook", "rack")),
        ("home", "lighting", ("lamp", "candle", "lantern", "torch", "chandelier")),
        ("kitchen", "tableware", ("mug", "bowl", "plate", "jug", "tray")),
        ("kitchen", "cooking", ("pan", "kettle", "grater", "knife", "whisk")),
        ("furniture", "seating", ("chair", "stool", "bench", "sofa", "hammock")),
        ("fashion", "accessories", ("scarf", "belt", "hat", "purse", "glove")),
        ("bath", "grooming", ("brush", "comb", "razor", "mirror", "soap")),
        ("leisure", "toys", ("ball", "kite", "puzzle", "drum", "flute")),
    ),
    brands=(
        "norvik",
        "tarnby",
        "veldor",
        "quessa",
        "brimlo",
        "osterly",
        "kappen",
        "luvano",
        "mirrel",
        "sondra",
        "halvex",
        "pirano",
        "dunmora",
        "fexley",
        "gorlan",
        "ivessa",
        "jorrick",
        "kestra",
        "lomanti",
        "nuvella",
        "ombrel",
        "rudane",
        "tavix",
        "zellano",
    ),
    materials=(
        "oak",
        "pine",
        "walnut",
        "bamboo",
        "steel",
        "copper",
        "brass",
        "iron",
        "glass",
        "ceramic",
        "marble",
        "leather",
        "linen",
        "cotton",
        "wool",
        "felt",
        "cork",
        "rattan",
        "resin",
        "paper",
    ),
    colours=("red", "blue", "green", "black", "white", "yellow", "pink", "grey"),
    sizes=("small", "medium", "large", "giant"),
    packs=("single", "double", "triple"),
    features=("light", "sturdy", "foldable", "washable", "handmade", "stackable"),
    places=("north", "south", "east", "west"),
    colour_axis="colour",
    size_axis="size",
    pack_axis="pack",
    description="{title}, {feature}",
    plain=("need {thing}", "want {thing}", "looking for {thing}"),
    brand=("need {thing} of my usual brand", "want {thing} by my usual brand", "my usual brand of {thing}"),
    recent=(
        "need {thing} in the material i searched last",
        "want {thing} of the material i looked at last",
        "looking for {thing} made of what i searched last",
    ),
    colour=("need {thing} in my colour", "want {thing} in the colour i like", "my colour of {thing}"),
    budget=("need {thing} under {limit}", "want {thing} for at most {limit}", "looking for {thing} not over {limit}"),
    and_colour="{wish} in my colour",
    and_budget="{wish} under {limit}",
    full="I want the {title}, colour {colour}, size {size}{limit}.",
    full_budget=", not over {limit}",
)
