"""What a gate could see is what gates then see."""

import numpy as np
import pytest

from intraskill.core.errors import UserError
from intraskill.gate.design import draw_design
from intraskill.gate.estimators import ESTIMATORS, fit
from intraskill.gate.power import Question, covariance, power
from intraskill.gate.table import RunTable, TableRow


def gates(question, drawn, repetitions):
    """Coefficients of every estimator over gates of pure chance: normal rewards with the stated correlation."""
    random, found = np.random.default_rng(0), {name: [] for name in ESTIMATORS}
    columns = len(drawn.masks[0])
    ids = tuple(f"t{i}" for i in range(columns))
    scale, share = np.sqrt(question.success * (1 - question.success)), np.sqrt(question.correlation)
    for _ in range(repetitions):
        level = share * random.normal(size=question.tasks)
        rows, nothing = [], [(0,) * columns] * question.tasks
        for run, masks in (("bare", nothing), ("masked", drawn.masks), ("mirror", drawn.mirrors)):
            noise = np.sqrt(1 - question.correlation) * random.normal(size=question.tasks)
            rows += [TableRow(str(i), run, mask, float(scale * (level[i] + noise[i]))) for i, mask in enumerate(masks)]
        for name in ESTIMATORS:
            found[name].append(list(fit(RunTable(ids, tuple(rows)), name).coefficients.values()))
    return {name: np.array(values) for name, values in found.items()}


@pytest.mark.parametrize("correlation", [0.1, 0.6])
def test_the_stated_errors_are_those_of_simulated_gates(correlation):
    question = Question(tasks=60, chunks=3, rewrites=1, success=0.4, correlation=correlation)
    drawn = draw_design("foldover", question.slots(), [str(i) for i in range(60)], 0, "x")
    found = gates(question, drawn, 150)
    for name in ESTIMATORS:
        stated = np.sqrt(np.diag(covariance(name, drawn, 0.4, correlation)))
        seen = found[name].std(axis=0)
        assert np.sqrt((seen**2).mean()) == pytest.approx(np.sqrt((stated**2).mean()), rel=0.1), name


def test_the_record_names_every_design_and_estimator():
    found = power(Question(tasks=400, chunks=6))
    rows = {(row["design"], row["estimator"]): row for row in found["gates"]}
    assert list(rows) == [
        ("published", "paired_delta"),
        ("published", "mean_delta"),
        ("published", "adjusted"),
        ("foldover", "foldover"),
        ("foldover", "mixed"),
    ]
    paired, mirrored = rows["published", "paired_delta"], rows["foldover", "foldover"]
    assert (paired["episodes"], mirrored["episodes"]) == (800, 1200)
    # With k plain chunks the published columns have variance 1/4 and cost k/(k + 1) of it; mirrored ones 1.
    assert mirrored["standard_error"] / paired["standard_error"] == pytest.approx(np.sqrt(7 / 24), rel=0.03)
    assert mirrored["standard_error"] == pytest.approx(np.sqrt(2 * 0.25 * 0.7 / 400), rel=0.02)
    assert paired["published"]["keeps_worthless"] == 0.5
    assert mirrored["evidence"]["keeps_worthless"] == pytest.approx(0.1)
    assert mirrored["evidence"]["detects"] == pytest.approx((1.2816 + 0.8416) * mirrored["standard_error"], rel=1e-3)


def test_more_tasks_and_fewer_texts_show_more():
    def error(**changes):
        return power(Question(**{"tasks": 200, "chunks": 6, **changes}))["gates"][3]["standard_error"]

    assert error(tasks=800) == pytest.approx(error() / 2, rel=0.05)
    assert error(rewrites=3) > error()
    assert error(correlation=0.8) < error()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": 6}, "too few to tell 6 chunks apart"),
        ({"chunks": 0}, "nothing to measure"),
        ({"success": 1.0}, "--success is 1.0"),
        ({"correlation": 1.0}, "--correlation is 1.0"),
        ({"confidence": 0.4}, "--confidence is 0.4"),
        ({"rewrites": 7}, "7 rewrites of 6 chunks"),
    ],
)
def test_what_no_gate_could_measure_is_refused(change, message):
    with pytest.raises(UserError, match=message):
        power(Question(**{"tasks": 400, "chunks": 6, **change}))
