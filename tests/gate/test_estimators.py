import math

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st

from intraskill.core.errors import UserError
from intraskill.gate import estimators
from intraskill.gate.design import draw_masks
from intraskill.gate.estimate import estimate_record
from intraskill.gate.estimators import TWO_RUNS, fit_file, two_runs
from intraskill.gate.selection import Contribution, select


def fit(design, bare, masked, ids, estimator="paired_delta"):
    return estimators.fit(two_runs({"interventions": ids, "design": design, "bare": bare, "masked": masked}), estimator)


def slots(k):
    return [(f"c{i}",) for i in range(k)]


def simulate(effects, n, seed, *, share=0.5, bare_rate=0.4):
    """0/1 rewards whose success rate is a task's own difficulty plus the effects of the visible chunks.

    `share` is the spread of the task difficulties: with it, the two rewards of a task correlate.
    """
    random = np.random.default_rng(seed)
    design = np.array(draw_masks(slots(len(effects)), n, seed))
    base = np.clip(bare_rate + share * (random.random(n) - 0.5), 0, 1)
    bare = (random.random(n) < base).astype(float)
    masked = (random.random(n) < np.clip(base + design @ np.array(effects), 0, 1)).astype(float)
    return design.tolist(), bare.tolist(), masked.tolist(), [f"c{i}" for i in range(len(effects))]


def test_rounding_dust_is_zero_and_does_not_pass_the_gate():
    estimate = fit([[1, 0], [0, 1], [1, 1], [0, 0]], [0, 0, 0, 0], [1, 0, 1, 1], ["a", "b"])
    assert estimate.coefficients == {"a": 1.0, "b": 0.0}
    rows = [Contribution(name, "current", name, None, 1, value) for name, value in estimate.coefficients.items()]
    assert select(rows, 10).selected_ids == ("a",)


@pytest.mark.parametrize("reward", [0.1, 1 / 3, 0.7142857142857143])
def test_dust_in_the_rewards_themselves_is_zero_too(reward):
    noisy = reward + reward + reward - 2 * reward  # the same reward, but for its last bits
    bare = [reward, reward, noisy, reward] * 3
    masked = [noisy, reward, reward, noisy] * 3
    assert bare != masked
    for estimator in TWO_RUNS[:2]:
        estimate = fit([[1, 0], [0, 1], [1, 1], [0, 0]] * 3, bare, masked, ["a", "b"], estimator)
        assert estimate.coefficients == {"a": 0.0, "b": 0.0}


def test_a_tiny_but_real_effect_is_not_dust():
    estimate = fit([[1], [0], [1], [0]], [0.5] * 4, [0.5 + 1e-12, 0.5, 0.5 + 1e-12, 0.5], ["a"])
    assert estimate.coefficients["a"] == pytest.approx(1e-12, rel=1e-3)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_paired_delta_is_the_textbook_regression(seed):
    design, bare, masked, ids = simulate([0.3, 0.1, -0.2, 0.0, 0.05], 300, seed)
    estimate = fit(design, bare, masked, ids)
    reference = sm.OLS(np.array(masked) - np.array(bare), np.array(design, dtype=float)).fit()
    np.testing.assert_allclose(list(estimate.coefficients.values()), reference.params, rtol=1e-10)
    np.testing.assert_allclose(list(estimate.standard_errors.values()), reference.bse, rtol=1e-10)
    np.testing.assert_allclose(list(estimate.standard_errors_hc3.values()), reference.HC3_se, rtol=1e-10)
    assert (estimate.observations, estimate.rank, estimate.control_slope) == (300, 5, 1.0)


def test_mean_delta_and_adjusted_solve_the_documented_regressions():
    design, bare, masked, ids = simulate([0.3, -0.1], 200, 5)
    c, b, r = np.array(design, dtype=float), np.array(bare), np.array(masked)
    mean_delta = sm.OLS(r - b.mean(), c).fit().params
    adjusted = sm.OLS(r - b.mean(), np.column_stack([c, b - b.mean()])).fit().params
    np.testing.assert_allclose(list(fit(design, bare, masked, ids, "mean_delta").coefficients.values()), mean_delta)
    estimate = fit(design, bare, masked, ids, "adjusted")
    np.testing.assert_allclose([*estimate.coefficients.values(), estimate.control_slope], adjusted)


def test_adjusted_with_a_constant_baseline_falls_back_to_the_mean():
    design, _, masked, ids = simulate([0.3, -0.1], 100, 5)
    bare = [0.1] * 100
    expected = fit(design, bare, masked, ids).coefficients
    assert fit(design, bare, masked, ids, "adjusted").coefficients == pytest.approx(expected)
    assert fit(design, bare, masked, ids, "adjusted").control_slope == 0.0


def test_all_zero_masks_stay_in():
    design, bare, masked = [[1, 0], [0, 1], [1, 1]], [0, 0, 0], [1, 0, 0]
    alone = fit(design, bare, masked, ["a", "b"])
    padded = fit([*design, [0, 0]], [*bare, 0], [*masked, 1], ["a", "b"])
    assert padded.observations == 4
    assert padded.coefficients == alone.coefficients  # a zero row cannot move a coefficient without an intercept
    assert padded.standard_errors["a"] > alone.standard_errors["a"]  # but it tells how noisy the data are


def test_published_observations_fit(published_json):
    gate = published_json("gate_round_001.json")
    rows, names = gate["observations_schema_example"], [item["intervention_id"] for item in gate["contributions"]]
    for row in rows:
        assert [name for name, bit in zip(names, row["mask"]) if bit] == row["included_chunk_ids"]
    columns = [names.index("chunk-c83ed5ae8b70"), names.index("online-8e3e179b9270814a")]
    design = [[row["mask"][column] for column in columns] for row in rows]
    bare, masked = ([row[key] for row in rows] for key in ("bare_reward", "reward"))
    estimate = fit(design, bare, masked, ["x", "y"])
    deltas = np.array([row["delta_reward"] for row in rows])
    np.testing.assert_allclose(
        list(estimate.coefficients.values()), sm.OLS(deltas, np.array(design, dtype=float)).fit().params, atol=1e-15
    )
    with pytest.raises(UserError, match="rank 12, these columns cannot be told apart over 12 rows: "):
        fit([row["mask"] for row in rows], bare, masked, names)


@pytest.mark.parametrize("estimator", TWO_RUNS)
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_intervals_cover_the_truth_and_the_errors_are_neither_small_nor_large(estimator, share):
    effects, repetitions = [0.25, 0.0], 200
    estimates = [
        fit(*simulate(effects, 120, seed, share=share, bare_rate=0.5 - 0.25 * share / 2), estimator)
        for seed in range(repetitions)
    ]
    for name, effect in zip(("c0", "c1"), effects if share == 0 else [None, 0.0]):
        values = np.array([estimate.coefficients[name] for estimate in estimates])
        truth = values.mean() if effect is None else effect  # clipping at success rate 1 bends the effect
        for errors in ("standard_errors", "standard_errors_hc3"):
            stated = np.array([getattr(estimate, errors)[name] for estimate in estimates])
            covered = float(np.mean(np.abs(values - truth) < 1.96 * stated))
            assert 0.90 <= covered <= 0.985
            assert np.mean(stated) == pytest.approx(values.std(), rel=0.15)


@pytest.mark.parametrize("estimator", ["mean_delta", "adjusted"])
def test_the_error_of_the_mean_baseline_is_counted(estimator):
    estimates = [fit(*simulate([0.2], 120, seed, share=0.0), estimator) for seed in range(400)]
    values = np.array([estimate.coefficients["c0"] for estimate in estimates])
    for errors in ("standard_errors", "standard_errors_hc3"):
        stated = np.array([getattr(estimate, errors)["c0"] for estimate in estimates])
        assert np.mean(stated) == pytest.approx(values.std(), rel=0.1)


def test_a_clear_effect_is_found_at_gate_size_and_an_absent_one_rarely():
    found, false = 0, 0
    for seed in range(40):
        estimate = fit(*simulate([0.2, 0.0, 0.1, 0.0], 400, seed, bare_rate=0.3), "adjusted")
        t = {name: value / estimate.standard_errors_hc3[name] for name, value in estimate.coefficients.items()}
        found += t["c0"] > 2
        false += t["c1"] > 2
    assert found >= 36
    assert false <= 4


def test_the_adjusted_estimator_is_at_least_as_sharp_as_both_others():
    for share in (0.0, 0.5, 1.0):
        spread = {
            estimator: np.std([fit(*simulate([0.1, 0.0], 150, s, share=share), estimator).coefficients["c1"]
                               for s in range(200)])
            for estimator in TWO_RUNS
        }  # fmt: skip
        assert spread["adjusted"] <= 1.03 * min(spread.values())


@given(st.integers(0, 10_000), st.integers(1, 5))
def test_exact_linear_data_are_recovered_exactly(seed, k):
    random = np.random.default_rng(seed)
    design = [*np.eye(k, dtype=int).tolist(), *random.integers(2, size=(6, k)).tolist()]
    effects = random.integers(-8, 9, size=k) / 16
    masked = [float(np.dot(row, effects)) for row in design]
    estimate = fit(design, [0.0] * len(design), masked, [f"c{i}" for i in range(k)])
    assert list(estimate.coefficients.values()) == effects.tolist()


def test_errors_the_data_do_not_determine_are_null():
    estimate = fit([[1, 0], [0, 1]], [0, 0], [1, 0.5], ["a", "b"])
    assert math.isnan(estimate.standard_errors["a"])
    assert estimate_record(estimate)["standard_errors"] == {"a": None, "b": None}
    pinned = fit([[1, 0], [0, 1], [0, 1], [0, 1]], [0] * 4, [1, 0.5, 0.25, 0.5], ["a", "b"])
    assert estimate_record(pinned)["standard_errors_hc3"]["a"] is None
    assert pinned.standard_errors_hc3["b"] > 0


@pytest.mark.parametrize(
    ("design", "names"),
    [
        ([[1, 1, 0], [0, 0, 1], [1, 1, 1], [0, 0, 0]], "a, b"),
        ([[1, 0, 1], [0, 0, 1], [1, 0, 0], [0, 0, 1]], "b"),
        ([[1, 0, 1], [0, 1, 1], [1, 0, 1], [0, 1, 1]], "a, b, c"),
        ([[1, 0, 0]], "b, c"),
    ],
)
def test_a_rank_deficient_design_is_refused_naming_the_columns(design, names):
    with pytest.raises(UserError, match=rf"rows: {names}; add rows") as caught:
        fit(design, [0] * len(design), [1] * len(design), ["a", "b", "c"])
    assert "\n" not in str(caught.value)


def test_a_baseline_that_repeats_the_masks_cannot_be_adjusted_for():
    design = [[0, 0]] * 8 + [[1, 0]] * 2 + [[0, 1]] * 2
    bare = [0.0] * 8 + [1.0] * 4
    with pytest.raises(UserError, match="cannot be told apart"):
        fit([[1, 0], [0, 1]] * 4, [1, 0] * 4, [1, 0] * 4, ["a", "b"], "adjusted")
    assert fit(design, bare, bare, ["a", "b"], "adjusted").observations == 12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bare": [0, 0]}, "bare has 2 rewards but design has 3 rows"),
        ({"masked": [0, math.nan, 0]}, r"masked\[1\] is nan"),
        ({"masked": [0, 0, math.inf]}, r"masked\[2\] is inf"),
        ({"bare": [0, "1", 0]}, r"bare\[1\] is '1'"),
        ({"bare": [0, True, 0]}, r"bare\[1\] is True"),
        ({"bare": [0, None, 0]}, r"bare\[1\] is None"),
        ({"design": [[1, 0], [0], [1, 1]]}, r"design\[1\] must be a list of 2 entries"),
        ({"design": [[1, 0], 5, [1, 1]]}, r"design\[1\] must be a list of 2 entries"),
        ({"design": [[1, 0], [0, 2], [1, 1]]}, r"design\[1\]\[1\] is 2"),
        ({"design": [[1, 0], [0, 0.5], [1, 1]]}, r"design\[1\]\[1\] is 0.5"),
        ({"design": [[1, 0], [0, None], [1, 1]]}, r"design\[1\]\[1\] is None"),
        ({"design": [[1, 0], [0, True], [1, 1]]}, r"design\[1\]\[1\] is True"),
        ({"design": [[1, 0], [0, [1]], [1, 1]]}, r"design\[1\]\[1\] is \[1\]"),
        ({"design": []}, "design is empty"),
        ({"interventions": []}, "interventions is empty"),
        ({"interventions": ["a", "a"]}, r"interventions\[1\]: the id 'a' stands there twice"),
        ({"interventions": ["a", 3]}, r"interventions\[1\] is 3"),
        ({"masked": None}, '"masked" is missing or not a list'),
    ],
)
def test_broken_observations_are_refused_with_their_place(change, message):
    good = {"interventions": ["a", "b"], "design": [[1, 0], [0, 1], [1, 1]], "bare": [0, 0, 0], "masked": [1, 0, 1]}
    assert fit_file(good, "paired_delta")["observations"] == 3
    with pytest.raises(UserError, match=message):
        fit_file(good | change, "paired_delta")


def test_an_unknown_estimator_is_refused():
    with pytest.raises(UserError, match="choose one of paired_delta, mean_delta, adjusted"):
        fit([[1]], [0], [1], ["a"], "median")
