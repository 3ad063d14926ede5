import json

import pytest

from intraskill.cli import main
from intraskill.core.errors import IntraSkillError, UserError
from intraskill.evaluate.compare import compare, read_evaluation
from intraskill.stats.paired import paired_difference

SAMPLES = 500


@pytest.fixture
def two(evaluate, care_bank, name):
    """A skill-free and an equipped evaluation of the same tasks."""
    return evaluate(name=f"{name}-free")[0], evaluate(name=f"{name}-care", skills={"path": str(care_bank)})[0]


def test_a_comparison_pairs_by_task(two, read_traces):
    record = compare(*map(read_evaluation, two), samples=SAMPLES)
    rewards = [{t["job"]["task_id"]: t["final"]["reward"] for t in read_traces(path)} for path in two]
    tasks = sorted(rewards[0])
    found = paired_difference([rewards[0][t] for t in tasks], [rewards[1][t] for t in tasks])
    reward = record["metrics"]["reward"]
    assert reward["mean_difference"] == pytest.approx(found.difference)
    assert reward["paired_se"] == pytest.approx(found.standard_error)
    assert record["changed"] == ["skills"]
    assert record["coverage"]["paired_tasks"] == record["coverage"]["tasks"] == 40
    moved = record["metrics"]["success"]["transitions"]
    assert sum(moved.values()) == 40
    assert moved["fixed"] - moved["lost"] == round(40 * record["metrics"]["success"]["mean_difference"])
    for count in ("steps", "invalid_actions", "protocol_errors"):  # more of them is no task fixed, even from 0 to 1
        metric = record["metrics"][count]
        assert metric["hoeffding"] is metric["transitions"] is metric["mcnemar_p"] is None


def test_the_other_way_round_is_the_same_with_the_sign_changed(two):
    a, b = map(read_evaluation, two)
    there, back = compare(a, b, samples=SAMPLES)["metrics"], compare(b, a, samples=SAMPLES)["metrics"]
    assert there["reward"]["mean_difference"] == -back["reward"]["mean_difference"] != 0
    assert there["success"]["transitions"]["fixed"] == back["success"]["transitions"]["lost"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seed": 1}, "jobs.seed: 0 -> 1"),
        ({"sample_size": 39}, "jobs.sample_size: null -> 39"),
        ({"environment": {"world": {"generate": "small"}, "max_steps": 9}}, "max_steps: 10 -> 9"),
        ({"policy": {"base_url": "http://h/v1", "tool_schema": "dynamic"}}, 'tool_schema: "static" -> "dynamic"'),
        ({"policy": {"base_url": "http://h/v1", "extra_body": {"a": 1}}}, "sampling.extra_body.a: (absent) -> 1"),
    ],
)
def test_unequal_protocols_are_refused_by_name(evaluate, name, changes, says):
    a, b = evaluate(name=f"{name}-a")[0], evaluate(name=f"{name}-b", **changes)[0]
    with pytest.raises(UserError) as caught:
        compare(*map(read_evaluation, (a, b)))
    assert says in str(caught.value)


def test_an_unfinished_side_is_refused_unless_asked_for(evaluate, shopper, runs_dir, name):
    whole, _ = evaluate(name=f"{name}-whole", sample_size=12)
    first = sorted(json.loads((whole / "manifest.json").read_text())["jobs"])[0][0]
    with pytest.raises(IntraSkillError, match="1 of 12"):
        evaluate(shopper(lambda session, attempt: f"task-{first}__" in session), name=f"{name}-part", sample_size=12)
    sides = read_evaluation(whole), read_evaluation(runs_dir / f"{name}-part")
    with pytest.raises(UserError, match="1 of 12 episodes are not completed"):
        compare(*sides)
    record = compare(*sides, partial=True, samples=SAMPLES)
    assert (record["coverage"]["paired_tasks"], record["coverage"]["b"]["failed"]) == (11, 1)


def test_repeats_compare_task_means_without_transitions(evaluate, care_bank, name):
    a = evaluate(name=f"{name}-a", repeats=3, sample_size=12)[0]
    b = evaluate(name=f"{name}-b", repeats=3, sample_size=12, skills={"path": str(care_bank)})[0]
    record = compare(*map(read_evaluation, (a, b)), samples=SAMPLES)
    assert record["metrics"]["reward"]["n"] == 12
    assert record["metrics"]["success"]["transitions"] is None


def test_the_command_writes_json_markdown_and_a_picture(two, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["eval", "compare", *map(str, two), "--samples", str(SAMPLES)])
    assert caught.value.code == 0
    captured = capsys.readouterr()
    printed = json.loads(captured.out)
    folder = two[1] / f"versus-{printed['a']['name']}"
    assert f"files are in {folder}\n" in captured.err
    assert json.loads((folder / "comparison.json").read_text()) == printed
    text = (folder / "comparison.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| reward |"))
    assert f"{printed['metrics']['reward']['mean_difference']:+.4f}" in row
    assert "McNemar" in text
    assert (folder / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_that_is_no_evaluation_is_named(tmp_path, two):
    with pytest.raises(UserError, match="is no evaluation"):
        read_evaluation(tmp_path)
