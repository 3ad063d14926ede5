"""Generating a world: products, personas, tasks and splits from a seed.

`generate_world` writes `catalog.json.gz` and `splits.json`. The same size, seed and language give the same bytes on
every machine: nothing but seeded draws and the (equally deterministic) search decide. The catalog is ordinary: it
has the schema of the public data, and every reader treats it like a file from elsewhere. Its tasks belong to
personas, one user each; products beyond the tasks are there to be found by mistake, and those that cannot be priced
to be excluded.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from shopsimulator.catalog import Catalog, inspect_records, read_catalog, write_catalog
from shopsimulator.errors import ShopError
from shopsimulator.files import make_directory
from shopsimulator.generate_products import SCALES, Scale, make_products
from shopsimulator.generate_tasks import Wish, draw_wishes, task_record
from shopsimulator.personas import make_persona
from shopsimulator.split_files import write_splits
from shopsimulator.splits import make_splits
from shopsimulator.words import ENGLISH, Vocabulary
from shopsimulator.words_zh import CHINESE

GENERATOR_VERSION = 4  # part of every seed: a changed generator makes other worlds
VOCABULARIES: dict[str, Vocabulary] = {"en": ENGLISH, "zh": CHINESE}


def generate_world(
    out: Path,
    size: Literal["small", "full"],
    seed: int,
    language: Literal["en", "zh"] = "en",
    products: int | None = None,
) -> dict[str, Any]:
    """Write the world's two files into `out` and tell what is in them. More `products` are more to be mistaken for.

    Raises `ShopError` if they are too few for the tasks.
    """
    scale = SCALES[size]
    if products is not None:
        if products < scale.products:
            raise ShopError(f"the tasks of a {size} world need at least {scale.products:,} products, not {products:,}")
        scale = replace(scale, products=products)
    make_directory(out)
    records, wishes = make_records(scale, seed, language)
    write_catalog(out / "catalog.json.gz", records)
    catalog = read_catalog(out / "catalog.json.gz")
    splits = make_splits(catalog, (scale.train, scale.val, scale.test), seed)
    write_splits(out / "splits.json", splits, catalog, seed)
    return _summary(catalog, scale, seed, language, wishes)


def make_records(scale: Scale, seed: int, language: str) -> tuple[list[dict[str, Any]], list[Wish]]:
    """Complete catalog records, and the wishes behind their tasks (in the order of task ids)."""
    words = VOCABULARIES[language]
    rng = random.Random(f"shopsimulator-world-v{GENERATOR_VERSION}/{language}/{seed}")
    records = make_products(rng, scale, words)
    brands, materials = words.brands[: scale.brands], words.materials[: scale.materials]
    catalog = inspect_records(records).catalog
    count = scale.train + scale.val + scale.test
    wishes = draw_wishes(rng, catalog, words, brands, materials, count)
    by_asin = {record["asin"]: record for record in records}
    for number, wish in enumerate(wishes):
        record = by_asin[wish.task.asin]
        record["instructions"] = [task_record(wish, number)]
        low, high = record["pricing"]
        record["user_persona"] = make_persona(rng, words, number, wish.taste, brands, materials, (low, high))
    return records, wishes


def _summary(catalog: Catalog, scale: Scale, seed: int, language: str, wishes: list[Wish]) -> dict[str, Any]:
    needs: dict[str, int] = {}
    for wish in wishes:
        name = "+".join(wish.needs) or "plain"
        needs[name] = needs.get(name, 0) + 1
    return {
        "seed": seed,
        "language": language,
        "products": len(catalog.products),
        "excluded": len(catalog.excluded),
        "tasks": len(catalog.tasks),
        "splits": {"train": scale.train, "val": scale.val, "test": scale.test},
        "needs": dict(sorted(needs.items())),
        "catalog_sha256": catalog.sha256,
    }
