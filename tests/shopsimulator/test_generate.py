"""Generated worlds: same bytes from the same seed, the promised sizes, and tasks that need what they say."""

import gzip
import hashlib
from pathlib import Path

import orjson
import pytest
from shopsimulator.catalog import Catalog, inspect_catalog, inspect_records, read_catalog
from shopsimulator.generate import generate_world, make_records
from shopsimulator.generate_products import SCALES
from shopsimulator.generate_tasks import Shopper
from shopsimulator.splits import linked_components, read_splits
from shopsimulator.words import ENGLISH
from shopsimulator.words_zh import CHINESE

VOCABULARIES = {"en": ENGLISH, "zh": CHINESE}


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module", params=["en", "zh"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, dict]:
    folder = tmp_path_factory.mktemp(f"world-{request.param}")
    return request.param, folder, generate_world(folder, "small", 0, request.param)


def test_same_seed_same_bytes(small: tuple[str, Path, dict], tmp_path: Path) -> None:
    language, folder, summary = small
    assert generate_world(tmp_path / "again", "small", 0, language) == summary
    assert digests(tmp_path / "again") == digests(folder)


def test_another_seed_is_another_world(small: tuple[str, Path, dict], tmp_path: Path) -> None:
    language, _, summary = small
    assert generate_world(tmp_path, "small", 1, language)["catalog_sha256"] != summary["catalog_sha256"]


def test_small_world_is_a_sound_catalog(small: tuple[str, Path, dict]) -> None:
    language, folder, summary = small
    inspection = inspect_catalog(folder / "catalog.json.gz")
    catalog, scale = inspection.catalog, SCALES["small"]
    assert inspection.errors == ()
    assert catalog.language == language
    assert len(catalog.products) == scale.products == summary["products"]
    assert len(catalog.excluded) == scale.unpriceable
    splits = read_splits(folder / "splits.json", catalog)
    assert [len(ids) for ids in (splits.train, splits.val, splits.test)] == [scale.train, scale.val, scale.test]
    assert summary["splits"] == {"train": scale.train, "val": scale.val, "test": scale.test}


def test_split_products_and_users_are_disjoint(small: tuple[str, Path, dict]) -> None:
    _, folder, _ = small
    catalog = read_catalog(folder / "catalog.json.gz")
    assert all(len(component) == 1 for component in linked_components(catalog.tasks.values()))


def test_records_have_the_public_schema(small: tuple[str, Path, dict]) -> None:
    _, folder, _ = small
    records = orjson.loads(gzip.decompress((folder / "catalog.json.gz").read_bytes()))
    wanted = next(record for record in records if "instructions" in record)
    assert set(wanted) == {
        "asin",
        "title",
        "shop_name",
        "category",
        "pricing",
        "customization_options",
        "attribute",
        "full_description",
        "instructions",
        "user_persona",
    }
    assert set(wanted["instructions"][0]) == {
        "task_id",
        "instruction",
        "instruction_simple",
        "attributes",
        "instruction_options",
        "price_upper",
    }
    assert {"用户ID", "人口属性", "兴趣偏好", "行为特征", "交易特征", "地区信息"} <= set(wanted["user_persona"])


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_task_needs_exactly_its_care(language: str) -> None:
    records, wishes = make_records(SCALES["small"], 3, language)
    catalog: Catalog = inspect_records(records).catalog
    shopper = Shopper(catalog, VOCABULARIES[language])
    assert {need for wish in wishes for need in wish.needs} == {"brand", "recent", "colour", "budget"}
    for wish in wishes:
        assert shopper.succeeds(wish, wish.needs)
        for need in wish.needs:
            assert not shopper.succeeds(wish, [other for other in wish.needs if other != need])


def test_simple_instruction_hides_what_the_persona_tells() -> None:
    _, wishes = make_records(SCALES["small"], 0, "en")
    for wish in wishes:
        said = wish.task.instruction_simple.split()
        hidden = {"brand": wish.taste.brand, "recent": wish.taste.material, "colour": wish.taste.colour}
        assert not any(hidden[need] in said for need in wish.needs if need != "budget")


def test_full_world_has_the_published_sizes(tmp_path: Path) -> None:
    summary = generate_world(tmp_path, "full", 0)
    assert summary["splits"] == {"train": 3726, "val": 400, "test": 400}
    assert summary["tasks"] == 4526
    assert summary["products"] >= 4526
    catalog = read_catalog(tmp_path / "catalog.json.gz")
    assert all(task.persona for task in catalog.tasks.values())
