"""The round driver: what a run leaves on disk, and that a kill at any point changes nothing of it."""

import json
from dataclasses import replace

import pytest

from intraskill.agent.trace import segments_from_record
from intraskill.core.errors import UserError
from intraskill.objectives.advantages import grpo
from intraskill.objectives.objective import RewardObjective
from intraskill.rollout.runner import EpisodeRunner
from intraskill.storage.documents import read_json
from intraskill.storage.jsonl import JsonlLog

UPDATE = {"train/loss": 0.5}


class EverySecondGroupFails(EpisodeRunner):
    async def run(self, job, chunks, group):
        episode = await super().run(job, chunks, group)
        if group.startswith("group-") and int(group.removeprefix("group-")) % 2:
            return replace(episode, status="failed", error={"stage": "policy", "type": "Gone", "message": "gone"})
        return episode


async def drive(driver) -> None:
    await driver.open()
    while not driver.finished:
        if driver.round_due:
            await driver.close_round()
        else:
            driver.commit(await driver.generate(), [UPDATE, UPDATE], {})


def contents(path) -> dict:
    """Everything a run left behind, without the clock."""
    found = {}
    for file in sorted(path.rglob("*.json*")):
        text = file.read_text()
        rows = [json.loads(line) for line in text.splitlines()] if file.suffix == ".jsonl" else [json.loads(text)]
        found[str(file.relative_to(path))] = [_timeless(row) for row in rows]
    return found


def _timeless(value):
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in ("times", "seconds") and "timing/" not in k}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


async def test_a_run_leaves_the_promised_files_and_counts(make_driver, tmp_path):
    driver = make_driver(tmp_path)
    await drive(driver)
    assert driver.state.step == 4
    assert driver.state.next_group == 24
    rows = driver.run.folder.metrics.read()
    kinds = [row["kind"] for row in rows]
    assert kinds.count("step") == 4
    assert kinds.count("update") == 8
    assert kinds.count("gate") == 3
    assert [row["train/step"] for row in rows if row["kind"] == "update"] == list(range(1, 9))
    for index in (0, 1):
        groups = JsonlLog(driver.run.folder.round_dir(index) / "groups.jsonl").read()
        assert len(groups) == 12
        assert sum(group["verdict"] == "kept" for group in groups) == 8
        gate = read_json(driver.run.folder.gate_dir(index) / "contributions.json")
        assert gate["observations"] == 40
        assert len(JsonlLog(driver.run.folder.gate_dir(index) / "bare.jsonl").read()) == 40


async def test_only_kept_groups_leave_tokens_and_all_groups_leave_traces(make_driver, tmp_path):
    driver = make_driver(tmp_path)
    await driver.open()
    batch = await driver.generate()
    driver.commit(batch, [UPDATE, UPDATE], {})
    folder = driver.run.folder.round_dir(0)
    assert len(JsonlLog(folder / "episodes.jsonl").read()) == 24
    assert len(JsonlLog(folder / "tokens.jsonl").read()) == 16


async def test_siblings_see_byte_identical_prompts(make_driver, tmp_path):
    driver = make_driver(tmp_path)
    await driver.open()
    batch = await driver.generate()
    for group in batch.collected.groups:
        assert len({json.dumps(episode.messages[:2]) for episode in group.episodes}) == 1


async def test_a_retry_never_reaches_the_trainer(make_driver, tmp_path):
    driver = make_driver(tmp_path)
    await driver.open()
    batch = await driver.generate()
    assert batch.retries
    assert set(batch.retries) == {group.index for group in batch.collected.groups if group.all_wrong}
    trained = {id(episode) for group in batch.kept for episode in group.episodes}
    assert not trained & {id(episode) for episode in batch.retries.values()}


async def test_gold_reaches_no_prompt(make_driver, tmp_path, world):
    driver = make_driver(tmp_path)
    await drive(driver)
    for row in JsonlLog(driver.run.folder.round_dir(0) / "episodes.jsonl").read():
        asin = world.catalog.tasks[row["job"]["task_id"]].asin
        assert asin not in json.dumps(row["conversation"])
        assert asin not in json.dumps(row["reset"])


@pytest.mark.parametrize("turns", [1, 500, 800, 1300, 2100])
async def test_a_run_killed_anywhere_ends_like_one_never_killed(make_driver, page_policy, killed, tmp_path, turns):
    whole = make_driver(tmp_path / "whole")
    await drive(whole)
    with pytest.raises(killed):
        await drive(make_driver(tmp_path / "killed", page_policy(fail_after=turns)))
    await drive(make_driver(tmp_path / "killed"))
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


async def test_records_beyond_the_state_are_dropped_on_opening(make_driver, tmp_path):
    driver = make_driver(tmp_path)
    await driver.open()
    state = driver.state
    driver.commit(await driver.generate(), [UPDATE], {})
    driver.run.folder.write_state(state)  # as if killed between the records and the state
    again = make_driver(tmp_path)
    assert again.state.step == 0
    assert not [row for row in again.run.folder.metrics.read() if row["kind"] == "step"]
    assert not JsonlLog(again.run.folder.round_dir(0) / "groups.jsonl").read()


@pytest.mark.parametrize("order", ["submission", "completion"])
async def test_a_step_ends_after_its_last_wave_with_what_it_kept(make_driver, settings, tmp_path, order):
    """Every second group is out of reach; with three waves of two groups, three of the four wanted are kept."""
    changed = {"kept_groups": 4, "generated_groups": 2, "max_waves": 3, "order": order}
    driver = make_driver(tmp_path, rollout=settings.rollout.model_copy(update=changed))
    await driver.open()
    driver.run = replace(driver.run, runner=EverySecondGroupFails(*vars(driver.run.runner).values()))
    batch = await driver.generate()
    verdicts = batch.collected.verdicts
    assert sorted(verdicts) == ["kept"] * 3 + ["technical"] * 3
    assert batch.next_state.next_group == 6
    driver.commit(batch, [UPDATE, UPDATE], {})
    assert driver.state.step == 1


async def test_a_bank_measured_right_here_is_not_gated_again(make_driver, tmp_path):
    first = make_driver(tmp_path / "first")
    await first.open()
    measured = first.round.bank
    for checkpoint, gated in (("scripted", False), ("step-0000-others", True)):
        again = make_driver(tmp_path / checkpoint)
        again.run, again.checkpoint = replace(again.run, bank=measured), checkpoint
        await again.open()
        assert again.run.folder.gate_dir(-1).exists() is gated


@pytest.mark.parametrize("name", ["groups", "episodes", "retries", "tokens", "metrics"])
async def test_a_step_is_counted_only_after_all_its_records_are_down(make_driver, killed, monkeypatch, tmp_path, name):
    driver = make_driver(tmp_path)
    await driver.open()
    batch = await driver.generate()
    append = JsonlLog.append_many

    def dies(log, rows):
        if log.path.stem == name:
            raise killed
        append(log, rows)

    with monkeypatch.context() as patched:
        patched.setattr(JsonlLog, "append_many", dies)
        with pytest.raises(killed):
            driver.commit(batch, [UPDATE], {})
    assert make_driver(tmp_path).state.step == 0


async def test_a_round_is_opened_and_closed_only_after_the_next_one_is_set_up(
    make_driver, killed, monkeypatch, tmp_path
):
    from intraskill.training import driver as drivers

    def dies(*_):
        raise killed

    driver = make_driver(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(drivers, "prepare_round", dies)
        with pytest.raises(killed):
            await driver.open()
    driver = make_driver(tmp_path)
    assert not driver.state.opened
    await driver.open()
    while not driver.round_due:
        driver.commit(await driver.generate(), [UPDATE], {})
    with monkeypatch.context() as patched:
        patched.setattr(drivers, "prepare_round", dies)
        with pytest.raises(killed):
            await driver.close_round()
    assert make_driver(tmp_path).state.rounds_closed == 0


async def test_advantages_stand_with_the_tokens_they_are_for(make_driver, tmp_path):
    driver = make_driver(tmp_path)
    await driver.open()
    batch = await driver.generate()
    driver.commit(batch, [UPDATE], {})
    rows = JsonlLog(driver.run.folder.round_dir(0) / "tokens.jsonl").read()
    stored = [segment for row in rows for segment in segments_from_record(row, row["group_index"])]
    assert stored == [segment for lesson in batch.lessons for segment in lesson]
    assert any(any(segment.advantages) for segment in stored)
    for group, lesson in zip(batch.kept, batch.lessons, strict=True):
        wanted = grpo([episode.reward for episode in group.episodes])
        told = {segment.episode_id: set(segment.advantages) - {0.0} for segment in lesson}
        assert [told[episode.job.episode_id] for episode in group.episodes] == [{v} - {0.0} for v in wanted]


async def test_another_objective_keeps_other_groups(make_driver, monkeypatch, tmp_path):
    """The filter asks the objective: to one that learns from equal rewards no group is flat."""
    from intraskill.training import step as steps

    class Learner(RewardObjective):
        def carries_signal(self, group):
            return True

    flat = make_driver(tmp_path / "grpo")
    await flat.open()
    assert "zero_std" in (await flat.generate()).collected.verdicts
    monkeypatch.setattr(steps, "OBJECTIVES", {"grpo": Learner(grpo)})
    other = make_driver(tmp_path / "other")
    await other.open()
    assert set((await other.generate()).collected.verdicts) == {"kept", "surplus"}


async def test_the_rounds_files_are_read_once_and_checked(make_driver, tmp_path, monkeypatch):
    from intraskill.training import round as rounds

    driver = make_driver(tmp_path)
    await driver.open()
    read, real = [], rounds.read_bank
    monkeypatch.setattr(rounds, "read_bank", lambda path: read.append(path) or real(path))
    for _ in range(2):
        driver.commit(await driver.generate(), [UPDATE, UPDATE], {})
    path = driver.run.folder.round_dir(0) / "skill_bank.json"
    assert read == [path]
    await driver.close_round()
    assert driver.round.bank.ids == tuple(item.skill_id for item in driver.round.curriculum.probabilities)
    assert read == [path, driver.run.folder.round_dir(1) / "skill_bank.json"]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "skill_bank.json",
            '"applies_when": "',
            '"applies_when": "never ',
            "skill_bank.json was changed after its round",
        ),
        ("curriculum.json", "/round-000", "/round-007", "curriculum.json belongs to"),
        ("curriculum.json", '"contribution": ', '"contribution": 1', "was made for another bank"),
        (
            "curriculum.json",
            '"inclusion_probability": ',
            '"inclusion_probability": 7',
            "inclusion_probability: expected a number",
        ),
        ("curriculum.json", '"q": ', '"p": ', "curriculum.json: q is missing"),
    ],
)
async def test_an_edited_file_of_the_round_is_named(make_driver, tmp_path, file, old, new, message):
    driver = make_driver(tmp_path)
    await driver.open()
    path = driver.run.folder.round_dir(0) / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        await make_driver(tmp_path).generate()
