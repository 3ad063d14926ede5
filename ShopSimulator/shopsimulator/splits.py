"""Train, validation and test tasks that have nothing in common.

Two tasks are *linked* when they share the product, an instruction (simple or full), the persona or the user. Linked
tasks, and what is linked to those, form one group, and a group lies in one split: otherwise a policy could have met
the answer to a test task in training. The result is frozen in a manifest of explicit task ids (`split_files.py`), so
that a later catalog or another shuffle cannot move a task.

Groups are chosen as the policy `exact-linked-components-v1` says: for the test split, then for validation, groups are
ranked by a hash of seed, split and group, and the first in rank that add up to exactly the wanted number are taken;
training gets the rest. So the published catalog, sizes and seed give the published splits. Where that finds no exact
filling, every filling is tried.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

from shopsimulator.catalog import Catalog, PurchaseTask
from shopsimulator.errors import ShopError
from shopsimulator.text import fold

NAMES = ("train", "val", "test")
GROUP_KEYS = ("asin", "instruction_simple", "instruction", "persona_fingerprint", "user_id")
HELD_OUT_MAX_GROUP_SIZE = 20  # a test of one user's hundred tasks would be a test of that user
_USER_KEYS = {"userid", "user_id", "用户id", "用户_id"}
_SEARCH_LIMIT = 200_000  # reachable fillings the exhaustive search may visit

Group = tuple[int, ...]  # task ids, ascending
Kind = Literal["persona", "standard", "all"]


@dataclass(frozen=True, slots=True)
class Splits:
    """Task ids of each split. Ids may have gaps; tasks in no split are simply not used."""

    train: tuple[int, ...]
    val: tuple[int, ...]
    test: tuple[int, ...]


def make_splits(
    catalog: Catalog,
    sizes: Sequence[int],
    seed: int,
    *,
    kind: Kind | None = None,
    max_group: int = HELD_OUT_MAX_GROUP_SIZE,
) -> Splits:
    """Split tasks into exactly `sizes` = (train, val, test).

    `kind` says which tasks; None means those with a persona, or all where none has one. Groups of more than
    `max_group` tasks go to training, unless the sizes cannot be met so. The same catalog, sizes and seed give the
    same splits. Raises `ShopError` when the sizes cannot be met.
    """
    if len(sizes) != len(NAMES) or any(size < 0 for size in sizes):
        raise ShopError(f"split sizes must be three numbers of at least 0 (train, val, test), not {tuple(sizes)}")
    tasks = _tasks_of_kind(catalog, kind, sizes)
    groups = linked_components(tasks)
    ids = _by_rank(groups, sizes, seed, max_group) or _fill_exhaustively(groups, (*sizes, len(tasks) - sum(sizes)))
    return Splits(*(tuple(sorted(ids[number])) for number in range(len(NAMES))))


def linked_components(tasks: Iterable[PurchaseTask]) -> list[Group]:
    """Groups of task ids linked directly or through others, ordered by their first id."""
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


def _tasks_of_kind(catalog: Catalog, kind: Kind | None, sizes: Sequence[int]) -> list[PurchaseTask]:
    everything = list(catalog.tasks.values())
    personal = [task for task in everything if task.persona]
    kind = kind or ("persona" if personal else "all")
    tasks = {
        "persona": personal,
        "standard": [task for task in everything if not task.persona],
        "all": everything,
    }[kind]
    if sum(sizes) > len(tasks):
        what = {"persona": "tasks with a persona", "standard": "tasks without a persona", "all": "tasks"}[kind]
        of = "" if kind == "all" else f" (of {len(everything)})"
        raise ShopError(
            f"splits of {tuple(sizes)} need {sum(sizes)} tasks, the catalog has {len(tasks)} {what}{of}; ask for fewer"
        )
    return tasks


def _links(task: PurchaseTask) -> Iterator[Hashable]:
    """What the task shares with every task it is linked to, under the names of `GROUP_KEYS`."""
    yield "asin", fold(task.asin)
    yield "instruction_simple", fold(task.instruction_simple)
    yield "instruction", fold(task.instruction)
    if task.persona:
        yield "persona_fingerprint", orjson.dumps(task.persona, option=orjson.OPT_SORT_KEYS)
        user = next((value for key, value in task.persona.items() if fold(key).replace(" ", "") in _USER_KEYS), None)
        if user is not None and fold(str(user)):
            yield "user_id", fold(str(user))


def _by_rank(groups: Sequence[Group], sizes: Sequence[int], seed: int, max_group: int) -> list[list[int]] | None:
    """Task ids of train, val and test by the policy; None where it finds no exact filling."""
    left, chosen = list(groups), {}
    for name, size in (("test", sizes[2]), ("val", sizes[1])):
        picked = _pick([group for group in left if len(group) <= max_group], size, f"{seed}:{name}")
        if picked is None:
            return None
        chosen[name] = picked
        left = [group for group in left if group not in picked]
    rest = set(left) if sum(map(len, left)) == sizes[0] else _pick(left, sizes[0], f"{seed}:train")
    if rest is None:
        return None
    return [[task_id for group in part for task_id in group] for part in (rest, chosen["val"], chosen["test"])]


def _pick(groups: Sequence[Group], size: int, salt: str) -> set[Group] | None:
    """The first groups in rank that add up to exactly `size` tasks."""
    ranked = sorted(groups, key=lambda group: _sha256(f"{salt}:{_group_id(group)}"))
    reached: dict[int, tuple[int, Group]] = {0: (0, ())}  # tasks so far -> before its last group, that group
    for group in ranked:
        if size in reached:
            break
        for total in sorted(reached, reverse=True):
            if total + len(group) <= size:
                reached.setdefault(total + len(group), (total, group))
    if size not in reached:
        return None
    picked: set[Group] = set()
    while size:
        size, group = reached[size]
        picked.add(group)
    return picked


def _group_id(group: Group) -> str:
    return f"group-{_sha256(','.join(map(str, group)))[:16]}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _fill_exhaustively(components: Sequence[Group], capacities: Sequence[int]) -> list[list[int]]:
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
