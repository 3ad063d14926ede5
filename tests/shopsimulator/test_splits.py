"""Splits whose tasks have nothing in common."""

from __future__ import annotations

import hashlib
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shopsimulator.catalog import Catalog
from shopsimulator.errors import ShopError
from shopsimulator.products import PurchaseTask
from shopsimulator.splits import Splits, linked_components, make_splits


def task(
    task_id: int, asin: str = "", instruction: str = "", persona: dict | None = None, simple: str = ""
) -> PurchaseTask:
    text = instruction or f"task {task_id}"
    return PurchaseTask(task_id, asin or f"p{task_id}", text, simple or f"simple {task_id}", (), (), None, persona)


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
        task(20, simple="a shelf"),
        task(21, simple="A  Shelf"),
        task(30, persona={"userid": "u30"}),
        task(31, persona={"用户_ID": "U30", "x": 1}),
        task(32, persona={"用户": "u30"}),
        task(40),
    ]
    groups = [(1, 3, 4, 9), (5, 6), (7,), (8,), (20, 21), (30, 31), (32,), (40,)]
    assert linked_components(tasks) == groups


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


@pytest.mark.parametrize(("kind", "remainder"), [("persona", 1), ("standard", 0)])
def test_the_kind_of_task_can_be_chosen(kind, remainder):
    world = catalog(*(task(n, persona={"用户ID": str(n)} if n % 2 else None) for n in range(20)))
    splits = make_splits(world, (5, 3, 2), 0, kind=kind)
    assert {task_id % 2 for task_id in splits.train + splits.val + splits.test} == {remainder}
    everything = make_splits(world, (10, 6, 4), 0, kind="all")
    assert sorted(everything.train + everything.val + everything.test) == list(range(20))


def test_too_few_tasks_are_counted_by_kind():
    world = catalog(*(task(n, persona={"用户ID": str(n)} if n < 18 else None) for n in range(65)))
    with pytest.raises(ShopError, match=r"need 20 tasks, the catalog has 18 tasks with a persona \(of 65\)"):
        make_splits(world, (10, 5, 5), 0)


def test_large_groups_are_not_held_out():
    world = groups_of(*[5] * 4, *[1] * 40)
    for seed in range(5):
        splits = make_splits(world, (40, 10, 10), seed, max_group=4)
        assert all(task_id >= 400 for task_id in splits.val + splits.test)  # ids from 400 on are alone


def test_the_policy_is_the_published_one():
    """Worked out by hand from its words: rank by SHA-256 of seed, split and group; test first, then val."""
    world = groups_of(1, 1, 1, 2, 1)
    splits = make_splits(world, (2, 2, 2), 20260829)
    assert splits == by_the_policy([[0], [100], [200], [300, 301], [400]], 2, 2, 20260829)


def by_the_policy(groups: list[list[int]], val: int, test: int, seed: int) -> Splits:
    """The first subset in rank order that fills a split, found by trying prefixes of the ranking."""
    chosen = {}
    left = groups
    for name, size in (("test", test), ("val", val)):
        digests = {}
        for group in left:
            number = hashlib.sha256(",".join(map(str, group)).encode()).hexdigest()[:16]
            digests[hashlib.sha256(f"{seed}:{name}:group-{number}".encode()).hexdigest()] = group
        ranked = [digests[digest] for digest in sorted(digests)]
        end = next(
            end
            for end in range(len(ranked) + 1)
            if any(sum(map(len, some)) == size for n in range(end + 1) for some in combinations(ranked[:end], n))
        )
        fitting = [
            some
            for n in range(end + 1)
            for some in combinations(ranked[:end], n)
            if sum(map(len, some)) == size and (not end or ranked[end - 1] in some)
        ]
        assert len(fitting) == 1  # else the words do not decide, and this example proves nothing
        chosen[name] = sorted(chain(*fitting[0]))
        left = [group for group in left if group not in fitting[0]]
    return Splits(tuple(sorted(chain(*left))), tuple(chosen["val"]), tuple(chosen["test"]))


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
