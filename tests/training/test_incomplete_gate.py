"""A gate that could not score every task: the bank stays, and the gate is completed without running anything twice."""

from dataclasses import replace

import pytest

from intraskill.core.errors import EnvironmentUnavailable, IntraSkillError, UserError
from intraskill.evolution.proposer import open_proposer
from intraskill.families.shop.family import Shop
from intraskill.skills.bank import read_bank
from intraskill.storage.documents import read_json
from intraskill.storage.jsonl import JsonlLog
from intraskill.training.late_gate import complete_gate

UPDATE = {"train/loss": 0.5}


class Flaky(Shop):
    """A world whose environments are gone for some tasks while `down` says so."""

    def __init__(self, world, broken):
        super().__init__(world.settings, world.source)
        self.broken, self.down = broken, False
        self.resets = []

    def new_environment(self, job=None):
        env = super().new_environment(job)
        inner = env.reset

        async def reset(task_id):
            self.resets.append(task_id)
            if self.down and task_id in self.broken:
                raise EnvironmentUnavailable("gone")
            return await inner(task_id)

        env.reset = reset
        return env


@pytest.fixture
async def stopped(make_driver, world, tmp_path):
    """A run whose first round was closed while two validation tasks were out of reach."""
    driver = make_driver(tmp_path)
    flaky = Flaky(world, set(driver.run.splits.val[:2]))
    driver.run = replace(driver.run, runner=replace(driver.run.runner, family=flaky))
    driver.run = replace(driver.run, proposer=open_proposer(driver.run.settings, driver.run.folder, world))
    await driver.open()
    while not driver.round_due:
        driver.commit(await driver.generate(), [UPDATE, UPDATE], {})
    flaky.down = True
    await driver.close_round()
    flaky.down = False
    yield driver, flaky
    driver.run.proposer.close()


async def test_an_incomplete_gate_keeps_the_bank_and_says_so(stopped):
    driver, _ = stopped
    record = read_json(driver.run.folder.gate_dir(0) / "contributions.json")
    assert record["complete"] is False
    assert record["selected_intervention_ids"] == []
    before, after = (read_bank(driver.run.folder.round_dir(i) / "skill_bank.json") for i in (0, 1))
    assert before.ids == after.ids
    row = [row for row in driver.run.folder.metrics.read() if row["kind"] == "gate"][-1]
    assert row["gate/complete"] == 0
    assert row["gate/bare/coverage"] == pytest.approx(38 / 40)
    results = {row["result"] for row in JsonlLog(driver.run.folder.path / "ledger.jsonl").read()}
    assert "gate_incomplete" in results


async def test_completing_it_runs_only_what_is_missing_and_sets_up_the_next_round(stopped):
    driver, flaky = stopped
    flaky.resets.clear()
    logs = [JsonlLog(driver.run.folder.gate_dir(0) / f"{name}.jsonl") for name in ("bare", "masked")]
    before = [log.read() for log in logs]
    result = await complete_gate(driver, 0)
    assert result.complete
    assert sorted(flaky.resets[:4]) == sorted([*flaky.broken, *flaky.broken]), "the gate's runs come first"
    assert len(flaky.resets) == 4 + 40 + 2, "then the bank it selects is evaluated anew, and the greedy run lacked two"
    for log, rows in zip(logs, before):
        after = log.read()
        assert after[: len(rows)] == rows
        assert {str(row["job"]["task_id"]) for row in after[len(rows) :]} == flaky.broken
    record = read_json(driver.run.folder.gate_dir(0) / "contributions.json")
    assert record["complete"] is True
    assert {name: set(tasks) for name, tasks in record["sampled_apart"].items()} == {
        "bare": flaky.broken,
        "masked": flaky.broken,
    }
    assert driver.round.bank.ids == result.bank.ids
    rows = JsonlLog(driver.run.folder.path / "ledger.jsonl").read()
    judged = [row for row in rows if row["candidate_id"].startswith("online-")]
    assert {row["result"] for row in judged} > {"gate_incomplete"}
    assert all(row["effect"] is not None for row in judged if row["result"] != "gate_incomplete")
    driver.commit(await driver.generate(), [UPDATE, UPDATE], {})


def shown(driver):
    """What the round's evaluation of the whole bank showed, by task."""
    rows = JsonlLog(driver.run.folder.gate_dir(0) / "equipped.jsonl").read()
    return {str(row["job"]["task_id"]): [skill["content"] for skill in row["selected_skills"]] for row in rows}


async def test_completing_it_evaluates_the_bank_it_selects(stopped):
    driver, _ = stopped
    before = [chunk.visible() for chunk in driver.round.bank.chunks]
    assert before in shown(driver).values()
    result = await complete_gate(driver, 0)
    selected = [chunk.visible() for chunk in result.bank.chunks]
    assert selected != before
    assert shown(driver) == dict.fromkeys(driver.run.splits.val[:40], selected)
    rows = [row for row in driver.run.folder.metrics.read() if row.get("condition") == "equipped" and row["round"] == 0]
    assert [row["n"] for row in rows] == [38, 40]


@pytest.mark.parametrize("lost", ["next bank", "evaluation"])
async def test_a_completion_that_was_killed_is_finished_by_the_next_one(stopped, lost):
    driver, flaky = stopped
    old = read_bank(driver.run.folder.round_dir(1) / "skill_bank.json")
    result = await complete_gate(driver, 0)
    evaluation = driver.run.folder.gate_dir(0) / "equipped.jsonl"
    if lost == "next bank":
        driver.set_up_round(1, old)
    else:
        evaluation.write_bytes(b"".join(evaluation.read_bytes().splitlines(keepends=True)[:7]))
    flaky.resets.clear()
    again = await complete_gate(driver, 0)
    assert again.bank == result.bank == driver.round.bank
    assert len(shown(driver)) == 40
    assert len(flaky.resets) <= 40
    with pytest.raises(UserError, match="is complete"):
        await complete_gate(driver, 0)


async def test_after_further_steps_only_the_record_is_completed(stopped):
    driver, _ = stopped
    driver.commit(await driver.generate(), [UPDATE, UPDATE], {})
    bank = driver.round.bank
    assert (await complete_gate(driver, 0)).complete
    assert driver.round.bank == bank


async def test_other_weights_and_complete_gates_are_refused(stopped):
    driver, _ = stopped
    with pytest.raises(UserError, match="is complete"):
        await complete_gate(driver, -1)
    driver.checkpoint = "others"
    with pytest.raises(UserError, match="the policy is others"):
        await complete_gate(driver, 0)


async def test_an_incomplete_first_gate_stops_the_run_and_is_completed_by_the_next_start(make_driver, world, tmp_path):
    driver = make_driver(tmp_path)
    flaky = Flaky(world, set(driver.run.splits.val[:2]))
    driver.run = replace(driver.run, runner=replace(driver.run.runner, family=flaky))
    flaky.down = True
    with pytest.raises(IntraSkillError, match="gate_a: the gate on the initial bank could not score 4 of 80 episodes"):
        await driver.open()
    assert not driver.state.opened
    bare = JsonlLog(driver.run.folder.gate_dir(-1) / "bare.jsonl")
    assert len(bare.read()) == 40 + 2
    again = make_driver(tmp_path)
    again.run = replace(again.run, runner=driver.run.runner)
    flaky.down = False
    await again.open()
    assert again.state.opened
    assert len(bare.read()) == 40 + 2 + 2, "what was scored is not run again"
