"""Evaluating embedded weights: a random model, whose replies are nonsense but whose numbers must be exact."""

import json

import pytest

from intraskill.cli import main
from intraskill.core.errors import UserError
from intraskill.core.progress import Reporter
from intraskill.evaluate.run import run_evaluation

pytest.importorskip("torch")


@pytest.fixture
def embedded(make_settings, tiny_model):
    def make(**changes):
        environment = {"world": {"generate": "small"}, "max_steps": 2}
        policy = {"model": str(tiny_model), "sampling": {"max_tokens": 6}, "threads": 1}
        return make_settings(policy=policy, environment=environment, sample_size=12, **changes)

    return make


def outcomes(path):
    rows = [json.loads(line) for line in (path / "traces.jsonl").read_text().splitlines()]
    return {row["episode_id"]: [step["model"]["text"] for step in row["steps"]] for row in rows}


def test_embedded_weights_are_evaluated_without_a_trainer(embedded, runs_dir):
    settings = embedded()
    summary = run_evaluation(settings, runs_dir / settings.name, Reporter(True))
    assert summary["coverage"]["completed"] == 12
    assert summary["tokens"]["completion_tokens"]["total"] > 0
    trace = json.loads((runs_dir / settings.name / "traces.jsonl").read_text().splitlines()[0])
    assert trace["steps"][0]["model"]["weight_version"] == trace["provenance"]["policy"]["weight_version"]
    assert trace["provenance"]["policy"]["dtype"] == "bfloat16"


def test_a_wave_cut_in_the_middle_ends_like_one_never_cut(embedded, runs_dir, name):
    whole, cut = (embedded(name=f"{name}-{kind}", concurrency=5) for kind in ("whole", "cut"))
    run_evaluation(whole, runs_dir / whole.name, Reporter(True))
    run_evaluation(cut, runs_dir / cut.name, Reporter(True))
    traces = runs_dir / cut.name / "traces.jsonl"
    lines = traces.read_bytes().splitlines(keepends=True)
    traces.write_bytes(b"".join(lines[:7]) + lines[7][:100])
    run_evaluation(cut, runs_dir / cut.name, Reporter(True))
    assert outcomes(runs_dir / whole.name) == outcomes(runs_dir / cut.name)


def test_how_many_run_at_once_changes_nothing(embedded, runs_dir, name):
    found = []
    for concurrency in (1, 12):
        settings = embedded(name=f"{name}-{concurrency}", concurrency=concurrency)
        exact = settings.policy.model_copy(update={"sampler_dtype": "float32"})
        settings = settings.model_copy(update={"policy": exact})
        summary = run_evaluation(settings, runs_dir / settings.name, Reporter(True))
        found.append((outcomes(runs_dir / settings.name), summary["outcomes"], summary["tokens"]["completion_tokens"]))
    assert found[0] == found[1]


def test_changed_weights_are_another_evaluation(embedded, runs_dir, tiny_model, tmp_path):
    settings = embedded()
    run_evaluation(settings, runs_dir / settings.name, Reporter(True))
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tiny_model.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    moved = settings.model_copy(update={"policy": settings.policy.model_copy(update={"model": str(copy)})})
    run_evaluation(moved, runs_dir / settings.name, Reporter(True))  # the same weights in another place
    (copy / "notes.md").write_text("not a part of the model")
    run_evaluation(moved, runs_dir / settings.name, Reporter(True))
    data = bytearray((copy / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (copy / "model.safetensors").write_bytes(bytes(data))
    with pytest.raises(UserError, match=r"model\.sha256"):
        run_evaluation(moved, runs_dir / settings.name, Reporter(True))


def test_a_directory_without_weights_is_one_line(embedded, runs_dir, tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    config = tmp_path / "eval.yaml"
    config.write_text(f"name: none\nenvironment: {{world: {{generate: small}}}}\npolicy: {{model: {tmp_path}}}\n")
    with pytest.raises(SystemExit) as caught:
        main(["eval", "run", str(config), "--runs-dir", str(runs_dir), "--quiet"])
    err = capsys.readouterr().err
    assert caught.value.code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
