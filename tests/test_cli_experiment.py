import json

import numpy as np
import pytest

from intraskill.cli import main


@pytest.fixture
def decide(tmp_path, capsys):
    """decide(text) -> (exit code, standard output, standard error)."""

    def decide(text):
        path = tmp_path / "observations.json"
        path.write_text(text)
        with pytest.raises(SystemExit) as caught:
            main(["experiment", "decide", "--observations", str(path)])
        return caught.value.code, *capsys.readouterr()

    return decide


def test_decide_prints_the_decision(decide):
    criterion = {"id": "a", "bounds": [0, 1], "margin": 0, "baseline": [0] * 99, "treatment": [1] * 99}
    code, out, err = decide(json.dumps({"method": "anytime", "alpha": 0.05, "criteria": [criterion]}))
    assert (code, err, json.loads(out)["verdict"]) == (0, "", "supported")


@pytest.mark.parametrize("text", ["{", "[]", '{"method": "anytime", "alpha": 2, "criteria": []}'])
def test_a_bad_file_is_one_line_that_names_it(decide, text):
    code, out, err = decide(text)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "observations.json" in err


def test_power_of_a_pilot_counts_seeds_over_training_and_tasks_for_fixed_checkpoints(tmp_path, capsys):
    random = np.random.default_rng(0)
    arms = {arm: random.integers(2, size=(3, 40)).tolist() for arm in ("baseline", "treatment")}
    path = tmp_path / "pilot.json"
    found = {}
    for method in ("bootstrap", "paired_hoeffding", "anytime"):
        criterion = {"id": "a", "bounds": [0, 1], "margin": 0, **arms}
        path.write_text(json.dumps({"method": method, "alpha": 0.05, "criteria": [criterion]}))
        with pytest.raises(SystemExit) as caught:
            main(["experiment", "power", "--pilot", str(path), "--effect", "0.1"])
        found[method] = caught.value.code, *capsys.readouterr()
    (training,) = json.loads(found["bootstrap"][1])["criteria"]
    assert [size["tasks"] for size in training["needed"]] == [40, 80, 160, 320]
    seeds = [size["seeds"] for size in training["needed"]]
    assert seeds == sorted(seeds, reverse=True)
    assert 0 < training["power"] < 0.8
    (fixed,) = json.loads(found["paired_hoeffding"][1])["criteria"]
    assert fixed["needed"][0]["tasks"] > 738  # where the half-width alone is .1
    assert found["anytime"][0] == 2
    assert "when you stop looking" in found["anytime"][2]


@pytest.mark.parametrize("command", ["decide", "power"])
def test_the_help_teaches_the_format_within_80_columns(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["experiment", command, "--help"])
    out = capsys.readouterr().out
    assert '"criteria": [{"id"' in out
    assert max(map(len, out.splitlines())) <= 80
