"""Reading, checking, hashing and writing catalogs."""

from __future__ import annotations

import gzip
import json

import pytest
from shopsimulator.catalog import inspect_catalog, inspect_records, read_catalog, write_catalog
from shopsimulator.errors import ShopError
from shopsimulator.products import OptionValue


def record(asin: str = "1234567890", **fields):
    return {"asin": asin, "title": "oak shelf"} | fields


def task(task_id: int = 0, **fields):
    return {"task_id": task_id, "instruction": "buy a shelf"} | fields


def priced(*prices):
    return [{"value": f"v{number}", "price": price} for number, price in enumerate(prices)]


CHINESE = {
    "asin": "600123456789",
    "title": "北欧实木收纳盒 大号",
    "shop_name": "木语旗舰店",
    "category": "家居用品›收纳›收纳盒",
    "pricing": [39.9, 59.9],
    "customization_options": {
        "颜色分类": [{"value": "原木色"}, {"value": "白色"}],
        "尺寸": [{"value": "大号", "price": "59.9"}, {"value": "小号", "price": 39.9}],
    },
    "attribute": ["实木", "大容量"],
    "full_description": "北欧实木收纳盒 大号",
    "instructions": [
        {
            "task_id": 17,
            "instruction": "想买一个实木收纳盒,白色,50元以内",
            "instruction_simple": "收纳盒,50元以内",
            "attributes": ["实木"],
            "instruction_options": ["白色"],
            "price_upper": None,
        }
    ],
    "user_persona": {"用户ID": "U1", "用户标签": []},
}


def test_a_record_of_the_public_schema_is_read_whole(tmp_path):
    path = tmp_path / "catalog.json"
    path.write_text(json.dumps([CHINESE], ensure_ascii=False), encoding="utf-8")
    catalog = read_catalog(path)
    product, wanted = catalog.products["600123456789"], catalog.tasks[17]
    assert product.category == ("家居用品", "收纳", "收纳盒")
    assert product.pricing == (39.9, 59.9)
    assert product.options["尺寸"] == (OptionValue("大号", 59.9), OptionValue("小号", 39.9))
    assert product.attributes == ("实木", "大容量")
    assert wanted.persona == {"用户ID": "U1", "用户标签": []}
    assert (wanted.attributes, wanted.instruction_options, wanted.price_upper) == (("实木",), ("白色",), None)
    assert catalog.language == "zh"


def test_what_may_be_missing_is_empty_and_what_is_unknown_is_none():
    inspection = inspect_records([record(instructions=[task()])])
    assert not inspection.errors
    product = inspection.catalog.products["1234567890"]
    assert (product.shop_name, product.category, product.pricing, product.options) == ("", (), (), {})
    assert inspection.catalog.tasks[0].persona is None
    assert inspection.catalog.tasks[0].instruction_simple == "buy a shelf"
    assert inspection.catalog.language == "en"


def test_two_price_changing_axes_exclude_the_product_and_its_tasks():
    options = {"size": priced(10, 20), "colour": priced(10, 12), "print": priced(10, 10)}
    inspection = inspect_records(
        [record(customization_options=options, instructions=[task(1)]), record("2222222222", instructions=[task(2)])]
    )
    assert [item.asin for item in inspection.catalog.excluded] == ["1234567890"]
    assert list(inspection.catalog.products) == ["2222222222"]
    assert list(inspection.catalog.tasks) == [2]
    assert inspection.excluded_tasks == 1


def test_one_price_changing_axis_is_kept_whatever_the_others_print():
    options = {"size": priced(10, 20), "colour": priced(10, 10), "print": priced(None, 12)}
    assert not inspect_records([record(customization_options=options)]).catalog.excluded


def test_prices_are_read_from_strings_as_crawled():
    options = {"size": priced("¥1,299.50", "19.9元", "", None, "１２")}
    product = inspect_records([record(customization_options=options)]).catalog.products["1234567890"]
    assert [value.price for value in product.options["size"]] == [1299.5, 19.9, None, None, 12.0]


def test_a_value_printed_at_two_prices_has_no_known_price():
    values = [{"value": "red", "price": 1}, {"value": "red", "price": 2}, {"value": "blue", "price": 3}, {"value": ""}]
    product = inspect_records([record(customization_options={"c": values, "empty": []})]).catalog.products["1234567890"]
    assert product.options == {"c": (OptionValue("red", None), OptionValue("blue", 3.0))}


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        ({"asin": None}, "products[0].asin"),
        ({"title": " "}, "products[0].title"),
        ({"pricing": ["cheap"]}, "products[0].pricing[0]"),
        ({"pricing": [-1]}, "products[0].pricing[0]"),
        ({"pricing": [True]}, "products[0].pricing[0]"),
        ({"customization_options": []}, "products[0].customization_options"),
        ({"customization_options": {"size": priced("12 to 15")}}, "products[0].customization_options['size'][0].price"),
        ({"attribute": "oak"}, "products[0].attribute"),
        ({"instructions": [{"task_id": 1}]}, "products[0].instructions[0].instruction"),
        ({"instructions": [task("x")]}, "products[0].instructions[0].task_id"),
        ({"instructions": [task(1), task(1)]}, "products[0].instructions[1].task_id"),
        ({"user_persona": "U1", "instructions": [task()]}, "products[0].user_persona"),
    ],
)
def test_an_error_names_the_place(tmp_path, bad, place):
    path = tmp_path / "catalog.json"
    path.write_text(json.dumps([record(**bad)]))
    with pytest.raises(ShopError, match="catalog") as error:
        read_catalog(path)
    assert place in str(error.value)


def test_every_error_is_collected_and_the_first_is_raised(tmp_path):
    path = tmp_path / "catalog.json"
    path.write_text(json.dumps([record(title=""), record(), record(), "shelf"]))
    errors = inspect_catalog(path).errors
    assert [error.split(":")[0] for error in errors] == ["products[0].title", "products[2].asin", "products[3]"]
    with pytest.raises(ShopError, match="2 more"):
        read_catalog(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"3", b'{"items": []}', b"[]", b"\x1f\x8bdamaged", gzip.compress(b"[{}]" * 99)[:-9]],
)
def test_a_file_that_is_no_catalog_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "catalog.json"
    path.write_bytes(content)
    with pytest.raises(ShopError) as error:
        read_catalog(path)
    assert "catalog.json" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ShopError, match="No such file"):
        read_catalog(tmp_path / "none.json")


def test_the_hash_covers_content_not_packing(tmp_path):
    spaced, wrapped, packed = (tmp_path / name for name in ("a.json", "b.json", "c.json.gz"))
    spaced.write_bytes(b"\xef\xbb\xbf" + json.dumps([CHINESE], indent=3).encode())
    wrapped.write_text(json.dumps({"products": [CHINESE]}))
    write_catalog(packed, [CHINESE])
    hashes = {read_catalog(path).sha256 for path in (spaced, wrapped, packed)}
    assert len(hashes) == 1
    assert inspect_records([CHINESE | {"title": "北欧"}]).catalog.sha256 not in hashes


def test_writing_is_deterministic_and_leaves_nothing_behind(tmp_path):
    write_catalog(tmp_path / "deep" / "a.json.gz", [CHINESE])
    write_catalog(tmp_path / "deep" / "b.json.gz", [CHINESE])
    first, second = sorted((tmp_path / "deep").iterdir())
    assert first.read_bytes() == second.read_bytes()


def test_a_catalog_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ShopError, match="cannot write"):
        write_catalog(tmp_path / "file" / "catalog.json", [CHINESE])
