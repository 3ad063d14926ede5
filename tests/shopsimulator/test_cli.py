"""The `shopsimulator` command: JSON out, exit code 2 and one line on bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request

import pytest
from shopsimulator.catalog import write_catalog
from shopsimulator.cli import main
from typer.testing import CliRunner

PRICED = [{"value": "a", "price": 1}, {"value": "b", "price": 2}]
RECORDS = [
    {"asin": "1000000001", "title": "oak shelf", "instructions": [{"task_id": 4, "instruction": "a shelf"}]},
    {
        "asin": "1000000002",
        "title": "oak box",
        "user_persona": {"用户ID": "U"},
        "instructions": [{"task_id": 9, "instruction": "b"}],
    },
    {
        "asin": "1000000003",
        "title": "oak bed",
        "customization_options": {"x": PRICED, "y": PRICED},
        "instructions": [{"task_id": 5, "instruction": "c"}],
    },
]


@pytest.fixture
def catalog_file(tmp_path):
    write_catalog(tmp_path / "catalog.json.gz", RECORDS)
    return str(tmp_path / "catalog.json.gz")


def run(*arguments: str):
    return CliRunner().invoke(main, list(arguments))


def test_budget_prints_the_three_fields():
    result = run("budget", "１，２９９元以内")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"price_upper": 1299, "kind": "hard_upper", "evidence": "1,299元以内"}
    assert json.loads(run("budget", "an oak shelf").stdout) == {
        "price_upper": None,
        "kind": "no_budget",
        "evidence": "",
    }


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
        key: report[key]
        for key in ("records", "products", "tasks", "persona_tasks", "excluded_products", "excluded_tasks")
    }
    assert counts == {
        "records": 3, "products": 2, "tasks": 2, "persona_tasks": 1, "excluded_products": 1, "excluded_tasks": 1,
    }  # fmt: skip
    assert report["excluded"] == [{"asin": "1000000003", "reason": "several price-changing axes"}]


def test_validate_lists_every_error_and_exits_2(tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps([{"asin": "1"}, {"asin": "2", "title": "x"}, {"title": "y"}]))
    result = run("validate", str(path))
    report = json.loads(result.stdout)
    assert result.exit_code == 2
    assert report["valid"] is False
    assert [error.split(":")[0] for error in report["errors"]] == ["products[0].title", "products[2].asin"]


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


def test_a_task_id_of_any_length_is_a_reported_error(tmp_path):
    record = {"asin": "1", "title": "t", "instructions": [{"task_id": "1" * 5000, "instruction": "x"}]}
    write_catalog(tmp_path / "long.json", [record])
    result = run("validate", str(tmp_path / "long.json"))
    assert result.exit_code == 2
    assert "task_id: expected a whole number" in json.loads(result.stdout)["errors"][0]


def test_a_seed_out_of_range_is_refused(tmp_path):
    result = run("generate", "--out", str(tmp_path), "--size", "small", "--seed", str(2**63))
    assert result.exit_code == 2
    assert "give a whole number from 0 to 2^63 - 1" in result.stderr
    assert not list(tmp_path.iterdir())
