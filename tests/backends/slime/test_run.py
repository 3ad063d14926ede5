"""The job: rounds inside slime's loop, and coming back to a checkpoint."""

import json
from pathlib import Path

import pytest

from intraskill.cli import main
from intraskill.core.errors import EnvironmentUnavailable, StateCorrupted, TooManyTechnicalFailures, UserError
from intraskill.storage.jsonl import JsonlLog


def groups_of(job) -> list[tuple]:
    rows = [row for log in sorted(job.folder.path.glob("rounds/*/groups.jsonl")) for row in JsonlLog(log).read()]
    return [(row["step"], row["group_index"], row["task_id"], tuple(row["skill_ids"])) for row in rows]


def whole_run(kit, job=None):
    """slime's order of calls, without training."""
    job = job or kit.job()
    job.load(-1)
    job.evaluate(0)
    for step in range(4):
        job.generate(step)
        job.save(step)
        if step % 2:
            job.evaluate(step)
    return job


def test_a_whole_run_closes_its_rounds_in_the_loop(kit):
    job = whole_run(kit)
    assert job.driver.finished
    metrics = job.folder.metrics.read()
    assert [row["round"] for row in metrics if row["kind"] == "gate"] == [-1, 0, 1]
    assert [row["step"] for row in metrics if row["kind"] == "step"] == [1, 2, 3, 4]
    assert (job.folder.round_dir(1) / "skill_bank.json").exists()
    rows = JsonlLog(job.folder.round_dir(0) / "groups.jsonl").read()
    assert {tuple(row["weight_versions"]) for row in rows} == {("3",)}


def test_generated_samples_fill_the_batch(kit):
    from intraskill.backends.slime.samples import group_samples

    job = kit.job()
    generated = job.generate(0)
    samples = [s for g in generated.batch.kept for episode in group_samples(g, 2) for s in episode]
    assert len({sample["rollout_id"] for sample in samples}) == 4
    chat = job.driver.run.runner.policy.chat
    asked = {tuple(request["sampling_params"]["stop_token_ids"]) for request in kit.server.requests}
    assert asked == {tuple(sorted(chat.stop_ids))}
    assert any(sum(sample["loss_mask"]) for sample in samples)
    assert 0 < generated.metrics["rollout/prefix_cache_hit_rate_all"] < 1
    assert generated.metrics["rollout/shopsim/group_count"] == 4


def test_an_evaluation_asked_twice_runs_once(kit):
    job = kit.job()
    first = job.evaluate(0)
    asked = len(kit.server.requests)
    assert job.evaluate(0) == first
    assert len(kit.server.requests) == asked
    assert first[1]["gate/complete"] == 1.0
    assert len(first[0]) == 1


def test_between_rounds_there_is_nothing_to_evaluate(kit):
    job = kit.job()
    job.generate(0)
    asked = len(kit.server.requests)
    rewards, metrics = job.evaluate(0)
    assert (rewards, metrics) == ([], {"rollout/step": 0})
    assert len(kit.server.requests) == asked


def test_killed_and_resumed_from_an_older_checkpoint_the_tasks_and_assignments_are_the_same(kit, tmp_path):
    reference = groups_of(whole_run(kit))
    kit.spec["run"] = str(tmp_path / "runs" / "other")
    job = kit.job()
    for step in (0, 1, 2):  # the last save is that of step 2 (rollout 1); then the job is killed
        job.generate(step)
        if step == 1:
            job.save(1)
            job.evaluate(1)
    gate = (job.folder.gate_dir(0) / "bare.jsonl").read_bytes()
    job = kit.job()
    job.load(1)
    assert job.driver.state.step == 2
    assert (job.folder.gate_dir(0) / "bare.jsonl").read_bytes() == gate, "the gate at that checkpoint is kept"
    for step in (2, 3):
        job.generate(step)
    job.evaluate(3)
    assert [row[:3] for row in groups_of(job)] == [row[:3] for row in reference]
    assert [r["step"] for r in job.folder.metrics.read() if r["kind"] == "step"] == [1, 2, 3, 4]


def test_without_any_checkpoint_it_starts_over_but_keeps_what_the_untrained_model_did(kit):
    job = kit.job()
    job.evaluate(0)
    job.generate(0)
    first = groups_of(job)
    job = kit.job()
    job.load(-1)
    assert job.driver.state.step == 0
    asked = len(kit.server.requests)
    job.evaluate(0)
    assert len(kit.server.requests) == asked
    job.generate(0)
    assert groups_of(job) == first


def test_a_job_that_died_before_the_gate_closes_the_round_before_it_generates(kit):
    job = kit.job()
    job.generate(0)
    job.generate(1)
    job.save(1)
    job = kit.job()
    job.load(1)
    job.generate(2)
    assert (job.folder.gate_dir(0) / "contributions.json").exists()
    assert job.driver.state.rounds_closed == 1


@pytest.fixture
def incomplete(kit):
    """A job whose first round was closed while the environments of two validation tasks were gone."""

    def close(job):
        job.generate(0)
        job.generate(1)
        job.save(1)
        broken, family = job.driver.run.splits.val[:2], job.driver.run.runner.family
        new = family.new_environment

        async def gone(task_id):
            raise EnvironmentUnavailable("gone")

        def new_environment(wanted=None):
            env = new(wanted)
            if wanted is not None and wanted.task_id in broken:
                env.reset = gone
            return env

        family.new_environment = new_environment
        job.evaluate(1)
        del family.new_environment
        return job

    return close


@pytest.mark.parametrize("killed", [False, True])
def test_an_incomplete_gate_is_completed_before_training_goes_on(kit, incomplete, killed):
    job = incomplete(kit.job())
    path = job.folder.gate_dir(0) / "contributions.json"
    assert json.loads(path.read_text())["complete"] is False
    if killed:
        job = kit.job()
        job.load(1)
    job.generate(2)
    record = json.loads(path.read_text())
    assert record["complete"] is True
    bank = json.loads((job.folder.round_dir(1) / "skill_bank.json").read_text())
    assert [chunk["skill_id"] for chunk in bank["chunks"]] == record["selected_intervention_ids"]


def test_completing_a_gate_by_hand_says_who_can(kit, capsys):
    job = kit.job()
    job.generate(0)
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(["gate", "complete", str(job.folder.path), "--round", "0"])
    error = capsys.readouterr().err
    assert (stopped.value.code, error.count("\n")) == (2, 1)
    assert "start launch/four_rounds.sh again" in error


def test_a_gate_of_weights_that_were_lost_is_run_again(kit):
    job = kit.job()
    for step in (0, 1):
        job.generate(step)
        job.save(step)
    job.evaluate(1)
    job = kit.job()
    job.load(0)  # somebody removed the last checkpoint
    assert job.driver.state.rounds_closed == 0
    assert not (job.folder.gate_dir(0) / "bare.jsonl").exists()
    assert not (job.folder.round_dir(1) / "skill_bank.json").exists()


def test_a_checkpoint_of_another_run_is_refused(kit):
    job = kit.job()
    job.generate(0)
    job.save(0)
    note = Path(job.args.save) / "rollout" / "intraskill_0.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "fingerprint": "other"}))
    with pytest.raises(UserError, match="another run"):
        kit.job().load(0)


def test_a_checkpoint_ahead_of_the_run_folder_is_refused(kit):
    with pytest.raises(StateCorrupted, match="at step 8"):
        kit.job().load(7)


def test_slime_asking_for_another_step_is_refused(kit):
    with pytest.raises(StateCorrupted, match="step 4"):
        kit.job().generate(3)


def test_a_group_that_mixes_weights_is_technical(kit):
    job = kit.job()
    job.evaluate(0)
    real, later = kit.server.tokens, 0

    def switch(ids):
        nonlocal later
        later += bool(job.engine.version)  # the step's version is known once its first reply has arrived
        kit.server.version = "4" if 0 < later < 3 else "3"
        return real(ids)

    kit.server.tokens = switch
    generated = job.generate(0)
    verdicts = generated.batch.collected.verdicts
    assert "technical" in verdicts
    for group, verdict in zip(generated.batch.collected.groups, verdicts):
        versions = {s.turn.weight_version for e in group.episodes for s in e.steps}
        assert verdict == "technical" or versions == {"3"}


def test_an_engine_gone_for_good_stops_the_run_after_eight_groups(kit, monkeypatch):
    job = kit.job()
    job.evaluate(0)
    kit.server.stop()
    monkeypatch.setattr("intraskill.policies.retry.Retry.wait", lambda self, attempt: 0.0)
    with pytest.raises(TooManyTechnicalFailures, match="8 groups in a row"):
        job.generate(0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("rollout_top_p", 0.9), ("rollout_top_k", 20), ("n_samples_per_prompt", 4), ("global_batch_size", 64)],
)
def test_arguments_that_contradict_the_settings_are_refused(kit, name, value):
    with pytest.raises(UserError, match=name.replace("_", "-")):
        kit.job(**{name: value})


def test_a_bank_edited_by_hand_is_noticed(kit):
    job = kit.job()
    job.evaluate(0)
    path = job.folder.round_dir(0) / "skill_bank.json"
    record = json.loads(path.read_text())
    extra = {"skill_id": "mine", "title": "Mine", "applies_when": "always", "procedure": ["hope"], "contribution": 0.1}
    path.write_text(json.dumps(record | {"chunks": [*record["chunks"], extra]}))
    with pytest.raises(UserError, match=r"skill_bank.json was changed"):
        job.generate(0)


def test_a_stale_curriculum_is_noticed(kit):
    job = kit.job()
    job.evaluate(0)
    path = job.folder.round_dir(0) / "curriculum.json"
    path.write_text(path.read_text().replace("round-000", "round-007"))
    with pytest.raises(UserError, match="belongs to seed-0/round-007"):
        job.generate(0)


def test_two_jobs_cannot_share_a_run_folder(kit):
    from intraskill.backends.slime.run import SlimeRun

    kit.job()
    with pytest.raises(UserError, match="in use"):
        SlimeRun(kit.args())
