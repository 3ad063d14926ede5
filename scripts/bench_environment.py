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
from collections.abc import Generator, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from shopsimulator.actions import BUY, NEXT, PREVIOUS, option_action
from shopsimulator.catalog import Catalog, inspect_records
from shopsimulator.client import ShopClient
from shopsimulator.engine import ShopSession, ShopSettings, ShopWorld
from shopsimulator.generate import make_records
from shopsimulator.generate_products import SCALES
from shopsimulator.search import SearchIndex
from shopsimulator.service import run_service

SETTINGS = {
    "compact": ShopSettings(page_size=4, rendering="compact", max_steps=30),
    "full": ShopSettings(page_size=20, rendering="full", max_steps=30),
}


def make_catalog(count: int) -> Catalog:
    """A generated world of `count` products with the published number of tasks."""
    records, _ = make_records(replace(SCALES["full"], products=count), 0, "en")
    return inspect_records(records).catalog


def random_query(rng: random.Random, catalog: Catalog, asins: list[str]) -> str:
    """Two or three title words of some product, half of the time with one of its option values."""
    product = catalog.products[rng.choice(asins)]
    words = product.title.split()
    wanted = rng.sample(words, min(len(words), rng.choice((2, 3))))
    if rng.random() < 0.5:
        wanted.append(rng.choice(product.options["colour"]).value)
    return " ".join(wanted)


def shopper(rng: random.Random, query: str) -> Generator[str, dict[str, Any], None]:
    """A sensible episode: yields actions and is sent the state after each; ends with a purchase."""
    state = yield f"search[{query}]"
    if rng.random() < 0.2 and NEXT in state["actions"]:
        state = yield f"click[{NEXT}]"
    product = yield f"click[{rng.choice(state['products'])['asin']}]"
    if rng.random() < 0.15:
        state = yield f"click[{PREVIOUS}]"
        product = yield f"click[{rng.choice(state['products'])['asin']}]"
    for axis, values in product["available_options"].items():
        first, second = rng.sample(values, 2)
        for value in [first, second] if rng.random() < 0.2 else [first]:
            product = yield f"click[{option_action(axis, value)}]"
    yield f"click[{BUY}]"


def play(session: ShopSession, rng: random.Random, task_id: int, query: str) -> int:
    """One episode; returns its steps."""
    session.reset(task_id, if_persona=True)
    episode = shopper(rng, query)
    action, steps = next(episode), 0
    while True:
        payload = session.step(action)
        steps += 1
        if payload["done"]:
            assert payload["termination_reason"] == "purchase", payload
            return steps
        action = episode.send(payload["observation_state"])


def run_in_process(world: ShopWorld, seconds: float) -> dict[str, Any]:
    rng, catalog = random.Random(1), world.catalog
    tasks, asins = list(catalog.tasks), list(catalog.products)
    session = world.new_session()
    for _ in range(200):  # meets most words
        play(session, rng, rng.choice(tasks), random_query(rng, catalog, asins))
    steps = episodes = 0
    start, cpu = time.perf_counter(), time.process_time()
    while (elapsed := time.perf_counter() - start) < seconds:
        steps += play(session, rng, rng.choice(tasks), random_query(rng, catalog, asins))
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


async def play_over_http(client: ShopClient, rng: random.Random, task_id: int, query: str) -> int:
    """The same episode in the service; returns its steps."""
    opened = await client.reset(task_id, if_persona=True)
    lease = (opened["env_idx"], opened["lease_id"])
    episode = shopper(rng, query)
    action, steps = next(episode), 0
    while True:
        payload = await client.interact(*lease, action)
        steps += 1
        if payload["done"]:
            await client.release(*lease)
            return steps
        action = episode.send(payload["observation_state"])


async def run_http(url: str, catalog: Catalog, clients: int, seconds: float) -> dict[str, Any]:
    """`clients` episodes at a time, all from this process."""
    tasks, asins = list(catalog.tasks), list(catalog.products)
    latencies: list[float] = []
    start = time.perf_counter()

    async def client(number: int, connection: ShopClient) -> int:
        rng = random.Random(number)
        steps = 0
        while time.perf_counter() - start < seconds:
            began = time.perf_counter()
            taken = await play_over_http(connection, rng, rng.choice(tasks), random_query(rng, catalog, asins))
            latencies.append((time.perf_counter() - began) / taken)
            steps += taken
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
        figures = run_in_process(ShopWorld(catalog, settings), options.seconds)
        report("in_process", {"rendering": rendering, "page_size": settings.page_size, **figures})
    for rendering, settings in SETTINGS.items():
        for url in _service(catalog, settings, options.clients):
            figures = asyncio.run(run_http(url, catalog, options.clients, options.seconds))
            report("http", {"rendering": rendering, "page_size": settings.page_size, **figures})


if __name__ == "__main__":
    main()
