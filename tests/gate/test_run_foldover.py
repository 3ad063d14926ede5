"""A gate with mirrors and evidence inside a run: what is run, what is written, and that a kill changes nothing."""

from dataclasses import replace

import pytest

from intraskill.core.errors import UserError
from intraskill.core.progress import Reporter
from intraskill.gate.earlier import Earlier, read_earlier
from intraskill.gate.evidence import Belief
from intraskill.gate.interventions import Candidate
from intraskill.gate.protocol import GateProtocol
from intraskill.gate.result import describe_evidence
from intraskill.gate.run import run_gate
from intraskill.settings.models import GateSettings
from intraskill.skills.bank import Chunk
from intraskill.storage.documents import read_json
from intraskill.storage.jsonl import JsonlLog

REWRITE = Candidate(Chunk("care-2", title="Care", applies_when="always", procedure=("look twice",)), "REWRITE", "care")


@pytest.fixture
def run(world, make_runner, bank):
    async def run(folder, candidates=(), earlier=None, policy=None, **changes):
        settings = GateSettings(**{"design": "foldover", "estimator": "foldover", **changes})
        protocol = GateProtocol.of(
            settings,
            task_ids=tuple(world.splits().val),
            seed=5,
            round_index=0,
            step=20,
            checkpoint="scripted",
            wave_size=10,
        )
        runner, reporter = make_runner(policy), Reporter(quiet=True)
        return await run_gate(runner, bank, candidates, protocol, folder, reporter, earlier or Earlier())

    return run


def shown(folder, name):
    """What each task was shown in one run."""
    rows = JsonlLog(folder / f"{name}.jsonl").read()
    return {row["job"]["task_id"]: {skill["skill_id"] for skill in row["selected_skills"]} for row in rows}


async def test_every_task_is_run_bare_masked_and_mirrored(run, bank, tmp_path):
    result = await run(tmp_path)
    assert list(result.runs) == ["bare", "masked", "mirror"]
    assert all(len(one) == 40 for one in result.runs.values())
    masked, mirror = shown(tmp_path, "masked"), shown(tmp_path, "mirror")
    assert all(masked[task] ^ mirror[task] == set(bank.ids) for task in masked)
    record, assignments = read_json(tmp_path / "contributions.json"), read_json(tmp_path / "assignments.json")
    assert record["estimator"] == "foldover"
    for row in record["contributions"]:
        assert {"coefficient", "paired_delta", "mean_delta", "adjusted", "mixed", "status"} <= row.keys()
    assert [[1 - bit for bit in mask] for mask in assignments["masks"]] == assignments["mirrors"]
    assert record["sampled_apart"] == {"bare": [], "masked": [], "mirror": []}


async def test_versions_never_meet_and_are_contrasted_with_each_other(run, tmp_path):
    await run(tmp_path, [REWRITE])
    masked, mirror = shown(tmp_path, "masked"), shown(tmp_path, "mirror")
    pairs = {(frozenset(masked[t] - {"haste"}), frozenset(mirror[t] - {"haste"})) for t in masked}
    none, old, new = frozenset(), frozenset({"care"}), frozenset({"care-2"})
    assert pairs == {(none, old), (none, new), (old, none), (old, new), (new, none), (new, old)}


async def test_a_gate_cut_in_its_mirror_run_ends_the_same(run, tmp_path):
    whole = await run(tmp_path / "whole")
    await run(tmp_path / "cut")
    log = JsonlLog(tmp_path / "cut" / "mirror.jsonl")
    rows = log.read()
    log.path.unlink()
    log.append_many(rows[:17])
    again = await run(tmp_path / "cut")
    assert [one.reward for one in again.runs["mirror"]] == [one.reward for one in whole.runs["mirror"]]
    assert again.selection == whole.selection
    for name in ("contributions.json", "evidence.json", "selected_skill_bank.json"):
        assert read_json(tmp_path / "cut" / name) == read_json(tmp_path / "whole" / name)


async def test_a_mirror_of_other_weights_is_refused(run, tmp_path):
    await run(tmp_path)
    log = JsonlLog(tmp_path / "mirror.jsonl")
    rows = [{**row, "provenance": {**row["provenance"], "checkpoint": "others"}} for row in log.read()]
    log.path.unlink()
    log.append_many(rows)
    with pytest.raises(UserError, match="another checkpoint"):
        await run(tmp_path)


async def test_under_evidence_the_bank_carries_shrunken_effects(run, tmp_path):
    result = await run(tmp_path, rule="evidence")
    evidence = read_json(tmp_path / "evidence.json")
    believed = {row["intervention_id"]: row for row in evidence["effects"]}
    assert (evidence["rule"], evidence["confidence"], evidence["episodes"]) == ("evidence", 0.9, 120)
    assert {chunk.skill_id: chunk.contribution for chunk in result.bank.chunks} == {
        item["skill_id"]: item["mean"] for item in evidence["beliefs"]
    }
    assert sum(row["mean"] ** 2 for row in believed.values()) < sum(row["estimate"] ** 2 for row in believed.values())
    for row in believed.values():
        assert row["smallest_effect"] > row["standard_error"] > 0
        expected = "selected" if row["helps"] >= 0.9 else "undecided"
        assert row["status"] == ("retired" if row["helps"] <= 0.1 else expected)
    assert "with 80 % power" in describe_evidence(evidence)


async def test_every_gate_says_how_much_it_could_see(run, tmp_path):
    result = await run(tmp_path, design="published", estimator="paired_delta")
    evidence = read_json(tmp_path / "evidence.json")
    assert (evidence["rule"], evidence["confidence"]) == ("published", 0.5)
    kept = [row for row in evidence["effects"] if row["status"] == "selected"]
    assert evidence["expected_wrong_keeps"] == pytest.approx(sum(1 - row["helps"] for row in kept))
    assert [chunk.contribution for chunk in result.bank.chunks] == [row["estimate"] for row in kept]


async def test_what_a_gate_believes_is_where_the_next_one_starts(run, bank, tmp_path):
    result = await run(tmp_path / "first", rule="evidence")
    earlier = read_earlier([tmp_path / "none", tmp_path / "first"], result.bank, 0.05, rewards=True)
    believed = {item["skill_id"]: item for item in read_json(tmp_path / "first" / "evidence.json")["beliefs"]}
    assert set(earlier.beliefs) == set(result.bank.ids) == set(believed)
    for name, belief in earlier.beliefs.items():
        assert belief == Belief(believed[name]["mean"], believed[name]["variance"] + 0.05**2)
    assert {task: len(rewards) for task, rewards in earlier.rewards["scripted"].items()} == {
        one.task_id: 3 for one in result.bare
    }
    assert len(earlier.rows(2)) == 120
    later = read_earlier([tmp_path / "first", tmp_path / "incomplete"], result.bank, 0.05, rewards=False)
    assert later.rewards == {}
    assert all(belief.variance == believed[n]["variance"] + 2 * 0.05**2 for n, belief in later.beliefs.items())
    sure = Earlier(beliefs={"haste": Belief(0.5, 1e-6)})
    stubborn = await run(tmp_path / "second", rule="evidence", earlier=sure)
    assert "haste" in stubborn.bank.ids, "a belief that is sure outweighs one gate"


async def test_a_rewrite_that_wins_hands_its_belief_to_the_chunk(run, tmp_path):
    await run(tmp_path, [REWRITE], rule="evidence", confidence=0.51)
    evidence = read_json(tmp_path / "evidence.json")
    statuses = {row["intervention_id"]: row["status"] for row in evidence["effects"]}
    names = [item["skill_id"] for item in evidence["beliefs"]]
    assert "care-2" not in names
    winner = "care-2" if statuses["care"] == "rewrite_loser" else "care"
    believed = next(row for row in evidence["effects"] if row["intervention_id"] == winner)
    if "care" in names:
        assert next(item for item in evidence["beliefs"] if item["skill_id"] == "care")["mean"] == believed["mean"]


async def test_extra_episodes_go_to_what_is_undecided_and_to_nothing_else(run, tmp_path):
    plain = await run(tmp_path / "plain", rule="evidence", confidence=0.999)
    undecided = {row.intervention_id for row in plain.selection.rows if row.status == "undecided"}
    assert undecided, "at this confidence something is"
    result = await run(tmp_path / "extra", rule="evidence", confidence=0.999, extra_tasks=60)
    extra = [name for name in result.runs if name.startswith("extra")]
    assert set(extra) <= {f"extra-{look}-{kind}" for look in (1, 2, 3) for kind in ("masked", "mirror")}
    assert len(extra) >= 2
    assert sum(len(result.runs[name]) for name in extra) <= 60
    masked, mirror = shown(tmp_path / "extra", "extra-1-masked"), shown(tmp_path / "extra", "extra-1-mirror")
    assert all(masked[task] != mirror[task] for task in masked)
    assert set().union(*(masked[task] ^ mirror[task] for task in masked)) <= undecided | {"care", "haste"}
    record = read_json(tmp_path / "extra" / "contributions.json")
    assert record["estimator"] == "foldover"
    assert {"mixed"} <= record["contributions"][0].keys()
    assert "paired_delta" not in record["contributions"][0], "a task that was repeated has no single masked reward"
    again = await run(tmp_path / "extra", rule="evidence", confidence=0.999, extra_tasks=60)
    assert again.selection == result.selection


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"design": "published"}, "set design to foldover"),
        ({"extra_tasks": 60}, "only rule evidence leaves chunks undecided"),
        ({"extra_tasks": 60, "rule": "evidence", "estimator": "adjusted"}, "set estimator to foldover or mixed"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        GateSettings(**{"design": "foldover", "estimator": "foldover", **change})


def test_a_protocol_takes_all_of_a_gates_settings():
    chosen = {"design": "foldover", "rule": "evidence", "confidence": 0.8, "drift": 0.01, "extra_tasks": 6, "budget": 3}
    settings = GateSettings(**chosen, estimator="mixed")
    where = {"task_ids": (), "seed": 0, "round_index": -1, "step": 0, "checkpoint": "x", "wave_size": 1}
    protocol = GateProtocol.of(settings, **where)
    plain = GateProtocol.of(GateSettings(), **where)
    assert (protocol.design, protocol.rule, protocol.estimator) == ("foldover", "evidence", "mixed")
    assert (protocol.confidence, protocol.drift, protocol.extra_tasks, protocol.budget) == (0.8, 0.01, 6, 3)
    assert replace(plain, budget=10) == GateProtocol((), 10, "paired_delta", 0, -1, 0, "x", 1)
    assert plain.estimators == ("paired_delta", "mean_delta", "adjusted")
    assert protocol.estimators[0] == "mixed"
