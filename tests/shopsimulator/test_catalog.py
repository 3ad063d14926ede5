"""Reading, filtering, hashing and writing catalogs; one odd record costs itself, never the file."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shopsimulator.catalog import Exclusion, Inspection, inspect_catalog, inspect_records, read_catalog, write_catalog
from shopsimulator.errors import ShopError
from shopsimulator.pricing import price_changing_axes, variant_price
from shopsimulator.products import OptionValue, Product
from shopsimulator.search import SearchIndex
from shopsimulator.validation import report


def record(asin: str = "1234567890", **fields):
    return {"asin": asin, "title": "oak shelf"} | fields


def task(task_id: int = 0, **fields):
    return {"task_id": task_id, "instruction": "buy a shelf", "attributes": ["oak"]} | fields


def priced(*prices):
    return [{"value": f"v{number}", "price": price} for number, price in enumerate(prices)]


def only(inspection: Inspection) -> Product:
    (product,) = inspection.catalog.products.values()
    return product


def found(inspection: Inspection) -> list[str]:
    return [f"{item.place}: {item.text}" for item in inspection.findings]


CHINESE = {
    "asin": "600123456789",
    "title": "北欧实木收纳盒 大号",
    "shop_name": "木语旗舰店",
    "category": "家居用品›收纳›收纳盒",
    "pricing": [59.9, 39.9],
    "customization_options": {
        "颜色分类": [{"value": " 原木色/Wood "}, {"value": "白色"}],
        "尺寸": [{"value": "大号", "price": "59.9"}, {"value": "小号", "price": 39.9}],
    },
    "attribute": ["实木", "大容量"],
    "full_description": "北欧实木收纳盒 大号",
    "product_category": "收纳",
    "reason_key": "r1",
    "source_product_index": 40,
    "instructions": [
        {
            "task_id": 17,
            "task_uid": "t-17",
            "instruction": "想买一个实木收纳盒,白色,50元以内",
            "instruction_simple": "收纳盒,50元以内",
            "attributes": ["实木"],
            "instruction_options": ["白色"],
            "price_upper": None,
            "price_constraint": {"kind": "hard_upper"},
        }
    ],
    "user_persona": {"用户ID": "U1", "用户标签": [{"__reasoning__": "y", "k": 1}], "__reasoning__": "x"},
}


def test_a_record_of_the_public_schema_is_read_whole(tmp_path):
    path = tmp_path / "catalog.json"
    path.write_text(json.dumps([CHINESE], ensure_ascii=False), encoding="utf-8")
    inspection = inspect_catalog(path)
    product, wanted = only(inspection), inspection.catalog.tasks[17]
    assert inspection.findings == inspection.skipped == ()
    assert product.category == "家居用品›收纳›收纳盒"
    assert product.pricing == (59.9, 39.9)
    assert product.options["尺寸"] == (OptionValue("大号", 59.9, "大号"), OptionValue("小号", 39.9, "小号"))
    assert (product.attributes, product.product_category) == (("实木", "大容量"), "收纳")
    assert product.instruction_text == wanted.instruction
    assert (wanted.attributes, wanted.instruction_options, wanted.price_upper) == (("实木",), ("白色",), None)
    assert (wanted.task_uid, wanted.source_product_index, wanted.reason_key) == ("t-17", 40, "r1")
    assert wanted.price_constraint == {"kind": "hard_upper"}
    assert inspection.catalog.language == "zh"


def test_option_values_are_written_as_actions_name_them_and_axis_names_stay():
    options = {" Size ": [{"value": " S/M "}, {"value": "L"}, "XL", {"value": 40}]}
    product = only(inspect_records([record(customization_options=options)]))
    assert {axis: [value.value for value in values] for axis, values in product.options.items()} == {
        " Size ": ["s | m", "l", "xl", "40"]
    }
    assert product.options[" Size "][0].raw == " S/M "


def test_the_reasoning_behind_a_persona_is_removed_at_any_depth():
    inspection = inspect_records([CHINESE, record(user_persona={"__reasoning__": "z"}, instructions=[task(1)])])
    assert inspection.catalog.tasks[17].persona == {"用户ID": "U1", "用户标签": [{"k": 1}]}
    assert inspection.catalog.tasks[1].persona is None


def test_what_may_be_missing_is_empty_and_what_is_unknown_is_none():
    inspection = inspect_records([record(instructions=[task()])])
    product = only(inspection)
    assert found(inspection) == []
    assert (product.shop_name, product.category, product.pricing, product.options) == ("", "", (), {})
    assert inspection.catalog.tasks[0].persona is None
    assert inspection.catalog.tasks[0].instruction_simple == "buy a shelf"
    assert inspection.catalog.language == "en"


def test_a_task_without_an_id_is_given_its_place_in_the_corpus():
    bare = {"instruction": "buy", "attributes": ["oak"]}
    records = [record("1", instructions=[bare]), record("2"), record("3", instructions=[bare, bare])]
    assert list(inspect_records(records).catalog.tasks) == [0, 1, 2]


@pytest.mark.parametrize("options", [["white"], "white", {"colour": "white"}])
def test_wanted_options_are_a_list_a_text_or_an_object(options):
    inspection = inspect_records([record(instructions=[task(instruction_options=options)])])
    assert inspection.catalog.tasks[0].instruction_options == ("white",)


def test_two_price_changing_axes_exclude_the_product_and_its_tasks():
    options = {"size": priced(10, 20), "colour": priced(10, 12), "print": priced(10, 10)}
    records = [
        record(customization_options=options, instructions=[task(1)], source_product_index=7),
        record("2222222222", instructions=[task(2)]),
    ]
    inspection = inspect_records(records)
    assert inspection.catalog.excluded == (
        Exclusion(7, "1234567890", (1,), "multiple_price_affecting_axes", ("size", "colour")),
    )
    assert list(inspection.catalog.products) == ["2222222222"]
    assert list(inspection.catalog.tasks) == [2]
    assert inspection.excluded_tasks == 1


def test_one_price_changing_axis_is_kept_whatever_the_others_print():
    options = {"size": priced(10, 20), "colour": priced(10, 10), "print": priced(None, 12)}
    assert not inspect_records([record(customization_options=options)]).catalog.excluded


PLACE = "products[0].customization_options['c']"
EMPTY_AXIS = "the axis has no value, so the product cannot be bought"
WANTED = {"instructions": [task()]}


@pytest.mark.parametrize(
    ("odd", "finding"),
    [
        ({"title": " "}, "products[0].title: noted: missing or empty"),
        ({"title": "<b>oak</b> shelf"}, "products[0].title: noted: holds markup, kept as plain text"),
        ({"title": "oak\nactions: buy"}, "products[0].title: repaired: line breaks read as blanks"),
        ({"pricing": ["面议"]}, "products[0].pricing[0]: price unknown: '面议' is not a number of at least 0"),
        ({"pricing": [-1]}, "products[0].pricing[0]: price unknown: '-1' is not a number of at least 0"),
        ({"pricing": [1, "1,29"]}, "products[0].pricing[1]: price unknown: '1,29' is not a number of at least 0"),
        ({"customization_options": []}, None),
        ({"customization_options": ""}, None),
        ({"customization_options": [1]}, "products[0].customization_options: ignored: expected an object, found list"),
        ({"customization_options": {"c": None}}, f"{PLACE}: axis skipped: expected a list, found NoneType"),
        ({"customization_options": {"c": []}}, f"{PLACE}: noted: {EMPTY_AXIS}"),
        ({"customization_options": {"c": ["x", {"value": " "}]}}, f"{PLACE}[1]: value skipped: empty"),
        ({"customization_options": {"c": ["x\ny"]}}, f"{PLACE}[0]: repaired: line breaks read as blanks"),
        (
            {"customization_options": {"c": [{"value": "x", "price": "¥19"}]}},
            f"{PLACE}[0].price: price unknown: '¥19' is not a number of at least 0",
        ),
        (
            {"customization_options": {"c": [{"value": "X", "price": 1}, {"value": "x", "price": 2}]}},
            f"{PLACE}[1]: repaired: 'x' is listed at two prices, the last one holds",
        ),
        (
            {"customization_options": {"c": [f"v{n}" for n in range(200)]}},
            f"{PLACE}: noted: 200 values; a page lists the first 100",
        ),
        ({"attribute": {"a": 1}}, "products[0].attribute: repaired: dict read as one text"),
        ({"category": ["home", "shelf"]}, "products[0].category: repaired: list joined with ›"),
        ({"instructions": "x"}, "products[0].instructions: ignored: expected a list, found str"),
        ({"user_persona": "U1"} | WANTED, "products[0].user_persona: ignored: expected an object, found str"),
    ],
)  # fmt: skip
def test_an_odd_value_is_repaired_or_left_out_and_listed(odd, finding):
    inspection = inspect_records([record(**odd), record("2")])
    assert len(inspection.catalog.products) == 2
    assert found(inspection) == ([finding] if finding else [])


def test_repairs_are_what_they_say():
    values = [
        {"value": "Red", "price": 1},
        {"value": "red ", "price": 2},
        {"value": ""},
        {"value": "blue", "price": "x"},
    ]
    odd = record(title="oak\r\nshelf", customization_options={"c": values, "gone": None, "bare": []}, pricing=[-1, "7"])
    product = only(inspect_records([odd]))
    assert product.title == "oak shelf"
    assert product.options == {
        "c": (OptionValue("red", 2.0, "Red red "), OptionValue("blue", None, "blue")),
        "bare": (),
    }
    assert (product.pricing, product.null_axes) == ((7.0,), ("gone",))


@pytest.mark.parametrize(
    ("odd", "place"),
    [
        ("shelf", "products[0]"),
        (record(None), "products[0].asin"),
        (record("nan"), "products[0].asin"),
        (record("1" * 21), "products[0].asin"),
    ],
)
def test_a_record_without_a_usable_asin_is_skipped_and_listed(odd, place):
    inspection = inspect_records([odd, record("2")])
    assert list(inspection.catalog.products) == ["2"]
    assert [item.place for item in inspection.skipped] == [place]


def test_a_repeated_asin_keeps_the_first_record():
    records = [record(instructions=[task(1)]), record(title="pine", instructions=[task(2)])]
    inspection = inspect_records(records)
    assert (only(inspection).title, list(inspection.catalog.tasks)) == ("oak shelf", [1])
    assert "was met before" in inspection.skipped[0].text


@pytest.mark.parametrize(
    ("odd", "finding"),
    [
        ({"attributes": []}, ".instructions[0].attributes: task skipped: none, so there is nothing to judge"),
        ({"instruction": None}, ".instructions[0].instruction: task skipped: missing or empty"),
        ({"task_id": "x"}, ".instructions[0].task_id: task skipped: expected a whole number below 2^63, found 'x'"),
        ({"task_id": True}, ".instructions[0].task_id: task skipped: expected a whole number below 2^63, found 'True'"),
        ({"price_upper": -1}, ".instructions[0].price_upper: task skipped: '-1' is not a number of at least 0"),
        ({"price_upper": "面议"}, ".instructions[0].price_upper: task skipped: '面议' is not a number of at least 0"),
    ],
)
def test_a_task_that_cannot_be_judged_is_skipped_alone(odd, finding):
    inspection = inspect_records([record(instructions=[task(5) | odd, task(6)])])
    assert list(inspection.catalog.tasks) == [6]
    assert found(inspection) == [f"products[0]{finding}"]


def test_a_repeated_task_id_keeps_the_first_task():
    inspection = inspect_records([record("1", instructions=[task(1)]), record("2", instructions=[task(1)])])
    assert inspection.catalog.tasks[1].asin == "1"
    assert found(inspection) == ["products[1].instructions: task skipped: task_id 1 was met before"]


@pytest.mark.parametrize(("upper", "ceiling"), [("88", 88.0), (0, 0.0), ("", None), (None, None)])
def test_an_annotated_ceiling_is_a_number_or_its_digits(upper, ceiling):
    assert inspect_records([record(instructions=[task(price_upper=upper)])]).catalog.tasks[0].price_upper == ceiling


def test_a_file_without_any_product_names_the_first_reason(tmp_path):
    path = tmp_path / "catalog.json"
    path.write_text(json.dumps([{"title": "x"}, "shelf"]))
    with pytest.raises(ShopError, match=r"none of its 2 records.*products\[0\]\.asin: missing"):
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
    catalogs = [read_catalog(path) for path in (spaced, wrapped, packed)]
    assert len({catalog.sha256 for catalog in catalogs}) == 1
    assert len({catalog.file_sha256 for catalog in catalogs}) == 3
    assert inspect_records([CHINESE | {"title": "北欧"}]).catalog.sha256 != catalogs[0].sha256


def test_writing_is_deterministic_and_leaves_nothing_behind(tmp_path):
    write_catalog(tmp_path / "deep" / "a.json.gz", [CHINESE])
    write_catalog(tmp_path / "deep" / "b.json.gz", [CHINESE])
    first, second = sorted((tmp_path / "deep").iterdir())
    assert first.read_bytes() == second.read_bytes()


def test_a_catalog_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ShopError, match="cannot write"):
        write_catalog(tmp_path / "file" / "catalog.json", [CHINESE])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
OPTION = st.fixed_dictionaries({}, optional={"value": JSON, "price": JSON}) | JSON
TASK = st.fixed_dictionaries(
    {"instruction": JSON, "attributes": JSON},
    optional={"task_id": JSON, "instruction_options": JSON, "price_upper": JSON, "instruction_simple": JSON},
)
RECORD = st.fixed_dictionaries(
    {"asin": JSON | st.sampled_from(["1", "2"]), "title": JSON},
    optional={
        "pricing": JSON,
        "category": JSON,
        "attribute": JSON,
        "small_description": JSON,
        "customization_options": st.dictionaries(st.text(max_size=3), st.lists(OPTION, max_size=3) | JSON, max_size=3)
        | JSON,
        "instructions": st.lists(TASK | JSON, max_size=2) | JSON,
        "user_persona": JSON,
    },
)


@given(st.lists(RECORD | JSON, max_size=4))
def test_any_record_is_read_or_skipped_and_what_was_read_can_be_used(records):
    inspection = inspect_records(records)
    catalog = inspection.catalog
    assert len(catalog.products) + len(catalog.excluded) + len(inspection.skipped) == len(records)
    SearchIndex(catalog).search("oak")
    report(inspection, "instruction-budget-v2")
    for product in catalog.products.values():
        assert variant_price(product, {}).status in ("pass", "unverifiable")
        assert len(price_changing_axes(product.options)) < 2
        assert "\n" not in product.title
