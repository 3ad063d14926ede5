"""A table of runs: what stands in it, what pairs with what, and what is refused."""

import pytest

from intraskill.core.errors import UserError
from intraskill.gate.estimators import ESTIMATORS, fit, fit_file, two_runs
from intraskill.gate.table import parse_table

IDS = ["a", "b"]
MASKS = [[1, 0], [0, 1], [1, 1], [0, 0], [1, 0], [0, 1]]
BARE = [0.0, 0.25, 1.0, 0.5, 0.0, 0.75]
MASKED = [1.0, 0.5, 1.0, 0.25, 0.5, 0.5]
MIRROR = [0.25, 0.5, 0.75, 1.0, 0.0, 1.0]


def row(task, run, mask, reward, **more):
    return {"task": task, "run": run, "mask": mask, "reward": reward, **more}


def table_file(**more):
    rows = [row(str(i), "bare", [0, 0], reward) for i, reward in enumerate(BARE)]
    rows += [row(str(i), "masked", mask, reward) for i, (mask, reward) in enumerate(zip(MASKS, MASKED))]
    mirrors = [[1 - bit for bit in mask] for mask in MASKS]
    rows += [row(str(i), "mirror", mask, reward) for i, (mask, reward) in enumerate(zip(mirrors, MIRROR))]
    return {"interventions": IDS, "runs": rows, **more}


@pytest.mark.parametrize("estimator", ["paired_delta", "mean_delta", "adjusted"])
def test_a_table_and_two_vectors_say_the_same(estimator):
    vectors = fit_file({"interventions": IDS, "design": MASKS, "bare": BARE, "masked": MASKED}, estimator)
    found = fit_file(table_file(), estimator)
    assert found == {**vectors, "estimator": estimator, "tasks": 6}
    assert list(vectors) == ["coefficients", "standard_errors", "standard_errors_hc3", "observations", "rank"]


def test_the_order_of_the_rows_and_the_type_of_the_task_ids_do_not_matter():
    record = table_file()
    numbered = [{**one, "task": int(one["task"])} for one in record["runs"]]
    for estimator in ESTIMATORS:
        found = fit_file(record, estimator)
        assert fit_file({**record, "runs": numbered}, estimator) == found
        backwards = fit_file({**record, "runs": record["runs"][::-1]}, estimator)
        assert backwards["coefficients"] == pytest.approx(found["coefficients"])


def test_repeated_tasks_are_paired_in_their_order():
    table = parse_table(
        {
            "interventions": ["a"],
            "runs": [
                row("x", "masked", [1], 1),
                row("x", "masked", [0], 0.5),
                row("x", "mirror", [0], 0),
                row("x", "mirror", [1], 0.25),
            ],
        }
    )
    assert [(one.reward, other.reward) for one, other in table.pairs("masked", "mirror")] == [(1, 0), (0.5, 0.25)]


def test_rows_of_other_checkpoints_are_not_paired():
    earlier = [row(str(i), "bare", [0, 0], 0.0, checkpoint="step-0000") for i in range(6)]
    record = table_file()
    record["runs"] = earlier + [{**one, "checkpoint": "step-0020"} for one in record["runs"]]
    with pytest.raises(UserError, match="rows of 2 checkpoints; say which is measured"):
        fit_file(record, "paired_delta")
    assert fit_file({**record, "checkpoint": "step-0020"}, "paired_delta") == fit_file(table_file(), "paired_delta")
    with pytest.raises(UserError, match="no row is of 'step-0040'"):
        fit_file({**record, "checkpoint": "step-0040"}, "paired_delta")


def test_one_checkpoint_that_all_rows_name_is_the_one_measured():
    record = table_file()
    record["runs"] = [{**one, "checkpoint": "step-0020"} for one in record["runs"]]
    assert fit_file(record, "foldover") == fit_file(table_file(), "foldover")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runs": []}, "runs: expected a list of"),
        ({"runs": None}, "runs: expected a list of"),
        ({"runs": [3]}, r"runs\[0\] must be an object"),
        ({"runs": [{"run": "bare", "reward": 1}]}, r'runs\[0\]: "task" is missing'),
        ({"runs": [row(True, "bare", [0, 0], 1)]}, "task is True"),
        ({"runs": [row(1.5, "bare", [0, 0], 1)]}, "task is 1.5"),
        ({"runs": [row("x", "", [0, 0], 1)]}, "run is ''"),
        ({"runs": [row("x", "masked", [0], 1)]}, r"runs\[0\]: mask must be a list of 2 entries"),
        ({"runs": [{"task": "x", "run": "masked", "reward": 1}]}, r"runs\[0\]: mask must be a list of 2 entries"),
        ({"runs": [row("x", "masked", [0, 2], 1)]}, r"runs\[0\]: mask\[1\] is 2"),
        ({"runs": [row("x", "bare", [0, 1], 1)]}, "a bare run shows nothing"),
        ({"runs": [row("x", "masked", [0, 1], float("nan"))]}, "reward is nan"),
        ({"runs": [row("x", "masked", [0, 1], True)]}, "reward is True"),
        ({"runs": [row("x", "masked", [0, 1], 1, checkpoint=3)]}, "checkpoint is 3"),
        ({"interventions": []}, "interventions is empty"),
        ({"interventions": ["a", "a"]}, "stands there twice"),
        ({"interventions": None}, '"interventions" is missing'),
    ],
)
def test_a_broken_table_is_refused_with_its_place(change, message):
    with pytest.raises(UserError, match=message):
        fit_file(table_file() | change, "paired_delta")


@pytest.mark.parametrize(
    ("estimator", "runs", "message"),
    [
        ("paired_delta", ("bare", "mirror"), "there is no masked run"),
        ("foldover", ("bare", "masked"), "there is no mirror run"),
    ],
)
def test_a_run_that_an_estimator_needs_is_named(estimator, runs, message):
    record = table_file()
    record["runs"] = [one for one in record["runs"] if one["run"] in runs]
    with pytest.raises(UserError, match=message):
        fit_file(record, estimator)


def test_a_task_without_its_partner_is_named():
    record = table_file()
    record["runs"] = [one for one in record["runs"] if (one["task"], one["run"]) != ("4", "bare")]
    with pytest.raises(UserError, match="task '4' has 0 bare and 1 masked rows"):
        fit_file(record, "paired_delta")


def test_two_vectors_have_no_mirror():
    vectors = {"interventions": IDS, "design": MASKS, "bare": BARE, "masked": MASKED}
    for name in ("foldover", "mixed", "median"):
        with pytest.raises(UserError, match=r"choose one of paired_delta, mean_delta, adjusted$"):
            fit_file(vectors, name)
    with pytest.raises(UserError, match="there is no mirror run"):
        fit(two_runs(vectors), "foldover")
