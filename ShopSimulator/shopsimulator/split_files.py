"""Split manifests: task ids frozen in a file, in the released format.

A manifest names splits, each as explicit ids (`{"task_ids": [...]}`) or as a range of a corpus of known size
(`{"start": 0, "end": 10}`, with `corpus_size` beside the splits). Counts and hashes, where given, must agree. Any
names will do for reading one split; a run needs `train`, `val` and `test`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from shopsimulator.catalog import Catalog
from shopsimulator.errors import ShopError
from shopsimulator.files import write_atomic
from shopsimulator.splits import GROUP_KEYS, HELD_OUT_MAX_GROUP_SIZE, NAMES, Splits, linked_components

SCHEMA = "shopsimrl-persona-splits-v1"
PUBLISHED_SEED = 20260829
PUBLISHED_SIZES = (3726, 400, 400)
PUBLISHED_SHA256 = {
    "train": "6dd57881e170a459770c1977cdf06dd184d4dacab8eb1101ebd52c695a85cac9",
    "val": "103c72fd5da76870d2406420a8d7eab0c616780cb6fb8ac27875b5424dae872e",
    "test": "4137a041471b29310c7e349732c55f04e8ea1c9a517cd60475d048ca1466c257",
}


def split_manifest(
    splits: Splits, catalog: Catalog, seed: int, max_group: int = HELD_OUT_MAX_GROUP_SIZE
) -> dict[str, Any]:
    """The manifest of splits made from this catalog."""
    used = {name: getattr(splits, name) for name in NAMES}
    groups = linked_components(catalog.tasks[task_id] for ids in used.values() for task_id in ids)
    return {
        "schema_version": SCHEMA,
        "version": SCHEMA,
        "source": {"catalog_sha256": catalog.sha256, "tasks": len(catalog.tasks)},
        "policy": {
            "version": "exact-linked-components-v1",
            "seed": seed,
            "allocation_order": ["test", "val", "train"],
            "validation_size": len(splits.val),
            "test_size": len(splits.test),
            "held_out_max_group_size": max_group,
            "normalization": "unicode-nfkc-casefold-whitespace-v1",
            "group_keys": list(GROUP_KEYS),
        },
        "grouping": _grouping(groups),
        "splits": {name: _entry(name, ids, catalog, groups) for name, ids in used.items()},
    }


def write_splits(path: str | Path, splits: Splits, catalog: Catalog, seed: int, **policy: int) -> None:
    """Freeze the splits in a manifest that names the catalog they were made from."""
    manifest = split_manifest(splits, catalog, seed, **policy)
    write_atomic(path, orjson.dumps(manifest, option=orjson.OPT_INDENT_2) + b"\n")


def read_splits(path: str | Path, catalog: Catalog | None = None) -> Splits:
    """Read train, val and test; with a catalog, also check that it holds every task. Raises `ShopError`."""
    manifest = _load(path)
    splits = Splits(*(split_ids(manifest, name, path) for name in NAMES))
    _refuse_overlap(path, splits)
    if catalog is not None:
        _refuse_unknown(path, splits, catalog)
    return splits


def split_ids(manifest: Any, name: str, path: str | Path = "manifest") -> tuple[int, ...]:
    """Task ids of one split, in the order of the manifest, every split of which must be sound. Raises `ShopError`."""
    entries = manifest.get("splits") if isinstance(manifest, dict) else None
    if not isinstance(entries, dict):
        raise ShopError(f'{path}: expected a manifest {{"splits": {{name: {{"task_ids": [...]}}}}}}')
    ids = {other: _entry_ids(path, other, entry, manifest.get("corpus_size")) for other, entry in entries.items()}
    if name not in ids:
        raise ShopError(f"{path}: no split {name!r}; it has {', '.join(map(str, ids)) or 'none'}")
    return ids[name]


def is_published(splits: Splits) -> bool:
    """Whether these are the splits behind the published figures."""
    return all(_ids_sha256(getattr(splits, name)) == digest for name, digest in PUBLISHED_SHA256.items())


def _load(path: str | Path) -> Any:
    try:
        return orjson.loads(Path(path).read_bytes())
    except OSError as error:
        raise ShopError(f"{path}: cannot read the splits: {error.strerror or error}") from error
    except orjson.JSONDecodeError as error:
        raise ShopError(f"{path}: not JSON in UTF-8: {error}") from error


def _entry_ids(path: str | Path, name: str, entry: Any, corpus_size: Any) -> tuple[int, ...]:
    where = f"{path}: splits.{name}"
    if not isinstance(entry, dict):
        raise ShopError(f"{where}: expected an object with task_ids, or with start and end")
    ids = entry.get("task_ids") if "task_ids" in entry else _range(where, entry, corpus_size)
    if not isinstance(ids, list) or not all(type(item) is int and item >= 0 for item in ids):
        raise ShopError(f"{where}: task_ids must be a list of whole numbers of at least 0")
    if len(set(ids)) != len(ids):
        raise ShopError(f"{where}: a task id is listed twice; keep one")
    if entry.get("task_count", len(ids)) != len(ids):
        raise ShopError(f"{where}: task_count is {entry['task_count']}, but {len(ids)} ids are listed")
    if entry.get("task_ids_sha256", _ids_sha256(ids)) != _ids_sha256(ids):
        raise ShopError(f"{where}: task_ids do not have the SHA-256 that the manifest names; copy the file again")
    return tuple(ids)


def _range(where: str, entry: dict[str, Any], corpus_size: Any) -> list[int]:
    start, end = entry.get("start"), entry.get("end")
    if type(start) is not int or type(end) is not int or type(corpus_size) is not int:
        raise ShopError(f"{where}: needs task_ids, or start and end and a corpus_size beside the splits")
    if not 0 <= start < end <= corpus_size:
        raise ShopError(f"{where}: {start} to {end} is no range within a corpus of {corpus_size}")
    return list(range(start, end))


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


def _entry(name: str, ids: Sequence[int], catalog: Catalog, groups: Sequence[Sequence[int]]) -> dict[str, Any]:
    personal = {catalog.tasks[task_id].persona is not None for task_id in ids}
    members = set(ids)
    return {
        "persona": personal.pop() if len(personal) == 1 else None,
        "role": name,
        "task_ids": list(ids),
        "task_count": len(ids),
        "task_ids_sha256": _ids_sha256(ids),
        **_grouping([group for group in groups if group[0] in members]),
    }


def _grouping(groups: Sequence[Sequence[int]]) -> dict[str, int]:
    return {
        "group_count": len(groups),
        "multi_task_group_count": sum(len(group) > 1 for group in groups),
        "max_group_size": max(map(len, groups), default=0),
    }


def _ids_sha256(ids: Sequence[int]) -> str:
    return hashlib.sha256(orjson.dumps(list(ids))).hexdigest()
