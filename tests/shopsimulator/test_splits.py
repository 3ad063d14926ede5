"""Splits whose tasks have nothing in common."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shopsimulator.catalog import Catalog
from shopsimulator.errors import ShopError
from shopsimulator.products import PurchaseTask
from shopsimulator.splits import linked_components, make_splits, read_splits, write_splits


def task(task_id: int, asin: str = "", instruction: str = "", persona: dict | None = None) -> PurchaseTask:
    text = instruction or f"task {task_id}"
    return PurchaseTask(task_id, asin or f"p{task_id}", text, "simple", (), (), None, persona)


def catalog(*tasks: PurchaseTask) -> Catalog:
    return Catalog({}, {item.task_id: item for item in tasks}, (), "hash", "en")


def groups_of(*sizes: int) -> Catalog:
    """Tasks in components of these sizes, ids with gaps."""
    return catalog(
        *(task(100 * number + i, asin=f"g{number}") for number, size in enumerate(sizes) for i in range(size))
    )


def test_each_kind_of_link_joins_and_chains_do_too():
    tasks = [
        task(3, asin="a", persona={"用户ID": "U1"}),
        task(1, asin="a"),
        task(9, instruction="Buy  Oak", persona={"用户ID": "U1", "用户标签": ["x"]}),
        task(4, instruction="buy oak"),
        task(5, persona={"b": 1, "a": [2]}),
        task(6, persona={"a": [2], "b": 1}),
        task(7, persona={"用户ID": ""}),
        task(8, persona={"用户ID": "", "用户标签": []}),
        task(20),
        task(21),
    ]
    assert linked_components(tasks) == [(1, 3, 4, 9), (5, 6), (7,), (8,), (20,), (21,)]


def test_sizes_are_hit_exactly_and_the_seed_decides():
    world = catalog(*(task(7 * n, persona={"用户ID": f"U{n // 2}"}) for n in range(100)))
    first, again, other = (make_splits(world, (60, 20, 10), seed) for seed in (1, 1, 2))
    assert [len(first.train), len(first.val), len(first.test)] == [60, 20, 10]
    assert first == again != other


def test_file_order_does_not_matter():
    tasks = [task(n) for n in range(30)]
    assert make_splits(catalog(*tasks), (10, 5, 5), 3) == make_splits(catalog(*reversed(tasks)), (10, 5, 5), 3)


def test_only_persona_tasks_are_split_where_there_are_any():
    world = catalog(*(task(n, persona={"用户ID": str(n)} if n % 2 else None) for n in range(20)))
    splits = make_splits(world, (5, 3, 2), 0)
    assert sorted(splits.train + splits.val + splits.test) == list(range(1, 20, 2))


@pytest.mark.parametrize(
    ("components", "sizes"),
    [((3, 2, 1), (1, 3, 2)), ((4, 3, 3), (6, 4, 0)), ((5, 5, 4, 4, 3, 3), (8, 8, 8)), ((7, 6, 5, 4, 3, 2), (9, 9, 9))],
)
def test_a_tight_fit_is_found(components, sizes):
    splits = make_splits(groups_of(*components), sizes, 0)
    assert (len(splits.train), len(splits.val), len(splits.test)) == sizes


@pytest.mark.parametrize(
    ("components", "sizes", "message"),
    [
        ((3, 3), (4, 1, 0), "cannot be met.*largest group: 3"),
        ((2, 2, 2), (3, 3, 0), "cannot be met"),
        ((1, 1), (2, 1, 0), "has 2"),
        ((1,), (1, 0), "three numbers"),
        ((1,), (2, -1, 0), "three numbers"),
    ],
)
def test_impossible_sizes_are_refused_with_the_reason(components, sizes, message):
    with pytest.raises(ShopError, match=message):
        make_splits(groups_of(*components), sizes, 0)


LINKS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 12), st.one_of(st.none(), st.integers(0, 12))), min_size=1, max_size=14
)


def by_hand(tasks: list[PurchaseTask]) -> set[tuple[int, ...]]:
    """Components by repeated merging, the slow and obvious way."""

    def linked(a: PurchaseTask, b: PurchaseTask) -> bool:
        return a.asin == b.asin or a.instruction == b.instruction or bool(a.persona and a.persona == b.persona)

    groups = [{item.task_id} for item in tasks]
    for a in tasks:
        for b in tasks:
            if linked(a, b):
                joined = [group for group in groups if a.task_id in group or b.task_id in group]
                groups = [group for group in groups if group not in joined] + [set().union(*joined)]
    return {tuple(sorted(group)) for group in groups}


def linked_tasks(links) -> list[PurchaseTask]:
    return [
        task(3 * n, f"a{asin}", f"i{text}", {"用户ID": f"u{user}"} if user is not None else None)
        for n, (asin, text, user) in enumerate(links)
    ]


@given(LINKS)
def test_components_are_those_found_by_hand(links):
    tasks = linked_tasks(links)
    assert set(linked_components(tasks)) == by_hand(tasks)


@given(LINKS, st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), st.integers(0, 3))
def test_no_component_straddles_and_every_size_is_exact_or_refused(links, train, val, test, seed):
    tasks = [item for item in linked_tasks(links) if item.persona] or linked_tasks(links)
    try:
        splits = make_splits(catalog(*linked_tasks(links)), (train, val, test), seed)
    except ShopError:
        sums = {(0, 0, 0)}
        for component in linked_components(tasks):
            sums |= {(*s[:i], s[i] + len(component), *s[i + 1 :]) for s in sums for i in range(3)}
        assert (train, val, test) not in sums
        return
    assert (len(splits.train), len(splits.val), len(splits.test)) == (train, val, test)
    for component in linked_components(tasks):
        assert sum(bool(set(component) & set(ids)) for ids in (splits.train, splits.val, splits.test)) <= 1


def test_a_manifest_reads_back_and_is_checked_against_its_catalog(tmp_path):
    world = groups_of(2, 1, 1, 3)
    splits = make_splits(world, (3, 2, 1), 5)
    write_splits(tmp_path / "splits.json", splits, world)
    assert read_splits(tmp_path / "splits.json", world) == splits
    assert json.loads((tmp_path / "splits.json").read_text())["sizes"] == {"train": 3, "val": 2, "test": 1}
    with pytest.raises(ShopError, match="not in the catalog"):
        read_splits(tmp_path / "splits.json", groups_of(1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "not JSON"),
        ("[]", "expected a manifest"),
        ('{"schema": "shopsimulator-splits-v2"}', "shopsimulator-splits-v2"),
        ('{"schema": "shopsimulator-splits-v1", "train": [1], "val": "x", "test": []}', "val: expected"),
        ('{"schema": "shopsimulator-splits-v1", "train": [1, 2], "val": [3], "test": [2]}', "task 2 .*train.*test"),
        ('{"schema": "shopsimulator-splits-v1", "train": [1, 1], "val": [], "test": []}', "task 1"),
    ],
)
def test_a_bad_manifest_is_refused(tmp_path, content, message):
    path = tmp_path / "splits.json"
    path.write_text(content)
    with pytest.raises(ShopError, match=message):
        read_splits(path)
