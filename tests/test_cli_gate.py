import json
import subprocess
import sys

import pytest

from intraskill.cli import main
from intraskill.core.errors import TooManyTechnicalFailures, UserError

OBSERVATIONS = {
    "interventions": ["a", "b"],
    "design": [[1, 0], [0, 1], [1, 1], [0, 0]],
    "bare": [0, 0, 0, 0],
    "masked": [1, 0, 1, 1],
}


@pytest.fixture
def run(tmp_path, capsys):
    """run(command, option, content) -> (exit code, parsed stdout or None, stderr)."""

    def run(*words, content=None, option=None):
        if option is not None:
            path = tmp_path / "input.json"
            path.write_text(content if isinstance(content, str) else json.dumps(content))
            words = (*words, option, str(path))
        with pytest.raises(SystemExit) as caught:
            main(words)
        out, err = capsys.readouterr()
        return caught.value.code, json.loads(out) if out.startswith("{") else out, err

    return run


@pytest.mark.parametrize("command", ["train", "stats paired", "eval compare", "eval four-conditions"])
@pytest.mark.parametrize("seed", ["-1", str(2**63)])
def test_a_seed_out_of_range_is_refused_and_help_shows_no_long_range(run, command, seed):
    words = command.split()
    given = {"train": ["x.yaml"], "paired": ["--csv", "x", "--a", "a", "--b", "b"], "compare": ["x", "y"]}
    code, _, err = run(*words, *given.get(words[-1], ["x"]), "--seed", seed)
    assert code == 2
    assert f"{seed}: give a whole number from 0 to 2^63 - 1" in err
    assert "922337" not in run(*words, "--help")[1]


@pytest.mark.parametrize(
    "group",
    [(), *[(name,) for name in ("gate", "eval", "stats", "experiment", "traces", "curriculum", "bank", "coldstart")]],
)
def test_the_list_of_commands_fits_80_columns(run, group, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(*group, "--help")
    assert "Commands:" in out
    assert "..." not in out.split("Commands:")[1]


def test_fit_prints_exactly_the_documented_object(run):
    code, out, err = run("gate", "fit", option="--observations", content=OBSERVATIONS)
    assert (code, err) == (0, "")
    assert list(out) == ["coefficients", "standard_errors", "standard_errors_hc3", "observations", "rank"]
    assert out["coefficients"] == {"a": 1.0, "b": 0.0}
    assert (out["observations"], out["rank"]) == (4, 2)


def test_a_table_of_runs_can_be_fitted_by_every_estimator(run):
    masks = [[1, 0], [0, 1], [1, 1], [0, 0], [1, 0], [0, 1]]
    shown = {"bare": [[0, 0]] * 6, "masked": masks, "mirror": [[1 - bit for bit in mask] for mask in masks]}
    rows = [
        {"task": task, "run": name, "mask": mask, "reward": task % 4 / 4 + mask[0]}
        for name, column in shown.items()
        for task, mask in enumerate(column)
    ]
    table = {"interventions": ["a", "b"], "runs": rows}
    for estimator in ("paired_delta", "mean_delta", "adjusted", "foldover", "mixed"):
        code, out, err = run("gate", "fit", "--estimator", estimator, option="--observations", content=table)
        assert (code, err) == (0, "")
        assert list(out)[-2:] == ["estimator", "tasks"]
        assert (out["estimator"], out["tasks"], out["rank"]) == (estimator, 6, 2)
        assert out["coefficients"]["a"] == pytest.approx(1.0, abs=0.3)


def test_power_answers_before_a_run(run):
    code, out, err = run("gate", "power", "--tasks", "100", "--chunks", "3", "--rewrites", "1")
    assert (code, err, out["tasks"], len(out["gates"])) == (0, "", 100, 5)
    code, _, err = run("gate", "power", "--tasks", "3")
    assert (code, err.count("\n")) == (2, 1)
    assert "too few to tell 6 chunks apart" in err


@pytest.mark.parametrize("estimator", ["mean_delta", "adjusted"])
def test_other_estimators_can_be_chosen(run, estimator):
    observations = OBSERVATIONS | {"bare": [1, 0, 0, 0]}
    code, out, _ = run("gate", "fit", "--estimator", estimator, option="--observations", content=observations)
    assert code == 0
    assert out["coefficients"] != run("gate", "fit", option="--observations", content=observations)[1]["coefficients"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (OBSERVATIONS | {"design": [[1, 1], [0, 0], [1, 1], [0, 0]]}, "cannot be told apart over 4 rows: a, b"),
        (OBSERVATIONS | {"masked": [1, 0, float("nan"), 1]}, "masked[2] is nan"),
        ("[1,", ":1: not valid JSON"),
        ("{}", '"interventions" is missing'),
        ("3", "expected a JSON object"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_file_is_one_line_and_exit_code_2(run, tmp_path, content, message):
    code, out, err = run("gate", "fit", option="--observations", content=content)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {tmp_path / 'input.json'}")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("number", [0, 1, 2])
def test_select_reproduces_the_published_gates(run, published, published_json, number):
    name = f"gate_round_00{number}.json"
    gate = published_json(name)
    code, out, _ = run("gate", "select", "--budget", "10", "--contributions", str(published / name))
    assert code == 0
    assert list(out) == ["rows", "replacement_winners", "selected_intervention_ids"]
    keys = ("intervention_id", "rank", "status")
    assert out["rows"] == [{key: row[key] for key in keys} for row in gate["contributions"]]
    assert out["replacement_winners"] == gate["replacement_winners"]
    assert out["selected_intervention_ids"] == gate["selected_intervention_ids"]


def test_curriculum_reproduces_the_published_numbers_bit_for_bit(run, published_json):
    for published in published_json("curricula.json")["rounds"]:
        chunks = [{"skill_id": item["skill_id"], "contribution": item["contribution"]} for item in published["skills"]]
        numbers = ("--q", "0.2", "--rho-min", "0.2", "--rho-max", "0.9")
        code, out, _ = run("curriculum", "build", *numbers, option="--bank", content={"chunks": chunks})
        assert code == 0
        assert out == {
            "q": 0.2,
            "chunks": published["skills"],
            "contribution_scale": published["contribution_scale"],
        }


def test_a_bank_without_contributions_names_the_chunk(run):
    code, _, err = run("curriculum", "build", option="--bank", content={"chunks": [{"skill_id": "brand"}]})
    assert code == 2
    assert "chunk 'brand' has no contribution; run a gate" in err


def test_wrong_usage_is_exit_code_2(run):
    assert run("gate", "fit")[0] == 2
    assert run("gate", "fit", "--observations", "none.json")[0] == 2
    assert run("gate", "selekt")[0] == 2
    assert run("curriculum", "build", "--bank", "x", "--q", "much")[0] == 2


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        (("gate", "fit"), ['"interventions": [id', '"standard_errors_hc3": {id', '"rank": r']),
        (("gate", "power"), ['"largest_standard_error": number', '"leaves_useful_undecided": p']),
        (("gate", "select"), ['"logical_chunk_id": id', '"replacement_winners":', "rewrite_loser | non_positive"]),
        (
            ("curriculum", "build"),
            ['"chunks": [{"skill_id"', '"inclusion_probability": number', '"contribution_scale"'],
        ),
    ],
)
def test_help_shows_the_schema(run, command, parts):
    code, out, _ = run(*command, "--help")
    assert code == 0
    assert all(part in out for part in parts)


@pytest.mark.parametrize(("error", "expected"), [(UserError("mend it"), 2), (TooManyTechnicalFailures("stopped"), 1)])
def test_the_boundary_turns_known_errors_into_one_line(run, monkeypatch, error, expected):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("intraskill.commands.gate.read_user_json", fail)
    code, _, err = run("gate", "fit", "--observations", "x")
    assert (code, err) == (expected, f"error: {error}\n")


def test_the_small_commands_start_without_torch():
    code = "import sys, intraskill.cli; sys.exit('torch' in sys.modules or 'wandb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (OBSERVATIONS | {"masked": [1, 0, 10**400, 1]}, "has 401 digits"),
        (OBSERVATIONS | {"interventions": ["a", "\ud800"]}, "half of a character"),
        (OBSERVATIONS | {"bare": [-1e308, 0, 0, 0], "masked": [1.7e308, 0, 1, 1]}, "too large to be subtracted"),
    ],
)
def test_numbers_and_texts_that_nothing_can_hold_are_refused(run, content, message):
    code, out, err = run("gate", "fit", option="--observations", content=content)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


@pytest.mark.parametrize("name", ["..", "a/b", ".hidden", "é", "a b"])
def test_a_name_no_settings_file_may_give_is_refused_on_the_command_line(capsys, tmp_path, name):
    config = tmp_path / "run.yaml"
    config.write_text("name: a\n")
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(config), "--runs-dir", str(tmp_path / "runs"), "--name", name])
    captured = capsys.readouterr()
    assert (stopped.value.code, captured.out, captured.err.count("\n")) == (2, "", 1)
    assert captured.err.startswith("error: name=")
    assert not (tmp_path / "runs").exists()
