"""The tasks of a generated world: each needs exactly the care it is meant to need.

A task leaves some of its requirements to be found out: the usual *brand*, the material searched *recently*, the
preferred *colour* (all in the persona), or which variant meets the *budget* (on the pages). What was found out stands
in the goal: brand and material as attributes, which only titles and attributes meet, the colour as an option, the
limit as a ceiling on the chosen size. A shopper who takes care of a need searches with what the persona says, clicks
the wanted colour, opens the cheapest result and takes its cheapest size; one who does not takes the first of
everything. `Shopper` plays both against the real search index and
the real reward, and a task is admitted only if full care buys successfully and leaving out any part of it does not.
So the value of each kind of care is known, and luck is rare.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from itertools import combinations as subsets
from typing import Any, Literal

from shopsimulator.catalog import Catalog, Product, PurchaseTask
from shopsimulator.personas import Taste
from shopsimulator.reward import score_purchase
from shopsimulator.search import SearchIndex
from shopsimulator.words import Vocabulary

Need = Literal["brand", "recent", "colour", "budget"]

# Share of the tasks with each set of needs. Filled in this order, so that the hardest to find choose first.
MIX: tuple[tuple[tuple[Need, ...], float], ...] = (
    (("budget",), 0.22),
    (("brand", "budget"), 0.0125),
    (("recent", "budget"), 0.0125),
    (("brand", "colour"), 0.0125),
    (("recent", "colour"), 0.0125),
    (("colour",), 0.22),
    (("recent",), 0.215),
    (("brand",), 0.215),
    ((), 0.08),
)
SHELF = 4  # results a shopper looks at
_TRIES = 4  # wordings of one product before another is taken


@dataclass(frozen=True, slots=True)
class Wish:
    """One task before it has a number: what is said, what is left open, and what must be bought."""

    needs: tuple[Need, ...]
    stated: tuple[str, ...]  # words of the instruction that name the product
    taste: Taste
    task: PurchaseTask


def draw_wishes(
    rng: random.Random, catalog: Catalog, words: Vocabulary, brands: Sequence[str], materials: Sequence[str], count: int
) -> list[Wish]:
    """`count` admitted wishes, each for a product of its own, in random order."""
    shopper = Shopper(catalog, words)
    pool = list(catalog.products.values())
    rng.shuffle(pool)
    wishes: list[Wish] = []
    for needs, quota in _quotas(count):
        left: list[Product] = []
        for product in pool:
            if quota and (wish := _admitted(rng, shopper, words, product, needs, brands, materials)):
                wishes.append(wish)
                quota -= 1
            else:
                left.append(product)
        if quota:
            raise AssertionError(f"too few products for the tasks that need {needs}: enlarge the world")
        pool = left
    rng.shuffle(wishes)
    return wishes


class Shopper:
    """Buys for a wish with the given care, and tells whether that succeeded."""

    def __init__(self, catalog: Catalog, words: Vocabulary) -> None:
        self._catalog = catalog
        self._index = SearchIndex(catalog)
        self._words = words

    def succeeds(self, wish: Wish, care: Collection[Need]) -> bool:
        shelf = [self._catalog.products[hit.asin] for hit in self._index.search(self._query(wish, care), SHELF)]
        if not shelf:
            return False
        product = self._cheapest(shelf, wish.task.price_upper or 0.0) if "budget" in care else shelf[0]
        colours = [option.value for option in product.options[self._words.colour_axis]]
        sizes = product.options[self._words.size_axis]
        wanted = "colour" in care and wish.taste.colour in colours
        selected = {
            self._words.colour_axis: wish.taste.colour if wanted else colours[0],
            self._words.size_axis: (
                min(sizes, key=lambda size: size.price or 0) if "budget" in care else sizes[0]
            ).value,
        }
        goal = self._catalog.products[wish.task.asin]
        found = score_purchase(
            goal, wish.task, product, selected, price_upper=wish.task.price_upper, title_terms="lexical"
        )
        return found["r_success"] == 1

    def _query(self, wish: Wish, care: Collection[Need]) -> str:
        found = {"colour": wish.taste.colour, "brand": wish.taste.brand, "recent": wish.taste.material}
        return " ".join([*(found[need] for need in found if need in care), *wish.stated])

    def _cheapest(self, shelf: Sequence[Product], limit: float) -> Product:
        """The cheapest as listed; where its page asks for more than the limit, the next cheapest."""
        by_price = sorted(shelf, key=lambda product: product.pricing[0])
        return next((product for product in by_price if _lowest(self._words, product) <= limit), by_price[0])


def _quotas(count: int) -> list[tuple[tuple[Need, ...], int]]:
    """How many of `count` tasks have which needs; the last entry of `MIX` takes what rounding leaves."""
    quotas = [(needs, round(share * count)) for needs, share in MIX[:-1]]
    return [*quotas, (MIX[-1][0], count - sum(quota for _, quota in quotas))]


def _admitted(
    rng: random.Random,
    shopper: Shopper,
    words: Vocabulary,
    product: Product,
    needs: tuple[Need, ...],
    brands: Sequence[str],
    materials: Sequence[str],
) -> Wish | None:
    for _ in range(_TRIES):
        wish = _draw(rng, words, product, needs, brands, materials)
        partial = chain.from_iterable(subsets(needs, size) for size in range(len(needs)))
        if shopper.succeeds(wish, needs) and not any(shopper.succeeds(wish, care) for care in partial):
            return wish
    return None


def _draw(
    rng: random.Random,
    words: Vocabulary,
    product: Product,
    needs: tuple[Need, ...],
    brands: Sequence[str],
    materials: Sequence[str],
) -> Wish:
    brand, material = product.shop_name, product.attributes[0]
    noun = product.category.split("›")[-1]
    colour = rng.choice(product.options[words.colour_axis]).value
    named = _stated(rng, needs, brand, material)
    limit = _lowest(words, product) + 5 * rng.randint(0, 1) if "budget" in needs else None
    found_out = [word for need, word in (("brand", brand), ("recent", material)) if need in needs]
    stated = (*named, noun)
    task = PurchaseTask(
        task_id=0,
        asin=product.asin,
        instruction=_full(rng, words, product, colour, limit),
        instruction_simple=_phrase(rng, words, needs, words.joint.join(stated), limit),
        attributes=(*named, *found_out, noun),  # the noun too: the category alone is met by the whole family
        instruction_options=(colour,) if "colour" in needs else (),
        price_upper=limit,
        persona=None,
    )
    taste = Taste(
        brand=brand if "brand" in needs else rng.choice([other for other in brands if other != brand]),
        material=material if "recent" in needs else rng.choice([other for other in materials if other != material]),
        colour=colour,
    )
    return Wish(needs, stated, taste, task)


def _stated(rng: random.Random, needs: Sequence[Need], brand: str, material: str) -> list[str]:
    """Brand or material, as the shopper says it: always where neither is to be found out, else half of the time."""
    open_words = [word for need, word in (("brand", brand), ("recent", material)) if need not in needs]
    return [rng.choice(open_words)] if len(open_words) == 2 or rng.random() < 0.5 else []


def _phrase(rng: random.Random, words: Vocabulary, needs: Sequence[Need], thing: str, limit: float | None) -> str:
    wordings = {
        "brand": words.brand,
        "recent": words.recent,
        "colour": words.colour,
        "budget": words.budget,
        "": words.plain,
    }
    price = "" if limit is None else str(int(limit))
    wish = rng.choice(wordings[needs[0] if needs else ""]).format(thing=thing, limit=price)
    for need in needs[1:]:
        wish = {"colour": words.and_colour, "budget": words.and_budget}[need].format(wish=wish, limit=price)
    return wish


def _full(rng: random.Random, words: Vocabulary, product: Product, colour: str, limit: float | None) -> str:
    size = min(product.options[words.size_axis], key=lambda option: option.price or 0)
    price = "" if limit is None else words.full_budget.format(limit=int(limit))
    return words.full.format(title=product.title, colour=colour, size=size.value, limit=price)


def _lowest(words: Vocabulary, product: Product) -> float:
    return min(option.price or 0.0 for option in product.options[words.size_axis])


def task_record(wish: Wish, task_id: int) -> dict[str, Any]:
    """The wish as an entry of a catalog record's `instructions`."""
    task = wish.task
    return {
        "task_id": task_id,
        "instruction": task.instruction,
        "instruction_simple": task.instruction_simple,
        "attributes": list(task.attributes),
        "instruction_options": list(task.instruction_options),
        "price_upper": task.price_upper,
    }
