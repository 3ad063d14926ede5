import asyncio
import json
from dataclasses import replace

import pytest
import yaml

from intraskill.agent.episode import EpisodeSettings
from intraskill.cli import main
from intraskill.core.errors import UserError
from intraskill.core.progress import Reporter
from intraskill.core.records import Sampling
from intraskill.evaluate.four_conditions import four_conditions
from intraskill.evaluate.ranking import random_subset, rank, ranking
from intraskill.families.shop.family import open_shop
from intraskill.gate.protocol import GateProtocol
from intraskill.gate.run import run_gate
from intraskill.rollout.runner import EpisodeRunner
from intraskill.settings.models import RunSettings
from intraskill.skills.bank import Bank, Chunk, read_bank, write_bank
from intraskill.storage.run_folder import RunFolder, RunState

CARE = Chunk("care", title="Care", applies_when="always", procedure=("search carefully",))
HASTE = Chunk("haste", title="Haste", applies_when="always", procedure=("hurry",))
CALM = Chunk("calm", title="Calm", applies_when="always", procedure=("keep calm",))
PLUM = Chunk("plum", title="Plum", applies_when="always", procedure=("eat a plum",))


@pytest.fixture
def training_run(runs_dir, name, shopper):
    """A training run's folder with Gate A and one closed round, both gates really run."""
    settings = RunSettings.model_validate(
        {
            "name": name,
            "rounds": 1,
            "steps_per_round": 2,
            "environment": {"world": {"generate": "small"}},
            "gate": {"tasks": 40},
        }
    )
    folder = RunFolder(runs_dir / name)
    world = open_shop(settings.environment, runs_dir / ".worlds")
    limits = EpisodeSettings(10, Sampling(1.0, 1.0, -1, 32), "static")
    runner = EpisodeRunner(world, shopper(), world.prompt("compact"), limits)
    folder.claim(settings, {"environment": world.identity()})
    bank = Bank((CARE, HASTE, CALM, PLUM))
    for index, step in ((-1, 0), (0, 2)):
        plan = GateProtocol(
            tuple(world.splits().val), 10, "paired_delta", 0, index, step, f"step-{step:04d}-0badc0de", 40
        )
        result = asyncio.run(run_gate(runner, bank, (), plan, folder.gate_dir(index), Reporter(True)))
        bank = result.bank
        if index < 0:
            write_bank(folder.round_dir(0) / "skill_bank.json", bank)
    folder.write_state(RunState(step=2, rounds_closed=1, opened=True, finished=True))
    return folder.path


@pytest.fixture
def intraskill(capsys):
    """intraskill(words...) -> (exit code, printed JSON, stderr)."""

    def run(*words):
        with pytest.raises(SystemExit) as caught:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return caught.value.code, json.loads(out) if out else None, err

    return run


def test_four_conditions_end_to_end_and_from_their_folder_again(training_run, model_server, intraskill):
    words = ("eval", "four-conditions", training_run, "--base-url", model_server.url, "--samples", 300, "--quiet")
    code, record, _ = intraskill(*words, "--tasks", 8)
    assert code == 0
    assert list(record["arms"]) == ["base-free", "base-s0", "final-free", "final-st"]
    assert all(arm["coverage"] == 1.0 for arm in record["arms"].values())
    gap = next(c for c in record["contrasts"] if c["name"] == "internalization_gap")
    arms = record["arms"]
    assert gap["metrics"]["reward"]["mean_difference"] == pytest.approx(
        arms["final-st"]["reward"] - arms["final-free"]["reward"]
    )
    assert gap["metrics"]["reward"]["ci"][0] <= gap["metrics"]["reward"]["mean_difference"]
    assert gap["changed"] == ["skills"]
    assert next(c for c in record["contrasts"] if c["name"] == "pair_change")["changed"] == ["checkpoint_id", "skills"]
    folder = training_run / "evaluations" / "four-conditions-val"
    assert json.loads((folder / "report.json").read_text()) == record
    assert "in-sample" in (folder / "report.md").read_text()
    assert (folder / "report.png").read_bytes().startswith(b"\x89PNG")
    asked = model_server.requests
    assert intraskill(*words, "--tasks", 8)[1] == record
    assert model_server.requests == asked
    code, _, err = intraskill(*words, "--tasks", 6)
    assert (code, "jobs.sample_size: 8 -> 6" in err) == (2, True)


def test_one_checkpoint_at_a_time_where_a_server_holds_only_one(training_run, model_server, intraskill):
    words = ("eval", "four-conditions", training_run, "--base-url", model_server.url, "--tasks", 8, "--quiet")
    code, record, _ = intraskill(*words, "--only", "base")
    assert (code, record["waiting_for"]) == (0, ["final-free", "final-st"])
    assert "contrasts" in intraskill(*words, "--only", "final", "--samples", 100)[1]
    code, _, err = intraskill(*words, "--only", "middle")
    assert (code, "no arm's name starts so" in err) == (2, True)


def test_planning_writes_settings_that_mean_the_same_as_the_run(training_run, model_server, intraskill):
    words = ("eval", "four-conditions", training_run, "--base-url", model_server.url, "--tasks", 8)
    _, plan, _ = intraskill(*words, "--plan-only")
    folder = training_run / "evaluations" / "four-conditions-val"
    assert not (folder / "base-free").exists()
    written = yaml.safe_load((folder / "final-st.yaml").read_text())
    assert written["policy"]["checkpoint_id"].endswith("/step-0002")
    for arm in plan:
        _, again, _ = intraskill("eval", "plan", folder / f"{arm}.yaml", "--runs-dir", training_run.parent)
        assert again["fingerprint"] == plan[arm]["fingerprint"]


def test_the_test_split_needs_the_flag_here_too(training_run, model_server, intraskill):
    words = ("eval", "four-conditions", training_run, "--base-url", model_server.url, "--tasks", 4, "--split", "test")
    code, _, err = intraskill(*words)
    assert (code, "--final-test" in err) == (2, True)
    code, record, _ = intraskill(*words, "--final-test", "--samples", 100, "--quiet")
    assert (code, record["final_test"]) == (0, True)


def test_the_arms_are_the_banks_around_the_training(training_run):
    arms = {arm.name: arm for arm in four_conditions(training_run).arms}
    folder = RunFolder(training_run)
    assert arms["base-s0"].bank == read_bank(folder.round_dir(0) / "skill_bank.json")
    assert arms["final-st"].bank == read_bank(folder.gate_dir(0) / "selected_skill_bank.json")
    assert arms["final-free"].model == str(folder.checkpoint_dir(2))


def test_a_bank_that_lost_all_its_chunks_is_left_out_and_said_so(training_run):
    write_bank(RunFolder(training_run).gate_dir(0) / "selected_skill_bank.json", Bank())
    experiment = four_conditions(training_run)
    assert [arm.name for arm in experiment.arms] == ["base-free", "base-s0", "final-free"]
    assert {c.name for c in experiment.contrasts} == {"internalization", "initial_skills"}
    assert experiment.facts["empty_banks"] == ["final-st"]


def test_a_run_without_a_closed_round_has_nothing_to_compare(training_run):
    RunFolder(training_run).write_state(RunState(step=1, opened=True))
    with pytest.raises(UserError, match="no round is closed"):
        four_conditions(training_run)


def test_ranking_end_to_end(training_run, model_server, intraskill):
    words = ("eval", "ranking", training_run, "--base-url", model_server.url, "--samples", 200, "--tasks", 8, "--quiet")
    code, record, err = intraskill(*words, "--random-seed", 1, "--random-seed", 2)
    assert (code, err) == (0, "")
    assert list(record["arms"]) == ["free", "top-2", "bottom-2", "random-2-seed-1", "random-2-seed-2"]
    assert record["ranked"][0] == "care"
    assert record["subsets"]["top-2"] == record["ranked"][:2]
    assert not {*record["subsets"]["top-2"]} & {*record["subsets"]["bottom-2"]}
    page = (training_run / "evaluations" / "ranking-gate--1-val" / "report.md").read_text()
    assert f"top-2: {', '.join(record['ranked'][:2])}." in page
    assert record["contrasts"][0]["name"] == "top-2 vs bottom-2"
    assert len(record["contrasts"]) == 1 + 2 + 2 + 4
    assert all(arm["checkpoint_id"] == "step-0000-0badc0de" for arm in record["arms"].values())


def test_ranked_chunks_are_those_the_gate_showed(training_run):
    arms = {arm.name: arm for arm in ranking(training_run, -1, 2, [5]).arms}
    shown = {chunk.skill_id: chunk for arm in arms.values() if arm.bank for chunk in arm.bank.chunks}
    for chunk in (CARE, HASTE, CALM, PLUM):
        if chunk.skill_id in shown:
            assert replace(shown[chunk.skill_id], metadata={}) == chunk
    order = [c.skill_id for c in (CARE, HASTE, CALM, PLUM)]
    for arm in arms.values():
        ids = arm.bank.ids if arm.bank else ()
        assert list(ids) == sorted(ids, key=order.index)


def test_a_later_gate_ranks_at_its_own_checkpoint(training_run):
    bank = read_bank(RunFolder(training_run).round_dir(0) / "skill_bank.json")
    if len(bank.chunks) < 2:
        pytest.skip("the first gate left a single chunk")
    experiment = ranking(training_run, 0, 1, [1])
    assert experiment.arms[0].model.endswith("checkpoints/step-0002")


@pytest.mark.parametrize(
    ("options", "says"),
    [({"k": 3}, "choose 1 to 2"), ({"k": 0}, "choose 1 to 2"), ({"gate": 7}, "gate 7 has not been run")],
)
def test_impossible_rankings_are_refused(training_run, options, says):
    with pytest.raises(UserError, match=says):
        ranking(training_run, **{"gate": -1, "k": 2, "random_seeds": [1], **options})


def row(intervention_id, coefficient, family=None):
    return {
        "intervention_id": intervention_id,
        "logical_chunk_id": family or intervention_id,
        "coefficient": coefficient,
    }


def test_ranks_are_signed_one_a_family_and_ties_keep_the_gates_order():
    rows = [row("a", 0.1), row("b", -0.9), row("b2", 0.3, "b"), row("c", 0.1), row("d", -0.5)]
    assert rank({"complete": True, "contributions": rows}, "x") == ["b2", "a", "c", "d"]
    with pytest.raises(UserError, match="not complete"):
        rank({"complete": False, "contributions": []}, "x")


def test_published_ranks_are_reproduced(published_json):
    gate = published_json("gate_round_000.json")
    ranked = rank({"complete": True, **gate}, "x")
    coefficients = {r["intervention_id"]: r["coefficient"] for r in gate["contributions"]}
    assert [coefficients[i] for i in ranked] == sorted((coefficients[i] for i in ranked), reverse=True)
    families = {r["logical_chunk_id"] for r in gate["contributions"]}
    assert len(ranked) == len(families)


def test_a_random_subset_depends_on_its_seed_alone():
    ids = list("abcdefgh")
    assert random_subset(ids, 4, 20260907) == random_subset(ids[::-1], 4, 20260907)
    assert len({tuple(random_subset(ids, 4, seed)) for seed in range(20)}) > 10


def test_weights_that_the_gate_did_not_measure_are_refused(training_run, tiny_model, intraskill, monkeypatch):
    run = json.loads((training_run / "run.json").read_text())
    run["settings"]["policy"]["model"] = str(tiny_model)
    (training_run / "run.json").write_text(json.dumps(run))
    code, _, err = intraskill("eval", "ranking", training_run, "--quiet")
    assert code == 2
    assert "but the gate measured step-0000-0badc0de" in err
