"""How fast the shop answers: in process, in search alone, and over HTTP.

    python scripts/bench_environment.py [--products 20000] [--seconds 5] [--clients 64]

Random but sensible episodes (search, open a result, sometimes turn the page or go back, choose every option, sometimes
change one's mind, buy) run over a generated catalog. Every query is new more often than not, so the search cache helps
no more than in training. Prints one JSON object a line. `steps_per_s` counts environment steps over the wall time of
the whole loop, resets and the driver's own decisions included; in process everything runs on one core, and
`steps_per_cpu_s` says what that core gave while it was ours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from shopsimulator.catalog import Catalog, inspect_records
from shopsimulator.client import ShopClient
from shopsimulator.engine import ShopSettings, ShopWorld
from shopsimulator.generate import make_records
from shopsimulator.generate_products import SCALES, make_products
from shopsimulator.search import SearchIndex
from shopsimulator.service import run_service
from shopsimulator.words import ENGLISH

from intraskill.core.protocol import Environment
from intraskill.families.shop.environment import HttpShop, InProcessShop

SETTINGS = {
    "compact": ShopSettings(page_size=4, rendering="compact", max_steps=30),
    "full": ShopSettings(page_size=20, rendering="full", max_steps=30),
}


def make_catalog(count: int) -> Catalog:
    """The generated world's products and tasks, filled up to `count` with more products of the same kind."""
    scale = SCALES["full"]
    records, _ = make_records(scale, 0, "en")
    batch = 0
    count += scale.unpriceable
    while len(records) < count:
        batch += 1
        records += make_products(random.Random(batch), replace(scale, unpriceable=0), ENGLISH)
        records = list({record["asin"]: record for record in records}.values())
    inspection = inspect_records(records[:count])
    assert not inspection.errors, inspection.errors[0]
    return inspection.catalog


def random_query(rng: random.Random, catalog: Catalog, asins: list[str]) -> str:
    """Two or three title words of some product, half of the time with one of its option values."""
    product = catalog.products[rng.choice(asins)]
    words = product.title.split()
    wanted = rng.sample(words, min(len(words), rng.choice((2, 3))))
    if rng.random() < 0.5:
        wanted.append(rng.choice(product.options["colour"]).value)
    return " ".join(wanted)


def choices(rng: random.Random, state: dict[str, Any]) -> list[str]:
    """The values to pick on a product page: one on each axis, now and then a second thought."""
    picked = []
    for options in state["product"]["options"].values():
        first, second = rng.sample([option["value"] for option in options], 2)
        picked += [first, second] if rng.random() < 0.2 else [first]
    return picked


async def play(environment: Environment, rng: random.Random, task_id: int, query: str) -> int:
    """One episode; returns its steps."""
    await environment.reset(task_id)
    state = (await environment.step(f"search[{query}]")).state
    steps = 1
    if rng.random() < 0.2 and len(state["actions"]) > len(state["results"]):
        state = (await environment.step(f"click[{state['actions'][-1]}]")).state
        steps += 1
    for visit in range(2):
        label = rng.choice(state["results"])["label"]
        product = (await environment.step(f"click[{label}]")).state
        steps += 1
        if visit == 0 and rng.random() < 0.3:
            state = (await environment.step(f"click[{product['actions'][-1]}]")).state  # back to the results
            steps += 1
            continue
        break
    for value in choices(rng, product):
        product = (await environment.step(f"click[{value}]")).state
        steps += 1
    result = await environment.step(f"click[{product['actions'][-1]}]")  # buy
    assert result.termination == "purchase", result
    return steps + 1


async def run_in_process(world: ShopWorld, seconds: float) -> dict[str, Any]:
    rng, catalog = random.Random(1), world.catalog
    tasks, asins = list(catalog.tasks), list(catalog.products)
    environment = InProcessShop(world)
    for _ in range(200):  # meets most words
        await play(environment, rng, rng.choice(tasks), random_query(rng, catalog, asins))
    steps = episodes = 0
    start, cpu = time.perf_counter(), time.process_time()
    while (elapsed := time.perf_counter() - start) < seconds:
        steps += await play(environment, rng, rng.choice(tasks), random_query(rng, catalog, asins))
        episodes += 1
    cpu = time.process_time() - cpu
    rates = {"steps_per_s": steps / elapsed, "steps_per_cpu_s": steps / cpu}
    return {"steps": steps, "episodes": episodes, "seconds": elapsed, **rates}


def bench_search(catalog: Catalog, queries: int) -> dict[str, Any]:
    """Latency of queries never asked before, on an index whose words have been met."""
    rng, asins = random.Random(2), list(catalog.products)
    start = time.perf_counter()
    index = SearchIndex(catalog)
    build = time.perf_counter() - start
    for product in catalog.products.values():
        for word in [*product.title.split(), *(option.value for option in product.options["colour"])]:
            index.asins(word)
    asked = list(dict.fromkeys(random_query(rng, catalog, asins) for _ in range(queries)))
    seconds = []
    for query in asked:
        start = time.perf_counter()
        index.search(query)
        seconds.append(time.perf_counter() - start)
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    return {"queries": len(asked), "build_s": build, "p50_ms": p50, "p99_ms": p99}


def _serve(catalog: Catalog, settings: ShopSettings, slots: int, ready: Connection) -> None:
    run_service(ShopWorld(catalog, settings), port=0, slots=slots, announce=ready.send)


def _service(catalog: Catalog, settings: ShopSettings, slots: int) -> Iterator[str]:
    """Runs the service in a process of its own; yields its URL once."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_serve, args=(catalog, settings, slots, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


async def run_http(url: str, catalog: Catalog, clients: int, seconds: float) -> dict[str, Any]:
    """`clients` episodes at a time, all from this process."""
    tasks, asins = list(catalog.tasks), list(catalog.products)
    latencies: list[float] = []
    start = time.perf_counter()

    async def client(number: int, connection: ShopClient) -> int:
        rng = random.Random(number)
        environment = HttpShop(connection, {})
        steps = 0
        while time.perf_counter() - start < seconds:
            began = time.perf_counter()
            taken = await play(environment, rng, rng.choice(tasks), random_query(rng, catalog, asins))
            latencies.append((time.perf_counter() - began) / taken)
            steps += taken
        await environment.close()
        return steps

    async with ShopClient(url) as connection:
        steps = sum(await asyncio.gather(*(client(number, connection) for number in range(clients))))
    elapsed = time.perf_counter() - start
    p50, p99 = np.percentile(latencies, [50, 99]) * 1000
    rates = {"steps": steps, "seconds": elapsed, "steps_per_s": steps / elapsed}
    return {"clients": clients, **rates, "step_p50_ms": p50, "step_p99_ms": p99}


def report(benchmark: str, figures: dict[str, Any]) -> None:
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()}
    print(json.dumps({"benchmark": benchmark, **rounded}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--products", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each throughput measurement")
    parser.add_argument("--clients", type=int, default=64)
    options = parser.parse_args()
    catalog = make_catalog(options.products)
    report("world", {"products": len(catalog.products), "tasks": len(catalog.tasks)})
    report("search", bench_search(catalog, queries=5000))
    for rendering, settings in SETTINGS.items():
        figures = asyncio.run(run_in_process(ShopWorld(catalog, settings), options.seconds))
        report("in_process", {"rendering": rendering, "page_size": settings.page_size, **figures})
    for rendering, settings in SETTINGS.items():
        for url in _service(catalog, settings, options.clients):
            figures = asyncio.run(run_http(url, catalog, options.clients, options.seconds))
            report("http", {"rendering": rendering, "page_size": settings.page_size, **figures})


if __name__ == "__main__":
    main()
