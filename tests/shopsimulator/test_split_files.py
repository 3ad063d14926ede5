"""Manifests in the released format, read in both forms and refused where they are unsound."""

from __future__ import annotations

import hashlib
import json

import pytest
from shopsimulator.catalog import Catalog
from shopsimulator.errors import ShopError
from shopsimulator.products import PurchaseTask
from shopsimulator.split_files import is_published, read_splits, split_ids, split_manifest, write_splits
from shopsimulator.splits import Splits, make_splits


def world(count: int = 7, personal: bool = True) -> Catalog:
    tasks = {
        n: PurchaseTask(
            n, f"p{n // 2}", f"task {n}", f"simple {n}", ("x",), (), None, {"用户ID": str(n)} if personal else None
        )
        for n in range(count)
    }
    return Catalog({}, tasks, (), "hash", "en")


def entry(*ids: int, **more):
    return {"task_ids": list(ids)} | more


def test_a_manifest_reads_back_and_is_checked_against_its_catalog(tmp_path):
    splits = make_splits(world(), (4, 2, 1), 5)
    write_splits(tmp_path / "splits.json", splits, world(), 5)
    assert read_splits(tmp_path / "splits.json", world()) == splits
    with pytest.raises(ShopError, match="not in the catalog"):
        read_splits(tmp_path / "splits.json", world(3))


def test_a_manifest_has_the_released_format():
    manifest = split_manifest(Splits((0, 1, 4), (2, 3), (6,)), world(), 9)
    assert manifest["schema_version"] == manifest["version"] == "shopsimrl-persona-splits-v1"
    assert manifest["source"] == {"catalog_sha256": "hash", "tasks": 7}
    assert manifest["policy"]["seed"] == 9
    assert manifest["grouping"] == {"group_count": 4, "multi_task_group_count": 2, "max_group_size": 2}
    assert manifest["splits"]["val"] == {
        "persona": True,
        "role": "val",
        "task_ids": [2, 3],
        "task_count": 2,
        "task_ids_sha256": hashlib.sha256(b"[2,3]").hexdigest(),
        "group_count": 1,
        "multi_task_group_count": 1,
        "max_group_size": 2,
    }
    assert split_manifest(Splits((0,), (), ()), world(personal=False), 0)["splits"]["train"]["persona"] is False


def test_the_released_manifest_form_is_read(tmp_path):
    entries = {name: {"persona": True, "role": name, "task_ids": ids, "task_count": len(ids)} for name, ids in RELEASED}
    path = tmp_path / "persona_splits.v1.json"
    path.write_text(json.dumps({"schema_version": "shopsimrl-persona-splits-v1", "splits": entries}))
    assert read_splits(path) == Splits((4, 1), (2,), (3,))
    assert not is_published(read_splits(path))


RELEASED = (("train", [4, 1]), ("val", [2]), ("test", [3]))


def test_a_split_may_be_a_range_of_a_corpus_and_have_any_name():
    manifest = {"corpus_size": 10, "splits": {"dev": {"start": 2, "end": 5}, "rest": entry(9)}}
    assert split_ids(manifest, "dev") == (2, 3, 4)
    assert split_ids(manifest, "rest") == (9,)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ([], "expected a manifest"),
        ({"splits": []}, "expected a manifest"),
        ({"splits": {"b": entry(1)}}, "no split 'a'; it has b"),
        ({"splits": {"a": [1]}}, "splits.a: expected an object"),
        ({"splits": {"a": entry(-1)}}, "at least 0"),
        ({"splits": {"a": entry(True)}}, "whole numbers"),
        ({"splits": {"a": entry("1")}}, "whole numbers"),
        ({"splits": {"a": {"task_ids": 3}}}, "must be a list"),
        ({"splits": {"a": entry(1, 1)}}, "listed twice"),
        ({"splits": {"a": entry(1), "b": entry(-1)}}, "splits.b"),
        ({"splits": {"a": entry(1, task_count=2)}}, "task_count is 2, but 1"),
        ({"splits": {"a": entry(1, task_ids_sha256="0")}}, "SHA-256"),
        ({"splits": {"a": {"start": 0, "end": 2}}}, "corpus_size"),
        ({"corpus_size": 3, "splits": {"a": {"start": 2, "end": 9}}}, "2 to 9 is no range within a corpus of 3"),
        ({"corpus_size": 3, "splits": {"a": {"start": 2, "end": 2}}}, "no range"),
        ({"corpus_size": 3, "splits": {"a": {"start": -1, "end": 2}}}, "no range"),
        ({"corpus_size": 3, "splits": {"a": {}}}, "needs task_ids"),
    ],
)
def test_an_unsound_manifest_is_refused(manifest, message):
    with pytest.raises(ShopError, match=message):
        split_ids(manifest, "a")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "not JSON"),
        (json.dumps({"splits": {"train": entry(1), "val": entry(2)}}), "no split 'test'; it has train, val"),
        (json.dumps({"splits": {"train": entry(1, 2), "val": entry(3), "test": entry(2)}}), "task 2 .*train.*test"),
    ],
)
def test_a_file_that_no_run_can_use_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "splits.json"
    path.write_text(content)
    with pytest.raises(ShopError, match=rf"splits\.json: .*{message}"):
        read_splits(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ShopError, match="No such file"):
        read_splits(tmp_path / "none.json")
