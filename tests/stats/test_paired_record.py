import csv
import json
import math

import pytest

from intraskill.cli import main
from intraskill.core.errors import UserError
from intraskill.stats.paired_record import paired_record

SEED = 20260901


@pytest.fixture
def paired(capsys):
    """paired(options...) -> (exit code, record, stderr) of `intraskill stats paired`."""

    def run(*words):
        with pytest.raises(SystemExit) as caught:
            main(["stats", "paired", *map(str, words)])
        out, err = capsys.readouterr()
        return caught.value.code, json.loads(out) if out else None, err

    return run


@pytest.fixture
def table(tmp_path):
    def write(header, rows):
        path = tmp_path / "table.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])
        return path

    return write


@pytest.mark.parametrize(
    ("a", "b", "means", "moved", "interval"),
    [
        ("base_free", "iter80_free", (0.5175, 0.8425), (139, 9, 198, 54), (0.2750, 0.3750)),
        ("base_free", "base_s0", (0.5175, 0.545), None, (-0.0150, 0.0725)),
        ("iter80_free", "iter80_st", (0.8425, 0.8625), (19, 11, 326, 44), (-0.0050, 0.0475)),
    ],
)
def test_published_success(paired, published, a, b, means, moved, interval):
    path = published / "test_outcomes.csv"
    code, record, _ = paired("--csv", path, "--a", f"{a}_success", "--b", f"{b}_success", "--seed", SEED)
    assert code == 0
    assert (record["n"], record["mean_a"], record["mean_b"]) == (400, *means)
    assert record["ci"] == pytest.approx(interval, abs=0.006)
    if moved:
        assert tuple(record["transitions"].values()) == moved


@pytest.mark.parametrize(
    ("name", "a", "b", "means"),
    [
        ("base_s0_minus_base_free", "base_free", "base_s0", (0.542167, 0.566301)),
        ("iter80_st_minus_iter80_free", "iter80_free", "iter80_st", (0.850060, 0.867143)),
    ],
)
def test_published_reward(paired, published, published_json, name, a, b, means):
    path = published / "test_outcomes.csv"
    _, record, _ = paired("--csv", path, "--a", f"{a}_reward", "--b", f"{b}_reward", "--seed", SEED)
    metric = published_json("comparisons.json")["comparisons"][name]["metrics"]["reward"]
    assert (round(record["mean_a"], 6), round(record["mean_b"], 6)) == means
    assert record["mean_difference"] == pytest.approx(metric["mean_difference"], abs=1e-12)
    assert record["ci"] == pytest.approx(metric["confidence_interval"], abs=0.006)
    assert record["transitions"] is record["mcnemar_p"] is None


def test_thirteen_wins_and_five_losses(paired, table):
    rows = [(0, 1)] * 13 + [(1, 0)] * 5 + [(0, 0)] * 382
    code, record, err = paired("--csv", table("ab", rows), "--a", "a", "--b", "b", "--bounds", 0, 1)
    assert (code, err) == (0, "")
    assert list(record) == [
        "n", "mean_a", "mean_b", "mean_difference", "paired_se", "ci", "mcnemar_p", "transitions", "hoeffding",
    ]  # fmt: skip
    assert record["mean_difference"] == pytest.approx(0.02, abs=1e-12)
    assert record["paired_se"] == pytest.approx(0.01057, abs=5e-6)
    assert record["mcnemar_p"] == pytest.approx(0.0963, abs=5e-5)
    assert record["transitions"] == {"fixed": 13, "lost": 5, "both": 0, "neither": 382}
    assert record["hoeffding"]["decision"] == "undecided"


def test_the_seed_and_the_samples_are_used(paired, table):
    path = table("ab", [(i % 7 / 7, i % 5 / 5) for i in range(60)])

    def ci(*words):
        return paired("--csv", path, "--a", "a", "--b", "b", *words)[1]["ci"]

    assert ci("--seed", 1) == ci("--seed", 1) != ci("--seed", 2)
    assert ci("--samples", 50) != ci("--samples", 10_000) == ci()


def test_hoeffding_decides_where_the_difference_is_beyond_its_radius():
    record = paired_record([0.0] * 100, [1.0] * 100, bounds=(0, 1))
    assert record["hoeffding"]["radius"] == pytest.approx(2 * math.sqrt(math.log(40) / 200))
    assert record["hoeffding"]["decision"] == "b_higher"
    assert paired_record([1.0] * 100, [0.0] * 100, bounds=(0, 1))["hoeffding"]["decision"] == "a_higher"


def test_wider_bounds_widen_the_radius(paired, table):
    path = table("ab", [(0.2, 0.4), (0.9, 0.1)])
    narrow = paired("--csv", path, "--a", "a", "--b", "b")[1]["hoeffding"]["radius"]
    assert paired("--csv", path, "--a", "a", "--b", "b", "--bounds", -1, 1)[1]["hoeffding"]["radius"] == 2 * narrow


def test_values_beyond_0_and_1_have_no_assumed_bounds(paired, table):
    path = table("ab", [(3, 5), (2, 9)])
    assert paired("--csv", path, "--a", "a", "--b", "b")[1]["hoeffding"] is None
    code, _, err = paired("--csv", path, "--a", "a", "--b", "b", "--bounds", 0, 4)
    assert (code, "value 5.0 lies outside" in err) == (2, True)


@pytest.mark.parametrize(
    ("rows", "columns", "says"),
    [
        ([(1, 2)], ("a", "c"), "no column 'c'; it has a, b"),
        ([(1, 2), (3, "")], ("a", "b"), "table.csv:3: column b: '' is no finite number"),
        ([(1, 2), (3,)], ("a", "b"), "table.csv:3: column b: None is no finite number"),
        ([("x", 2)], ("a", "b"), "table.csv:2: column a: 'x' is no finite number"),
        ([("nan", 2)], ("a", "b"), "column a: 'nan' is no finite number"),
        ([("1e308", 2)], ("a", "b"), "column a: '1e308' is no finite number below 1e+100"),
        ([(0, 1), (1, 1, 0)], ("a", "b"), "table.csv:3: more values than the header has columns"),
        ([(0, 1), ("9" * 200_000, 1)], ("a", "b"), "table.csv:3: field larger than field limit"),
        ([], ("a", "b"), "no rows below the header"),
    ],
)
def test_a_bad_table_is_one_line_and_exit_code_2(paired, table, rows, columns, says):
    code, record, err = paired("--csv", table("ab", rows), "--a", columns[0], "--b", columns[1])
    assert (code, record) == (2, None)
    assert says in err
    assert err.count("\n") == 1


def test_a_file_that_is_not_there(paired, tmp_path):
    code, _, err = paired("--csv", tmp_path / "none.csv", "--a", "a", "--b", "b")
    assert (code, "no such file" in err) == (2, True)


def test_one_pair_has_no_standard_error_and_bad_bounds_are_refused():
    assert paired_record([0], [1])["paired_se"] is None
    with pytest.raises(UserError, match="lower one first"):
        paired_record([0], [1], bounds=(1, 0))
