"""The rule of a pre-registered study, to its published decimals, and what holds for every rule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intraskill.core.errors import UserError
from intraskill.stats.decision import METHODS, Criterion, Rule, decide
from intraskill.stats.decision_record import decision_record
from intraskill.stats.two_way import ONE_SEED


def study(composite, reward):
    """60 tasks, one greedy attempt per arm: the criteria of the study with these values of the treatment."""
    primary = {"id": "primary", "metric": "composite_rubric_score", "margin": 0.03, "bounds": [0, 1]}
    guard = {"id": "reward_guard", "metric": "tau_bench_task_reward", "margin": -0.1, "bounds": [0, 1]}
    return {
        "method": "paired_hoeffding",
        "alpha": 0.05,
        "criteria": [
            primary | {"baseline": [0.96] * 60, "treatment": composite},
            guard | {"baseline": [1] * 3 + [0] * 57, "treatment": reward},
        ],
    }


def test_the_published_study_is_decided_as_published():
    found = decision_record(study([0.99] * 60, [1] * 5 + [0] * 55))
    assert list(found) == ["criteria", "verdict"]
    primary, guard = found["criteria"]
    assert list(primary) == ["id", "n", "effect", "halfwidth", "lower", "upper", "met"]
    assert [round(primary[key], 4) for key in ("effect", "halfwidth", "lower", "upper")] == [
        0.03,
        0.3822,
        -0.3522,
        0.4122,
    ]
    assert primary["lower"] == pytest.approx(-0.3521878523568343, abs=1e-12)
    assert primary["upper"] == pytest.approx(0.41218785235683425, abs=1e-12)
    assert [round(guard[key], 4) for key in ("effect", "lower", "upper")] == [0.0333, -0.3489, 0.4155]
    assert (primary["n"], primary["met"], guard["met"]) == (60, False, False)
    assert found["verdict"] == "insufficient_evidence"


def test_supported_needs_all_refuted_needs_one():
    clear = {"bounds": [0, 1], "baseline": [0.0] * 60, "treatment": [1.0] * 60}
    better, guard, lost = (
        clear | {"id": "better", "margin": 0.1},
        clear | {"id": "guard", "margin": -0.1},
        clear | {"id": "lost", "margin": 0.0, "baseline": [1.0] * 60, "treatment": [0.0] * 60},
    )

    def verdict(*criteria):
        return decision_record({"method": "paired_hoeffding", "alpha": 0.05, "criteria": list(criteria)})["verdict"]

    assert verdict(better, guard) == "supported"
    assert verdict(better, lost) == "refuted"
    assert verdict(better, clear | {"id": "high", "margin": 0.9}) == "insufficient_evidence"


def test_a_margin_at_the_very_end_is_neither_met_nor_failed():
    treatment = np.full((1, 40), 0.7)
    criterion = Criterion("a", (0, 1), 0.0, np.zeros((1, 40)), treatment)
    (answer,), _ = decide(Rule("paired_hoeffding", 0.05, (criterion,)))
    for end in answer.interval:
        at = Criterion("a", (0, 1), end, criterion.baseline, treatment)
        assert decide(Rule("paired_hoeffding", 0.05, (at,)))[1] == "insufficient_evidence"


def test_weights_scale_effect_and_width():
    plain = study([0.99] * 60, [1] * 5 + [0] * 55)
    weighted = study([0.99] * 60, [1] * 5 + [0] * 55)
    weighted["criteria"][0]["weights"] = {"baseline": -2, "treatment": 2}
    one, two = (decision_record(record)["criteria"][0] for record in (plain, weighted))
    assert [two[key] for key in ("effect", "halfwidth")] == pytest.approx([2 * one["effect"], 2 * one["halfwidth"]])


def table(random, seeds, tasks):
    return random.integers(2, size=(seeds, tasks)).astype(float)


def of(method, baseline, treatment, by_seed, alpha=0.05):
    criterion = Criterion("a", (0.0, 1.0), 0.0, baseline, treatment, by_seed=by_seed)
    (answer,), _ = decide(Rule(method, alpha, (criterion,), samples=400))
    return answer


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), seeds=st.integers(2, 6), tasks=st.integers(3, 30))
def test_laws_of_every_rule(method, seed, seeds, tasks):
    random = np.random.default_rng(seed)
    baseline, treatment = table(random, seeds, tasks), table(random, seeds, tasks)
    answer = of(method, baseline, treatment, True)
    wider = of(method, baseline, treatment, True, alpha=0.01)
    if answer.interval is None:
        assert answer.reason
        return
    low, high = answer.interval
    assert low <= high
    assert wider.interval[0] <= low + 1e-9
    assert wider.interval[1] >= high - 1e-9
    if method != "anytime":  # whose interval is that of all looks together
        assert low <= answer.effect <= high
    if method != "bootstrap":  # whose two tails come from one set of resamples
        swapped = of(method, treatment, baseline, True).interval
        assert swapped == pytest.approx((-high, -low), abs=1e-9)


@pytest.mark.parametrize("method", ["bootstrap", "anytime"])
def test_one_seed_gives_no_interval_over_training_and_says_why(method):
    arm = {"id": "a", "bounds": [0, 1], "margin": 0, "baseline": [[0, 1, 0]], "treatment": [[1, 1, 1]]}
    (answer,) = (found := decision_record({"method": method, "alpha": 0.05, "criteria": [arm]}))["criteria"]
    assert (answer["halfwidth"], answer["lower"], answer["upper"], answer["met"]) == (None, None, None, False)
    assert (answer["seeds"], answer["reason"], found["verdict"]) == (1, ONE_SEED, "insufficient_evidence")


def test_differences_that_never_vary_give_no_bootstrap_interval():
    random = np.random.default_rng(1)
    baseline = random.random((4, 9)) / 2
    answer = of("bootstrap", baseline, baseline + 0.1, True)
    assert answer.interval is None
    assert "do not vary" in answer.reason


def test_fixed_checkpoints_of_several_seeds_count_each_task_once():
    random = np.random.default_rng(2)
    baseline, treatment = table(random, 5, 40), table(random, 5, 40)
    many = of("paired_hoeffding", baseline, treatment, True)
    mean = of("paired_hoeffding", baseline.mean(0, keepdims=True), treatment.mean(0, keepdims=True), False)
    assert many.interval == pytest.approx(mean.interval)


RIGHT = study([0.99] * 60, [0] * 60)


def broken(**changes):
    return RIGHT | {"criteria": [RIGHT["criteria"][0] | changes]}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([], "observations: expected a JSON object"),
        ({"method": "paired_hoeffding", "alpha": 0.05}, '"criteria" is missing'),
        (RIGHT | {"method": "t"}, "choose one of paired_hoeffding, bootstrap, anytime"),
        (RIGHT | {"method": ["anytime"]}, "choose one of"),
        (RIGHT | {"alpha": 1}, "alpha is 1.0"),
        (RIGHT | {"alpha": True}, "alpha is True"),
        (RIGHT | {"criteria": []}, "at least one criterion"),
        (RIGHT | {"criteria": [RIGHT["criteria"][0]] * 2}, "stands there twice"),
        (RIGHT | {"samples": 5}, "samples is 5"),
        (broken(margn=0), '"margn" is no key here'),
        (broken(id=""), "criteria[0].id"),
        (broken(bounds=[1, 0]), "criteria[0].bounds is [1, 0]"),
        (broken(bounds=[0, 1e300]), "criteria[0].bounds[1]"),
        (broken(margin="0"), "criteria[0].margin is '0'"),
        (broken(weights={"baseline": 0, "treatment": 0}), "nothing to decide"),
        (broken(weights={"treatment": 1}), "criteria[0].weights"),
        (broken(treatment=[1] * 59), "baseline holds 60 values, treatment 59 values"),
        (broken(treatment=[[1] * 60]), "treatment 1 seeds x 60 tasks"),
        (broken(treatment=[]), "criteria[0].treatment is not a list with values"),
        (broken(treatment=[[0, 1], [1]]), "criteria[0].treatment[1] is not a list of 2 values"),
        (broken(treatment=[[0, 1], 1]), "criteria[0].treatment[1] is not a list"),
        (broken(treatment=[2] * 60), "criteria[0].treatment[0] is 2, outside its bounds"),
        (broken(treatment=[float("nan")] * 60), "criteria[0].treatment[0] is nan"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(record, message):
    with pytest.raises(UserError) as caught:
        decision_record(record)
    assert message in str(caught.value)
