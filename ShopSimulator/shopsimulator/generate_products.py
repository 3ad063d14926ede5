"""The products of a generated world: many near-duplicates, told apart by one word or one price.

Every product is a distinct (brand, material, noun); a world of more products than there are such names goes on with a
second series (`mk2`), and so on. It is sold by the shop of its brand. It comes in a few colours, which cost nothing,
and in a few sizes, which set the price; both are listed in random order, and a larger size is not always the dearer
one, so that only choosing one tells what it costs. Asins share their leading digits, so that a small model copies few
of them from the page. Two irregularities of real shops are kept: the price in the result
list is crawled and sometimes out of date (lower than anything the page then offers), and a few products have two
price-changing axes, which nothing can price: the reader excludes them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from typing import Any

from shopsimulator.words import Vocabulary

STALE_SHARE = 0.05  # products whose listed price is no longer true
PRICE_STEP = 5
HIGHEST_PRICE = 120


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a world is. Word counts keep about 5 products for each (noun, material) and (noun, brand)."""

    train: int
    val: int
    test: int
    products: int
    unpriceable: int
    nouns_per_family: int
    families: int
    brands: int
    materials: int


SCALES = {
    "full": Scale(3726, 400, 400, 4720, 40, nouns_per_family=5, families=8, brands=24, materials=20),
    "small": Scale(160, 40, 40, 320, 5, nouns_per_family=2, families=4, brands=10, materials=8),
}


def make_products(rng: random.Random, scale: Scale, words: Vocabulary) -> list[dict[str, Any]]:
    """Catalog records without tasks, `scale.products` that can be priced and `scale.unpriceable` that cannot."""
    nouns = [
        (department, family, noun)
        for department, family, members in words.families[: scale.families]
        for noun in members[: scale.nouns_per_family]
    ]
    names = list(combinations(words.brands[: scale.brands], words.materials[: scale.materials], nouns))
    count = scale.products + scale.unpriceable
    records = [
        _record(rng, words, asin, series, brand, material, *noun)
        for asin, (series, (brand, material, noun)) in zip(_asins(rng, count), _named(rng, names, count))
    ]
    for record in records[scale.products :]:
        options = record["customization_options"]
        options[words.pack_axis] = [
            {"value": value, "price": price} for value, price in zip(words.packs, _prices(rng, len(words.packs)))
        ]
    rng.shuffle(records)
    return records


def _asins(rng: random.Random, count: int) -> list[str]:
    """Distinct numbers of 8 digits, of which as few vary as `count` needs, but at least 4."""
    varied = max(4, len(str(count * 10 // 9)))
    return [str(10**7 + number) for number in rng.sample(range(10**varied), count)]


def _named(rng: random.Random, names: Sequence[Any], count: int) -> Iterator[tuple[int, Any]]:
    """`count` distinct (series, name), a full series before the next one."""
    for series in range(1, -(-count // len(names)) + 1):
        left = count - (series - 1) * len(names)
        for name in rng.sample(names, min(left, len(names))):
            yield series, name


def _record(
    rng: random.Random,
    words: Vocabulary,
    asin: str,
    series: int,
    brand: str,
    material: str,
    department: str,
    family: str,
    noun: str,
) -> dict[str, Any]:
    title = words.joint.join((brand, material, noun, *([f"mk{series}"] if series > 1 else ())))
    feature = rng.choice(words.features)
    colours = rng.sample(words.colours, rng.randint(3, 4))
    sizes = rng.sample(words.sizes, rng.randint(2, 3))
    prices = _prices(rng, len(sizes))
    return {
        "asin": asin,
        "title": title,
        "shop_name": brand,
        "category": f"{department}›{family}›{noun}",
        "pricing": _listed(rng, prices),
        "customization_options": {
            words.colour_axis: [{"value": colour} for colour in colours],
            words.size_axis: [{"value": size, "price": float(price)} for size, price in zip(sizes, prices)],
        },
        "attribute": [material, feature],
        "full_description": words.description.format(title=title, feature=feature),
    }


def _prices(rng: random.Random, count: int) -> list[int]:
    """`count` different prices in random order, the dearest up to about twice the cheapest."""
    lowest = PRICE_STEP * rng.randint(2, 16)
    dearer: Sequence[int] = range(lowest + PRICE_STEP, min(2 * lowest + 4 * PRICE_STEP, HIGHEST_PRICE) + 1, PRICE_STEP)
    return rng.sample([lowest, *rng.sample(dearer, count - 1)], count)


def _listed(rng: random.Random, prices: Sequence[int]) -> list[float]:
    low, high = min(prices), max(prices)
    if rng.random() < STALE_SHARE:
        low = max(PRICE_STEP, low - PRICE_STEP * rng.randint(1, 4))
    return [float(low), float(high)]
