"""A shop opened from its index file is the shop that was read, at once."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict

import orjson
import pytest
from shopsimulator.catalog import read_catalog, write_catalog
from shopsimulator.errors import ShopError
from shopsimulator.index_file import build_index, open_catalog
from shopsimulator.search import SearchIndex


def priced(*prices):
    return [{"value": f"V/{number}", "price": price} for number, price in enumerate(prices)]


RECORDS = [
    {
        "asin": f"{number:08d}",
        "title": f"{wood} shelf",
        "pricing": [9.0, 3.0],
        "attribute": [wood],
        "customization_options": {"size": priced(3, None), "bare": []},
        "small_description": ["solid"],
        "user_persona": {"用户ID": f"U{number}"},
        "instructions": [
            {
                "task_id": 10 - number,
                "instruction": f"a {wood} shelf",
                "attributes": [wood],
                "instruction_options": ["v"],
            }
        ],
    }
    for number, wood in enumerate(["oak", "pine", "beech"])
]
TWO_AXES = {"asin": "99", "title": "x", "customization_options": {"a": priced(1, 2), "b": priced(1, 2)}}


@pytest.fixture
def catalog_file(tmp_path):
    write_catalog(tmp_path / "catalog.json.gz", [*RECORDS, TWO_AXES])
    return tmp_path / "catalog.json.gz"


@pytest.fixture
def index_file(tmp_path, catalog_file):
    build_index(read_catalog(catalog_file), tmp_path / "deep" / "index.sqlite")
    return tmp_path / "deep" / "index.sqlite"


def test_the_stored_catalog_is_the_one_that_was_read(catalog_file, index_file):
    read, stored = read_catalog(catalog_file), open_catalog(catalog_file, index_file)
    assert list(stored.products) == list(read.products)
    assert [asdict(product) for product in stored.products.values()] == list(map(asdict, read.products.values()))
    assert list(stored.tasks.items()) == list(read.tasks.items())
    assert (stored.excluded, stored.sha256, stored.language) == (read.excluded, read.sha256, read.language)
    assert (len(stored.products), "00000001" in stored.products, 99 in stored.tasks) == (3, True, False)
    with pytest.raises(KeyError):
        stored.products["99"]


def test_a_product_is_decoded_once(catalog_file, index_file):
    stored = open_catalog(catalog_file, index_file)
    assert stored.products["00000001"] is stored.products["00000001"]


def test_searching_the_file_gives_the_ranks_of_memory(catalog_file, index_file):
    read, stored = read_catalog(catalog_file), open_catalog(catalog_file, index_file)
    for query in ("oak shelf", "shelf", "solid pine", "size"):
        assert SearchIndex(stored, index_file).search(query) == SearchIndex(read).search(query)


def test_an_absent_index_is_built_and_then_used(tmp_path, catalog_file):
    path = tmp_path / "new.sqlite"
    catalog = open_catalog(catalog_file, path)
    assert not path.exists()
    SearchIndex(catalog, path)
    before = path.read_bytes()
    again = open_catalog(catalog_file, path)
    assert SearchIndex(again, path).asins("oak") == ("00000000",)
    assert type(again.products) is not dict
    assert path.read_bytes() == before


def test_a_catalog_that_was_packed_anew_still_fits(tmp_path, catalog_file, index_file):
    write_catalog(tmp_path / "plain.json", [*RECORDS, TWO_AXES])
    catalog = open_catalog(tmp_path / "plain.json", index_file)
    assert type(catalog.products) is dict  # read: its bytes are not those the file was built from
    assert SearchIndex(catalog, index_file).asins("oak") == ("00000000",)


def test_the_index_of_another_catalog_is_refused(tmp_path, index_file):
    write_catalog(tmp_path / "other.json", RECORDS[:2])
    with pytest.raises(ShopError, match=r"index\.sqlite: built from another catalog.*product_sha256"):
        SearchIndex(open_catalog(tmp_path / "other.json", index_file), index_file)


def test_an_index_of_other_rules_is_refused(catalog_file, index_file):
    with sqlite3.connect(index_file) as connection:
        manifest = orjson.loads(connection.execute("SELECT payload FROM manifest").fetchone()[0])
        manifest["field_weights"]["title"] = 4.0
        connection.execute("UPDATE manifest SET payload = ?", (orjson.dumps(manifest),))
    with pytest.raises(ShopError, match="field_weights"):
        SearchIndex(read_catalog(catalog_file), index_file)


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\x00"])
def test_a_file_that_is_no_index_is_refused_in_one_line(tmp_path, catalog_file, content):
    path = tmp_path / "index.sqlite"
    path.write_bytes(content)
    with pytest.raises(ShopError, match="not a search index") as error:
        open_catalog(catalog_file, path)
    assert "\n" not in str(error.value)


def test_an_index_that_cannot_be_written_is_a_clear_error(tmp_path, catalog_file):
    (tmp_path / "file").write_text("")
    with pytest.raises(ShopError, match="cannot write"):
        build_index(read_catalog(catalog_file), tmp_path / "file" / "index.sqlite")


def test_the_manifest_names_catalog_versions_columns_and_weights(tmp_path, catalog_file):
    catalog = read_catalog(catalog_file)
    manifest = build_index(catalog, tmp_path / "i.sqlite")
    assert manifest["product_sha256"] == catalog.sha256
    assert manifest["version"] == "shopsimulator-multifield-bm25-v3"
    assert manifest["fts_columns"] == list(manifest["field_weights"])
    assert manifest["product_count"] == 3
