"""Generated worlds: same bytes from the same seed, the promised sizes, and tasks that need what they say."""

import gzip
import hashlib
import random
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import orjson
import pytest
from shopsimulator.budget import task_budget
from shopsimulator.catalog import Catalog, Product, inspect_catalog, inspect_records, read_catalog
from shopsimulator.errors import ShopError
from shopsimulator.generate import generate_world, make_records
from shopsimulator.generate_products import SCALES
from shopsimulator.generate_tasks import Shopper, Wish
from shopsimulator.reward import resembles, score_purchase
from shopsimulator.split_files import read_splits
from shopsimulator.splits import linked_components
from shopsimulator.words import ENGLISH, Vocabulary
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
    assert inspection.skipped == inspection.findings == ()
    assert catalog.language == language
    assert len(catalog.products) == scale.products == summary["products"]
    assert len(catalog.excluded) == scale.unpriceable
    splits = read_splits(folder / "splits.json", catalog)
    assert [len(ids) for ids in (splits.train, splits.val, splits.test)] == [scale.train, scale.val, scale.test]
    assert summary["splits"] == {"train": scale.train, "val": scale.val, "test": scale.test}


def test_linked_tasks_lie_in_one_split(small: tuple[str, Path, dict]) -> None:
    _, folder, _ = small
    catalog = read_catalog(folder / "catalog.json.gz")
    splits = read_splits(folder / "splits.json", catalog)
    for group in linked_components(catalog.tasks.values()):
        assert sum(bool(set(group) & set(ids)) for ids in (splits.train, splits.val, splits.test)) == 1


def test_what_a_small_model_copies_is_short_and_lower_case(small: tuple[str, Path, dict]) -> None:
    _, folder, _ = small
    catalog = read_catalog(folder / "catalog.json.gz")
    assert {len(asin) for asin in catalog.products} == {8}
    assert {asin[:4] for asin in catalog.products} == {"1000"}
    for product in catalog.products.values():
        assert product.category.count("›") == 2
        assert product.title.startswith(product.shop_name)
        assert all(value.raw == value.value for values in product.options.values() for value in values)


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


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_right_selection_of_the_goal_always_succeeds_and_a_lookalike_hardly_ever(language: str) -> None:
    records, wishes = make_records(SCALES["full"], 0, language)
    catalog, words, rng = inspect_records(records).catalog, VOCABULARIES[language], random.Random(0)
    shelves: dict[str, list[Product]] = {}
    for product in catalog.products.values():
        shelves.setdefault(product.category, []).append(product)
    lucky = tried = 0
    for wish in wishes:
        goal = catalog.products[wish.task.asin]
        assert _success(wish, goal, goal, _right(words, wish, goal))
        for other in rng.sample(shelves[goal.category], 3):
            if other is not goal:
                selected = {axis: rng.choice(values).value for axis, values in other.options.items()}
                lucky += _success(wish, goal, other, selected)
                tried += 1
    assert lucky / tried < 0.03


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_wrong_colour_size_or_material_of_an_else_right_purchase_fails(language: str) -> None:
    records, wishes = make_records(SCALES["small"], 0, language)
    catalog, words = inspect_records(records).catalog, VOCABULARIES[language]
    checked = set()
    for wish in wishes:
        goal = catalog.products[wish.task.asin]
        right = _right(words, wish, goal)
        for axis, need in ((words.colour_axis, "colour"), (words.size_axis, "budget")):
            dearest = max(goal.options[axis], key=lambda value: (value.price or 0, value.value != right[axis])).value
            if need in wish.needs and (need == "colour" or _price(goal, axis, dearest) > (wish.task.price_upper or 0)):
                assert not _success(wish, goal, goal, right | {axis: dearest})
                checked.add(need)
        lookalike = replace(goal, asin="1", title=f"{words.brands[-1]} {goal.category.split('›')[-1]}", attributes=())
        lookalike = replace(lookalike, full_description=lookalike.title)
        assert not _success(wish, goal, lookalike, right)
    assert checked == {"colour", "budget"}


@pytest.mark.parametrize("words", VOCABULARIES.values(), ids=VOCABULARIES)
def test_no_word_of_a_vocabulary_is_taken_for_another(words: Vocabulary) -> None:
    nouns = [noun for _, _, members in words.families for noun in members]
    named = [*words.brands, *words.materials, *nouns, *words.features]
    for own, other in permutations(named, 2):
        assert own not in other
        assert not resembles(own, other)
    for values in (words.colours, words.sizes, words.packs):
        assert not any(resembles(own, other) for own, other in permutations(values, 2))


def test_a_world_can_have_any_number_of_products_around_the_same_number_of_tasks(tmp_path: Path) -> None:
    summary = generate_world(tmp_path, "small", 0, "en", products=2000)
    assert (summary["products"], summary["tasks"]) == (2000, 240)
    titles = [product.title for product in read_catalog(tmp_path / "catalog.json.gz").products.values()]
    assert len(set(titles)) == 2000
    assert any(title.endswith(" mk4") for title in titles)  # only 640 names in this vocabulary
    with pytest.raises(ShopError, match="at least 320 products, not 100"):
        generate_world(tmp_path / "few", "small", 0, "en", products=100)
    assert not (tmp_path / "few").exists()


def test_the_budgets_version_makes_no_difference_to_generated_tasks() -> None:
    for language in ("en", "zh"):
        records, _ = make_records(SCALES["small"], 0, language)
        for task in inspect_records(records).catalog.tasks.values():
            assert task_budget(task, "instruction-budget-v1") == task_budget(task, "instruction-budget-v2")


def _success(wish: Wish, goal: Product, bought: Product, selected: dict[str, str]) -> bool:
    ceiling = wish.task.price_upper
    detail = score_purchase(goal, wish.task, bought, selected, price_upper=ceiling, title_terms="lexical")
    return detail["r_success"] == 1


def _right(words: Vocabulary, wish: Wish, goal: Product) -> dict[str, str]:
    cheapest = min(goal.options[words.size_axis], key=lambda value: value.price or 0).value
    colour = next(iter(wish.task.instruction_options), goal.options[words.colour_axis][0].value)
    return {words.colour_axis: colour, words.size_axis: cheapest}


def _price(product: Product, axis: str, value: str) -> float:
    return next(option.price or 0 for option in product.options[axis] if option.value == value)


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
