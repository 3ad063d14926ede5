"""Do pairs matter, and is a chunk worth in the full bank what it is worth on average?"""

import numpy as np
import pytest

from intraskill.gate.interactions import interactions
from intraskill.gate.table import RunTable, TableRow

IDS = ("a", "b", "c", "d")
SLOTS = [(name,) for name in IDS]
EFFECTS = np.array([0.15, 0.1, 0.05, 0.0])


def simulated(seed, *, tasks=250, pair=0.0, equipped=True, slots=SLOTS, noise=0.2):
    """Runs of a fold-over gate and of the whole bank; a and b together add `pair` to the sum of both."""
    random = np.random.default_rng(seed)
    ids = tuple(name for slot in slots for name in slot)
    effects = np.resize(EFFECTS, len(ids))
    rows = []
    for task in range(tasks):
        level = 0.3 * random.normal()
        states = [random.permutation(len(slot) + 1)[:2] for slot in slots]
        masks = [
            tuple(int(state[side] == i + 1) for slot, state in zip(slots, states) for i in range(len(slot)))
            for side in (0, 1)
        ]
        whole = tuple(int(i == 0) for slot in slots for i in range(len(slot)))
        runs = {"bare": (0,) * len(ids), "masked": masks[0], "mirror": masks[1]} | (
            {"equipped": whole} if equipped else {}
        )
        for run, mask in runs.items():
            reward = level + np.array(mask) @ effects + pair * mask[0] * mask[ids.index("b")] + noise * random.normal()
            rows.append(TableRow(str(task), run, mask, float(reward)))
    return RunTable(ids, tuple(rows))


def test_a_pair_that_adds_is_found_and_named():
    found = interactions(simulated(1, pair=0.2), SLOTS, IDS)
    assert [(pair.first, pair.second) for pair in found.telling] == [("a", "b")]
    assert found.telling[0].effect == pytest.approx(0.2, abs=3 * found.telling[0].standard_error)
    assert len(found.pairs) == 6


def test_where_effects_add_up_a_false_alarm_is_rare():
    alarms = sum(bool(interactions(simulated(seed, tasks=100), SLOTS, IDS).telling) for seed in range(80))
    assert alarms <= 10  # 5 % of 80 are 4; 10 would be three deviations above


def test_a_chunks_value_in_the_full_bank_is_what_it_takes_along_when_left_out():
    found = interactions(simulated(2, pair=0.2, tasks=600), SLOTS, IDS)
    values = {item.name: item for item in found.full_bank}
    truth = dict(zip(IDS, EFFECTS)) | {"a": 0.15 + 0.2, "b": 0.1 + 0.2}
    for name, item in values.items():
        assert item.value == pytest.approx(truth[name], abs=4 * item.standard_error)
        assert item.difference == pytest.approx(0.1 if name in "ab" else 0.0, abs=4 * item.difference_error)
    assert values["a"].p_value < 0.01
    assert values["b"].p_value < 0.01
    assert values["d"].p_value > 0.05


def test_the_equipped_run_is_what_tells_most_about_the_full_bank():
    with_it, without = (interactions(simulated(3, equipped=flag), SLOTS, IDS) for flag in (True, False))
    assert with_it.full_bank[0].difference_error < 0.9 * without.full_bank[0].difference_error


def test_versions_of_one_chunk_make_no_pair():
    slots = [("a", "a1"), ("b",), ("c",)]
    found = interactions(simulated(1, slots=slots, tasks=300), slots, ("a", "b", "c"))
    assert {(pair.first, pair.second) for pair in found.pairs} == {
        ("a", "b"),
        ("a", "c"),
        ("a1", "b"),
        ("a1", "c"),
        ("b", "c"),
    }
    assert [item.name for item in found.full_bank] == ["a", "b", "c"]


def test_what_the_runs_cannot_tell_is_not_claimed():
    assert interactions(simulated(1, tasks=5), SLOTS, IDS) is None
    alone = simulated(1, slots=[("a",), ("b",)], tasks=50)
    single = RunTable(("a",), tuple(TableRow(row.task, row.run, row.mask[:1], row.reward) for row in alone.rows))
    assert interactions(single, [("a",)], ("a",)) is None
