"""The `shopsimulator` command: JSON out, exit code 2 and one line on bad input."""

from __future__ import annotations

import inspect
import json
import signal
import subprocess
import sys
import urllib.request

import pytest
from shopsimulator.catalog import write_catalog
from shopsimulator.cli import main
from shopsimulator.engine import ShopSettings
from shopsimulator.service import run_service
from typer.testing import CliRunner

PRICED = [{"value": "a", "price": 1}, {"value": "b", "price": 2}]
RECORDS = [
    {
        "asin": "1000000001",
        "title": "oak shelf",
        "instructions": [{"task_id": 4, "instruction": "a shelf", "attributes": ["oak"]}],
    },
    {
        "asin": "1000000002",
        "title": "oak box",
        "user_persona": {"用户ID": "U"},
        "instructions": [{"task_id": 9, "instruction": "b", "attributes": ["oak"]}],
    },
    {
        "asin": "1000000003",
        "title": "oak bed",
        "customization_options": {"x": PRICED, "y": PRICED},
        "instructions": [{"task_id": 5, "instruction": "c", "attributes": ["oak"]}],
    },
]


@pytest.fixture
def catalog_file(tmp_path):
    write_catalog(tmp_path / "catalog.json.gz", RECORDS)
    return str(tmp_path / "catalog.json.gz")


def run(*arguments: str):
    return CliRunner().invoke(main, list(arguments))


def test_budget_prints_both_readings():
    result = run("budget", "每件１，２９９元以内")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "instruction-budget-v1": {"price_upper": 1299},
        "instruction-budget-v2": {"price_upper": None, "kind": "non_total_price", "evidence": "每件1,299元以内"},
    }
    assert json.loads(run("budget", "an oak shelf").stdout)["instruction-budget-v2"]["kind"] == "no_budget"


def test_search_prints_ranked_asins_with_scores(catalog_file):
    hits = json.loads(run("search", "--catalog", catalog_file, "--top", "2", "oak shelf").stdout)
    assert [(hit["rank"], hit["asin"]) for hit in hits] == [(1, "1000000001"), (2, "1000000002")]
    assert hits[0]["score"] > hits[1]["score"] > 0
    assert json.loads(run("search", "--catalog", catalog_file, "steel").stdout) == []


def test_validate_reports_counts_and_exclusions(catalog_file):
    result = run("validate", catalog_file)
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["valid"] is True
    assert len(report.pop("sha256")) == 64
    counts = {
        "records": 3, "products": 2, "tasks": 2, "persona_tasks": 1, "standard_tasks": 1, "skipped_records": 0,
        "excluded_products": 1, "excluded_tasks": 1,
    }  # fmt: skip
    assert {key: report[key] for key in counts} == counts
    assert report["excluded"] == [
        {
            "asin": "1000000003",
            "reason": "multiple_price_affecting_axes",
            "price_affecting_axes": ["x", "y"],
            "task_ids": [5],
        }
    ]


def test_validate_lists_what_is_odd_and_exits_2_only_if_nothing_can_be_used(tmp_path):
    path = tmp_path / "odd.json"
    path.write_text(json.dumps([{"asin": "1"}, {"title": "y"}]))
    result = run("validate", str(path))
    report = json.loads(result.stdout)
    assert (result.exit_code, report["valid"]) == (0, True)
    assert report["skipped"] == ["products[1].asin: missing; give a string of digits"]
    assert report["found"] == ["products[0].title: noted: missing or empty"]
    path.write_text(json.dumps([{"title": "y"}]))
    result = run("validate", str(path))
    assert (result.exit_code, json.loads(result.stdout)["valid"]) == (2, False)


@pytest.mark.parametrize(
    "arguments",
    [
        ("validate", "missing.json"),
        ("search", "--catalog", "missing.json", "oak"),
        ("serve", "--catalog", "missing.json"),
    ],
)
def test_a_missing_file_is_one_line_on_standard_error(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: missing.json: ")
    assert result.stderr.count("\n") == 1


def test_unknown_options_and_values_exit_2(catalog_file):
    assert run("search", "--catalog", catalog_file, "--top", "0", "oak").exit_code == 2
    assert run("generate", "--out", "x", "--language", "fr").exit_code == 2
    assert run("budget").exit_code == 2


@pytest.mark.parametrize(
    ("option", "value"),
    [("--slots", "999999999999"), ("--lease-ttl-s", "inf"), ("--lease-ttl-s", "nan"), ("--page-size", "9" * 30)],
)
def test_numbers_no_service_can_live_with_exit_2(catalog_file, option, value):
    """They would take all memory, or never end."""
    result = run("serve", "--catalog", catalog_file, option, value)
    assert (result.exit_code, result.stdout) == (2, "")
    assert option in result.stderr


def test_generate_writes_a_world_that_validates(tmp_path):
    result = run("generate", "--out", str(tmp_path / "world"), "--size", "small", "--seed", "3", "--language", "en")
    assert result.exit_code == 0
    assert isinstance(json.loads(result.stdout), dict)
    assert (tmp_path / "world" / "splits.json").is_file()
    report = json.loads(run("validate", str(tmp_path / "world" / "catalog.json.gz")).stdout)
    assert report["valid"] is True
    assert report["excluded_products"] > 0


def test_serve_announces_its_address_and_answers(catalog_file):
    command = [
        sys.executable,
        "-m",
        "shopsimulator.cli",
        "serve",
        "--catalog",
        catalog_file,
        "--port",
        "0",
        "--slots",
        "2",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            announced = json.loads(process.stdout.readline())
            assert announced["tasks"] == 2
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(announced["url"] + "/healthz", timeout=10) as response:
                assert response.status == 200
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=20)


def test_an_output_that_is_no_directory_and_an_empty_host_are_one_line(tmp_path, catalog_file):
    (tmp_path / "file").write_text("")
    for arguments in (
        ("generate", "--out", str(tmp_path / "file"), "--size", "small"),
        ("serve", "--catalog", catalog_file, "--host", ""),
    ):
        result = run(*arguments)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        assert result.stderr.startswith("error: ")


def test_a_seed_beyond_json_is_refused(tmp_path):
    result = run("generate", "--out", str(tmp_path / "w"), "--size", "small", "--seed", str(10**30))
    assert (result.exit_code, (tmp_path / "w").exists()) == (2, False)


def test_a_task_id_of_any_length_is_reported(tmp_path):
    task = {"task_id": "1" * 5000, "instruction": "x", "attributes": ["x"]}
    write_catalog(tmp_path / "long.json", [{"asin": "1", "title": "t", "instructions": [task]}])
    result = run("validate", str(tmp_path / "long.json"))
    assert result.exit_code == 0
    assert "task_id: task skipped: expected a whole number" in json.loads(result.stdout)["found"][0]


def test_split_freezes_tasks_and_tells_what_it_did(tmp_path):
    run("generate", "--out", str(tmp_path), "--size", "small")
    arguments = ("split", "--catalog", str(tmp_path / "catalog.json.gz"), "--out", str(tmp_path / "s.json"))
    result = run(*arguments, "--sizes", "100, 20,10", "--seed", "4", "--max-group", "2")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert [report["splits"][name]["task_count"] for name in ("train", "val", "test")] == [100, 20, 10]
    assert report["splits"]["test"]["max_group_size"] <= 2
    assert (report["policy"]["seed"], report["policy"]["held_out_max_group_size"]) == (4, 2)
    assert report["published"] is False
    manifest = json.loads((tmp_path / "s.json").read_text())
    assert len(manifest["splits"]["val"]["task_ids"]) == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sizes", "1,1,0"), "1 tasks with a persona (of 2)"),
        (("--sizes", "2,1,0", "--tasks", "all"), "the catalog has 2 tasks;"),
        (("--sizes", "1,1"), "give three numbers"),
        (("--sizes", "a,b,c"), "give three numbers"),
    ],
)
def test_split_says_what_cannot_be_done(tmp_path, catalog_file, options, message):
    result = run("split", "--catalog", catalog_file, "--out", str(tmp_path / "s.json"), *options)
    assert (result.exit_code, result.stdout, (tmp_path / "s.json").exists()) == (2, "", False)
    assert message in " ".join(result.stderr.split())


def test_an_index_file_is_built_and_searched(tmp_path, catalog_file):
    path = str(tmp_path / "index.sqlite")
    manifest = json.loads(run("index", "--catalog", catalog_file, "--out", path).stdout)
    assert (manifest["product_count"], manifest["file"]) == (2, path)
    with_file = run("search", "--catalog", catalog_file, "--index", path, "oak shelf")
    assert with_file.stdout == run("search", "--catalog", catalog_file, "oak shelf").stdout
    write_catalog(tmp_path / "other.json", RECORDS[:1])
    result = run("search", "--catalog", str(tmp_path / "other.json"), "--index", path, "oak")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "another catalog" in result.stderr


def test_the_defaults_of_serve_are_those_of_the_service():
    (command,) = (item for item in main.registered_commands if item.callback.__name__ == "serve")
    defaults = {name: item.default for name, item in inspect.signature(command.callback).parameters.items()}
    own = {name: item.default for name, item in inspect.signature(run_service).parameters.items()}
    for name in ("host", "port", "slots", "lease_ttl_s"):
        assert defaults[name] == own[name]
    settings = ShopSettings()
    for name in ("page_size", "rendering", "max_steps", "title_terms"):
        assert defaults[name] == getattr(settings, name)
    assert (defaults["budget"], defaults["index"]) == (settings.budget_version, settings.index_path)


def test_a_seed_out_of_range_is_refused(tmp_path):
    result = run("generate", "--out", str(tmp_path), "--size", "small", "--seed", str(2**63))
    assert result.exit_code == 2
    assert "give a whole number from 0 to 2^63 - 1" in result.stderr
    assert not list(tmp_path.iterdir())


def test_port_and_slots_can_come_from_the_environment(catalog_file):
    for name, value in (("SHOPSIM_PORT", "70000"), ("SHOPSIM_ENV_SLOTS", "0")):
        result = CliRunner().invoke(main, ["serve", "--catalog", catalog_file], env={name: value})
        assert (result.exit_code, result.stdout) == (2, "")
        assert name in result.stderr
