"""Train, validation and test tasks that have nothing in common.

Two tasks are *linked* when they share the product, the instruction, the persona or the user. Linked tasks, and what
is linked to those, form one component, and a component lies in one split: otherwise a policy could have met the
answer to a test task in training. The result is frozen in a manifest of explicit task ids, so that a later catalog
or another shuffle cannot move a task.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from shopsimulator.catalog import Catalog, PurchaseTask
from shopsimulator.errors import ShopError
from shopsimulator.files import write_atomic
from shopsimulator.text import fold

SCHEMA = "shopsimulator-splits-v1"
NAMES = ("train", "val", "test")
_SHUFFLES = 20  # quick attempts before the exhaustive search
_SEARCH_LIMIT = 200_000  # reachable fillings the exhaustive search may visit


@dataclass(frozen=True, slots=True)
class Splits:
    """Task ids of each split, ascending. Ids may have gaps; tasks in no split are simply not used."""

    train: tuple[int, ...]
    val: tuple[int, ...]
    test: tuple[int, ...]


def make_splits(catalog: Catalog, sizes: Sequence[int], seed: int) -> Splits:
    """Split the persona tasks (all tasks if none has a persona) into exactly `sizes` = (train, val, test) tasks.

    The same catalog, sizes and seed give the same splits. Raises `ShopError` when the sizes cannot be met.
    """
    if len(sizes) != len(NAMES) or any(size < 0 for size in sizes):
        raise ShopError(f"split sizes must be three numbers of at least 0 (train, val, test), not {tuple(sizes)}")
    tasks = [task for task in catalog.tasks.values() if task.persona] or list(catalog.tasks.values())
    if sum(sizes) > len(tasks):
        raise ShopError(
            f"splits of {tuple(sizes)} need {sum(sizes)} tasks, the catalog has {len(tasks)}; ask for fewer"
        )
    components = linked_components(tasks)
    capacities = (*sizes, len(tasks) - sum(sizes))  # the last bin takes what no split needs
    for attempt in range(_SHUFFLES):
        bins = _fill_at_random(components, capacities, random.Random(f"splits/{seed}/{attempt}"))
        if bins is not None:
            return _splits(bins)
    return _splits(_fill_exhaustively(components, capacities))


def linked_components(tasks: Iterable[PurchaseTask]) -> list[tuple[int, ...]]:
    """Groups of task ids linked directly or through others; each ascending, ordered by their first id."""
    tasks = sorted(tasks, key=lambda task: task.task_id)
    parent = {task.task_id: task.task_id for task in tasks}

    def root(task_id: int) -> int:
        while parent[task_id] != task_id:
            parent[task_id] = parent[parent[task_id]]
            task_id = parent[task_id]
        return task_id

    owner: dict[Hashable, int] = {}
    for task in tasks:
        for link in _links(task):
            first = owner.setdefault(link, task.task_id)
            parent[root(task.task_id)] = root(first)
    groups: dict[int, list[int]] = {}
    for task in tasks:
        groups.setdefault(root(task.task_id), []).append(task.task_id)
    return sorted(tuple(group) for group in groups.values())


def write_splits(path: str | Path, splits: Splits, catalog: Catalog) -> None:
    """Freeze the splits in a manifest that names the catalog they were made from."""
    content = {
        "schema": SCHEMA,
        "catalog_sha256": catalog.sha256,
        "sizes": {name: len(getattr(splits, name)) for name in NAMES},
        **{name: list(getattr(splits, name)) for name in NAMES},
    }
    write_atomic(path, orjson.dumps(content) + b"\n")


def read_splits(path: str | Path, catalog: Catalog | None = None) -> Splits:
    """Read a manifest; with a catalog, also check that it holds every task. Raises `ShopError`."""
    try:
        content = orjson.loads(Path(path).read_bytes())
    except OSError as error:
        raise ShopError(f"{path}: cannot read the splits: {error.strerror or error}") from error
    except orjson.JSONDecodeError as error:
        raise ShopError(f"{path}: not JSON in UTF-8: {error}") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else type(content).__name__
        raise ShopError(f"{path}: expected a manifest with schema {SCHEMA!r}, found {found!r}")
    splits = Splits(*(_task_ids(path, content, name) for name in NAMES))
    _refuse_overlap(path, splits)
    if catalog is not None:
        _refuse_unknown(path, splits, catalog)
    return splits


def _links(task: PurchaseTask) -> Iterator[Hashable]:
    yield "asin", task.asin
    yield "instruction", fold(task.instruction)
    if task.persona:
        yield "persona", orjson.dumps(task.persona, option=orjson.OPT_SORT_KEYS)
        user = task.persona.get("用户ID")
        if user not in (None, "") and isinstance(user, (str, int)):
            yield "user", str(user).strip()


def _splits(bins: Sequence[Sequence[int]]) -> Splits:
    return Splits(*(tuple(sorted(ids)) for ids in bins[: len(NAMES)]))


def _fill_at_random(
    components: Sequence[tuple[int, ...]], capacities: Sequence[int], rng: random.Random
) -> list[list[int]] | None:
    """Place components largest first, each in a bin drawn by the room left; None when one fits nowhere."""
    shuffled = list(components)
    rng.shuffle(shuffled)
    bins: list[list[int]] = [[] for _ in capacities]
    for component in sorted(shuffled, key=len, reverse=True):
        room = [capacity - len(ids) for capacity, ids in zip(capacities, bins)]
        fits = [free if free >= len(component) else 0 for free in room]
        if not any(fits):
            return None
        bins[rng.choices(range(len(bins)), weights=fits)[0]] += component
    return bins


def _fill_exhaustively(components: Sequence[tuple[int, ...]], capacities: Sequence[int]) -> list[list[int]]:
    """Try every filling, equal ones once. Raises `ShopError` when none is exact, or there are too many."""
    reached: list[dict[tuple[int, ...], int]] = [{tuple(capacities): -1}]  # room left -> bin of the last component
    for component in components:
        step: dict[tuple[int, ...], int] = {}
        for room in reached[-1]:
            for number, free in enumerate(room):
                if free >= len(component):
                    step.setdefault((*room[:number], free - len(component), *room[number + 1 :]), number)
        reached.append(step)
        if not step or sum(map(len, reached)) > _SEARCH_LIMIT:
            largest = max(map(len, components))
            why = "cannot be met" if not step else "were not met by any filling tried"
            raise ShopError(
                f"split sizes {tuple(capacities[:-1])} {why}: linked tasks stay together (largest group: {largest}); "
                "change the sizes"
            )
    bins: list[list[int]] = [[] for _ in capacities]
    room = (0,) * len(capacities)
    for component, step in zip(reversed(components), reversed(reached)):
        number = step[room]
        bins[number] += component
        room = (*room[:number], room[number] + len(component), *room[number + 1 :])
    return bins


def _task_ids(path: str | Path, content: dict[str, Any], name: str) -> tuple[int, ...]:
    ids = content.get(name)
    if not isinstance(ids, list) or not all(isinstance(item, int) and not isinstance(item, bool) for item in ids):
        raise ShopError(f"{path}: {name}: expected a list of task ids")
    return tuple(ids)


def _refuse_overlap(path: str | Path, splits: Splits) -> None:
    seen: dict[int, str] = {}
    for name in NAMES:
        for task_id in getattr(splits, name):
            if task_id in seen:
                raise ShopError(f"{path}: task {task_id} is listed in {seen[task_id]} and again in {name}; keep one")
            seen[task_id] = name


def _refuse_unknown(path: str | Path, splits: Splits, catalog: Catalog) -> None:
    for name in NAMES:
        missing = [task_id for task_id in getattr(splits, name) if task_id not in catalog.tasks]
        if missing:
            raise ShopError(
                f"{path}: {name}: task {missing[0]} is not in the catalog ({len(missing)} of {name} are not); "
                "use the catalog these splits were made from"
            )
