"""The gate compares one checkpoint with itself, and keeps what helps."""

from dataclasses import replace

import numpy as np
import pytest

from intraskill.core.errors import UserError
from intraskill.core.progress import Reporter
from intraskill.core.seeds import stable_seed
from intraskill.gate.design import draw_masks
from intraskill.gate.interventions import Candidate, build_pool, next_bank, slots
from intraskill.gate.protocol import GateProtocol, check_pairing, measured_here
from intraskill.gate.run import run_gate
from intraskill.rollout.jobs import Outcome
from intraskill.skills.bank import Bank, Chunk
from intraskill.storage.documents import read_json
from intraskill.storage.jsonl import JsonlLog


def outcome(task_id, **changes):
    base = Outcome(
        f"task-{task_id}", str(task_id), True, 1.0, True, {}, 3, "purchase", {"checkpoint": "a", "max_steps": 9}
    )
    return replace(base, **changes)


def plan(world, **changes):
    tasks = tuple(world.splits().val)
    return replace(GateProtocol(tasks, 10, "paired_delta", 5, 0, 20, "scripted", 10), **changes)


async def run(world, make_runner, bank, folder, candidates=(), **changes):
    return await run_gate(make_runner(), bank, candidates, plan(world, **changes), folder, Reporter(quiet=True))


async def test_every_estimator_stands_in_the_record(world, make_runner, bank, tmp_path):
    result = await run(world, make_runner, bank, tmp_path)
    record = read_json(tmp_path / "contributions.json")
    assert record["observations"] == len(result.masked) == 40
    for row in record["contributions"]:
        assert {"coefficient", "standard_error", "standard_error_hc3", "mean_delta", "adjusted", "status"} <= row.keys()
    assert result.bank.ids == tuple(row for row in ("care", "haste") if row in record["selected_intervention_ids"])
    assert all(chunk.contribution > 0 and chunk.contribution_checkpoint == "scripted" for chunk in result.bank.chunks)


async def test_an_empty_bank_is_measured_bare_and_stays_empty(world, make_runner, tmp_path):
    result = await run(world, make_runner, Bank(), tmp_path)
    assert result.complete
    assert len(result.bare) == 40
    assert result.masked == ()
    assert result.bank.chunks == ()


async def test_versions_of_one_chunk_never_meet(world, make_runner, bank, tmp_path):
    rewrite = Candidate(
        Chunk("care-2", title="Care", applies_when="always", procedure=("look twice",)), "REWRITE", "care"
    )
    await run(world, make_runner, bank, tmp_path, [rewrite])
    shown = [
        {skill["skill_id"] for skill in row["selected_skills"]} for row in JsonlLog(tmp_path / "masked.jsonl").read()
    ]
    assert not any({"care", "care-2"} <= skills for skills in shown)
    assert any("care-2" in skills for skills in shown)


async def test_a_gate_cut_in_the_middle_of_a_wave_ends_the_same(world, make_runner, bank, tmp_path):
    whole = await run(world, make_runner, bank, tmp_path / "whole")
    await run(world, make_runner, bank, tmp_path / "cut")
    log = JsonlLog(tmp_path / "cut" / "masked.jsonl")
    rows = log.read()
    log.path.unlink()
    log.append_many(rows[:17])
    again = await run(world, make_runner, bank, tmp_path / "cut")
    assert [one.reward for one in again.masked] == [one.reward for one in whole.masked]
    assert again.selection == whole.selection
    assert len(log.read()) == 40


async def test_a_gate_whose_baseline_is_of_other_weights_selects_nothing(world, make_runner, bank, tmp_path):
    await run(world, make_runner, bank, tmp_path)
    chosen = (tmp_path / "selected_skill_bank.json").read_bytes()
    log = JsonlLog(tmp_path / "masked.jsonl")
    rows = [{**row, "provenance": {**row["provenance"], "checkpoint": "others"}} for row in log.read()]
    log.path.unlink()
    log.append_many(rows)
    with pytest.raises(UserError, match=r"another checkpoint \('others', not 'scripted'\)"):
        await run(world, make_runner, bank, tmp_path)
    assert (tmp_path / "selected_skill_bank.json").read_bytes() == chosen


async def test_masks_that_cannot_be_told_apart_are_drawn_again(world, make_runner, tmp_path):
    """Few tasks: many draws are rank-deficient, and a gate must not end in one after all its episodes."""
    bank = Bank(tuple(Chunk(name, title=name, applies_when="always", procedure=("look",)) for name in "abcdefg"))
    tasks = tuple(world.splits().val)[:8]

    def first_draw(seed):
        return draw_masks(slots(build_pool(bank, ())), len(tasks), stable_seed("masks", seed, 0))

    unlucky = next(seed for seed in range(99) if np.linalg.matrix_rank(first_draw(seed)) < 7)
    lucky = next(seed for seed in range(99) if np.linalg.matrix_rank(first_draw(seed)) == 7)
    for seed, as_drawn in ((unlucky, False), (lucky, True)):
        result = await run(world, make_runner, bank, tmp_path / str(seed), task_ids=tasks, seed=seed)
        masks = read_json(tmp_path / str(seed) / "assignments.json")["masks"]
        assert ([tuple(row) for row in masks] == first_draw(seed)) is as_drawn
        assert np.linalg.matrix_rank(masks) == result.estimates["paired_delta"].rank == 7


async def test_a_gate_with_fewer_tasks_than_texts_runs_nothing(world, make_runner, bank, tmp_path):
    with pytest.raises(UserError, match=r"gate.tasks is 2, too few to tell 2 chunks apart"):
        await run(world, make_runner, bank, tmp_path, task_ids=tuple(world.splits().val)[:2])
    assert not list(tmp_path.iterdir())


async def test_an_estimator_without_an_answer_does_not_take_the_others_down(
    world, make_runner, bank, tmp_path, monkeypatch
):
    from intraskill.gate import judge as gate

    def fit(table, estimator):
        if estimator == failing:
            raise UserError(f"{estimator}: no answer")
        return real(table, estimator)

    real = gate.fit
    monkeypatch.setattr(gate, "fit", fit)
    failing = "adjusted"
    result = await run(world, make_runner, bank, tmp_path / "other")
    assert result.problems == {"adjusted": "adjusted: no answer"}
    assert list(result.estimates) == ["paired_delta", "mean_delta"]
    assert result.selection is not None
    failing = "paired_delta"
    result = await run(world, make_runner, bank, tmp_path / "own")
    assert (result.bank, result.selection, result.complete) == (bank, None, True)
    record = read_json(tmp_path / "own" / "contributions.json")
    assert record["problems"] == {"paired_delta": "paired_delta: no answer"}
    assert not any("coefficient" in row or "status" in row for row in record["contributions"])


async def test_a_bank_is_measured_here_only_if_nothing_but_the_skills_can_differ(world, make_runner, bank, tmp_path):
    chosen = (await run(world, make_runner, bank, tmp_path)).bank
    assert chosen.chunks
    runner = make_runner()
    protocol = runner.protocol()
    assert measured_here(chosen, "scripted", protocol)
    assert not measured_here(chosen, "step-0000-others", protocol)
    assert not measured_here(bank, "scripted", protocol)
    policy = protocol["policy"]
    assert measured_here(chosen, "scripted", protocol | {"policy": {**policy, "weight_version": "as named elsewhere"}})
    for change in (
        {"policy": {**policy, "chat_template_sha256": "0"}},
        {"environment": {**protocol["environment"], "page_size": 7}},
        {"prompt_sha256": "0"},
        {"sampling": {**protocol["sampling"], "temperature": 0.5}},
        {"max_steps": 3},
        {"tool_schema": "dynamic"},
    ):
        assert not measured_here(chosen, "scripted", protocol | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"provenance": {"checkpoint": "b", "max_steps": 9}}, "another checkpoint"),
        ({"provenance": {"checkpoint": "a", "max_steps": 8}}, "another max_steps"),
        ({"provenance": {"checkpoint": "a"}}, "another max_steps"),
        ({"task_id": "7"}, "different tasks"),
    ],
)
def test_a_baseline_of_another_protocol_is_refused(change, message):
    bare = [outcome(1), outcome(2)]
    with pytest.raises(UserError, match=message):
        check_pairing(bare, [outcome(1), replace(outcome(2), **change)])


def test_a_winning_rewrite_keeps_the_logical_id_and_counts_its_version():
    bank = Bank((Chunk("a", version=3, title="A", applies_when="x", procedure=("y",)),))
    rewrite = Chunk("a-new", title="A2", applies_when="x", procedure=("z",))
    add = Chunk("b", title="B", applies_when="x", procedure=("y",))
    pool = build_pool(bank, [Candidate(add, "ADD"), Candidate(rewrite, "REWRITE", "a")])
    assert slots(pool) == (("a", "a-new"), ("b",))
    chosen = next_bank(bank, pool, ("a-new", "b"), {"a-new": 0.2, "b": 0.1, "a": 0.0}, ("ckpt", "here"))
    assert {(c.contribution_checkpoint, c.contribution_conditions) for c in chosen.chunks} == {("ckpt", "here")}
    assert [(c.skill_id, c.version, c.title, c.contribution) for c in chosen.chunks] == [
        ("a", 4, "A2", 0.2),
        ("b", 1, "B", 0.1),
    ]


def test_a_rewrite_of_a_chunk_that_is_gone_is_refused():
    with pytest.raises(UserError, match="rewrites gone, which is not active"):
        build_pool(Bank(), [Candidate(Chunk("x"), "REWRITE", "gone")])
