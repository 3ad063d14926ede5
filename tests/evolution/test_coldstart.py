"""The cold start: two channels to one draft, two gates, and what is refused on the way."""

import io
import json
import shutil
from dataclasses import replace

import pytest

from intraskill.core.errors import UserError
from intraskill.core.progress import Reporter
from intraskill.evolution.cards import Lesson
from intraskill.evolution.coldstart import ColdStart, draft_clusters
from intraskill.evolution.history import Event, bank_difference, bank_history, banks_of
from intraskill.families.analysis import Abstraction, no_proposal
from intraskill.families.shop.analysts.rules import RulesAnalyst
from intraskill.families.shop.mechanisms import ShopMechanisms
from intraskill.settings.models import AnalystSettings
from intraskill.skills.bank import Bank, read_bank, write_bank
from intraskill.storage.documents import read_json, write_json_atomic
from intraskill.storage.jsonl import JsonlLog


@pytest.fixture
def cold(make_runner, world, settings):
    def make(path, policy=None, **changes):
        runner = make_runner(policy)
        changed, reporter = settings.model_copy(update=changes), Reporter(quiet=True)
        return ColdStart(changed, path, runner, world, world.evolution(), "step-0000-scripted", reporter)

    return make


@pytest.fixture
def analyst(analyst_world):
    return RulesAnalyst(analyst_world)


def lesson(number, channel, mechanism):
    text = Abstraction(mechanism, mechanism, f"{mechanism} open", (f"use the {mechanism}",))
    return Lesson(f"card-{number}", channel, "ADD", None, text)


async def test_from_episodes_to_a_gated_bank(cold, analyst, tmp_path, world):
    start = cold(tmp_path)
    counts = await start.analyze(analyst, 120)
    assert counts["success"]["cards"] + counts["failure"]["cards"] == 120
    assert counts["failure"]["proposals"] > 0
    start.compile()
    draft = read_bank(tmp_path / "draft_bank.json")
    assert draft.draft_only
    assert 1 <= len(draft.chunks) <= 16
    assert all(chunk.skill_id.startswith("chunk-") for chunk in draft.chunks)
    record = await start.gate()
    selected = read_bank(tmp_path / "selected_skill_bank.json")
    assert not selected.draft_only
    assert list(selected.ids) == record["selected"]
    assert all(chunk.contribution > 0 for chunk in selected.chunks)
    assert {chunk.contribution_checkpoint for chunk in selected.chunks} <= {"step-0000-scripted"}
    assert record["gate_b"] is None
    assert not (tmp_path / "gate_b").exists()


async def test_the_test_split_is_played_behind_its_flag_only(cold, analyst, tmp_path, world):
    start = cold(tmp_path)
    await start.analyze(analyst, 120)
    start.compile()
    record = await start.gate(final_test=True)
    comparison = read_json(tmp_path / "gate_b" / "comparison.json")
    assert comparison["success"]["n"] == len(world.splits().test)
    assert record["gate_b"]["reward"]["ci"] == comparison["reward"]["ci"]
    before = read_bank(tmp_path / "selected_skill_bank.json")
    assert before.sha256 == comparison["bank_sha256"]
    played = {str(row["job"]["task_id"]) for row in JsonlLog(tmp_path / "episodes.jsonl").read()}
    assert played <= set(world.splits().train)


async def test_training_refuses_the_draft_and_takes_the_gated_bank(cold, analyst, make_driver, world, tmp_path):
    from intraskill.training.driver import RoundDriver
    from intraskill.training.open_run import check_run

    start = cold(tmp_path / "cold")
    await start.analyze(analyst, 120)
    start.compile()
    draft = read_bank(tmp_path / "cold" / "draft_bank.json")
    driver = make_driver(tmp_path / "run")
    with pytest.raises(UserError, match="is a draft"):
        check_run(driver.run.settings, world.splits(), draft)
    await start.gate()
    gated = read_bank(tmp_path / "cold" / "selected_skill_bank.json")
    again = RoundDriver(replace(driver.run, bank=gated))
    again.checkpoint = "step-0000-scripted"
    await again.open()
    assert again.round.bank.ids == gated.ids
    assert not driver.run.folder.gate_dir(-1).exists()  # measured at this very checkpoint: no gate before step 1


async def test_a_stopped_cold_start_continues(cold, analyst, page_policy, killed, tmp_path):
    whole = cold(tmp_path / "whole")
    await whole.analyze(analyst, 60)
    with pytest.raises(killed):
        await cold(tmp_path / "cut", page_policy(fail_after=100)).analyze(analyst, 60)
    await cold(tmp_path / "cut").analyze(analyst, 60)
    cards = [(tmp_path / name / "cards.jsonl").read_bytes() for name in ("whole", "cut")]
    assert cards[0] == cards[1]


async def test_stages_out_of_order_and_other_settings_are_refused(cold, tmp_path):
    start = cold(tmp_path)
    with pytest.raises(UserError, match="no cards yet"):
        start.compile()
    with pytest.raises(UserError, match="no draft yet"):
        await start.gate()
    with pytest.raises(UserError, match="other settings"):
        cold(tmp_path, seed=7)


async def test_a_gate_never_mixes_episodes_of_two_drafts(cold, analyst, tmp_path):
    start = cold(tmp_path, analyst=AnalystSettings(min_cards=1))
    await start.analyze(analyst, 20)
    start.compile()
    await start.gate(final_test=True)
    masked = (tmp_path / "gate_a" / "masked.jsonl").read_bytes()
    await start.analyze(analyst, 120)
    start.compile()
    with pytest.raises(UserError, match="gate_a measured another bank than this one; move it away"):
        await start.gate()
    assert (tmp_path / "gate_a" / "masked.jsonl").read_bytes() == masked
    (tmp_path / "gate_a").rename(tmp_path / "gate_a.first")
    assert len((await start.gate())["selected"]) > 1
    with pytest.raises(UserError, match="gate_b measured another bank"):
        await start.gate(final_test=True)


async def test_each_channel_may_have_its_analyst(cold, analyst, tmp_path):
    class Reader:
        name = "llm"

        async def analyse(self, case):
            assert case.channel == "failure"
            return no_proposal(case, self.name, "read")

        async def close(self):
            pass

    start = cold(tmp_path)
    for _ in range(2):  # the second time, every card is there
        counts = await start.analyze(Reader(), 150, analyst)
        assert counts["failure"]["cards"] + counts["success"]["cards"] == 150
    cards = JsonlLog(tmp_path / "cards.jsonl").read()
    assert {(card["channel"], card["analyst"]) for card in cards} == {("failure", "llm"), ("success", "rules")}


def test_channels_are_clustered_apart_and_aligned_by_mechanism():
    lessons = [lesson(1, "failure", "brand"), lesson(2, "success", "brand"), lesson(3, "success", "colour")]
    found = {cluster.mechanism: cluster for cluster in draft_clusters(lessons, ShopMechanisms())}
    assert found["brand"].cards == ("card-1", "card-2")
    assert {item.channel for item in found["brand"].lessons} == {"failure", "success"}
    assert found["colour"].cards == ("card-3",)


async def test_nothing_private_reaches_the_draft(cold, analyst, tmp_path, world):
    start = cold(tmp_path)
    await start.analyze(analyst, 120)
    start.compile()
    text = (tmp_path / "draft_bank.json").read_text() + (tmp_path / "candidates.json").read_text()
    for product in world.catalog.products.values():
        assert product.asin not in text
        assert product.title not in text


def run_folder(tmp_path, skills):
    """A run folder with one gate, as a round leaves it."""
    new = Bank(skills.chunks[:2])
    write_bank(tmp_path / "rounds/round-000/skill_bank.json", skills)
    gate = tmp_path / "rounds/round-000/gate"
    rows = [
        {"intervention_id": "recent", "kind": "current", "operation": None, "coefficient": 0.2, "status": "selected"},
        {
            "intervention_id": "colour",
            "kind": "current",
            "operation": None,
            "coefficient": 0.1,
            "status": "rewrite_loser",
        },
        {
            "intervention_id": "online-1",
            "kind": "candidate",
            "operation": "REWRITE",
            "coefficient": 0.3,
            "status": "selected",
            "logical_chunk_id": "colour",
        },
        {"intervention_id": "budget", "kind": "current", "operation": None, "coefficient": -0.1, "status": "retired"},
        {
            "intervention_id": "online-2",
            "kind": "candidate",
            "operation": "ADD",
            "coefficient": 0.0,
            "status": "non_positive",
        },
    ]
    for row in rows:
        row |= {"standard_error": 0.05, "title": row["intervention_id"]}
        row.setdefault("logical_chunk_id", row["intervention_id"])
    heading = {"round": 0, "step": 5, "observations": 400}
    write_json_atomic(gate / "contributions.json", {"complete": True, "contributions": rows} | heading)
    write_bank(gate / "selected_skill_bank.json", new)
    row = {
        "round": 0,
        "candidate_id": "online-1",
        "operation": "ADD",
        "family": "online-1",
        "cards": ["card-1", "card-2"],
    }
    JsonlLog(tmp_path / "ledger.jsonl").append(row | {"text_key": "0", "result": "selected"})
    return tmp_path


def test_history_tells_who_came_and_who_left_and_why(tmp_path, skills):
    events = {event.text: event for event in bank_history(run_folder(tmp_path, skills))}
    assert [event.event for event in events.values()] == ["kept", "replaced", "rewritten", "left", "turned down"]
    assert events["online-1"].chunk == "colour"
    assert events["online-1"].cards == 2
    assert events["budget"].why == "it does not help"
    assert events["recent"].interval == pytest.approx((0.102, 0.298), abs=1e-3)


def test_a_rewritten_chunk_keeps_the_evidence_of_its_text(tmp_path, skills):
    path = run_folder(tmp_path, skills)
    later = path / "rounds/round-001/gate"
    shutil.copytree(path / "rounds/round-000/gate", later)
    gate = read_json(later / "contributions.json")
    kept = {**gate["contributions"][0], "intervention_id": "colour", "logical_chunk_id": "colour"}
    write_json_atomic(later / "contributions.json", {**gate, "round": 1, "contributions": [kept]})
    assert [(e.event, e.cards) for e in bank_history(path) if e.text == "colour"] == [("replaced", 0), ("kept", 2)]


def test_a_gate_completed_too_late_is_told_as_such(tmp_path, skills):
    path = run_folder(tmp_path, skills)
    write_bank(path / "rounds/round-001/skill_bank.json", skills)
    events = {event.text: event for event in bank_history(path)}
    assert [event.event for event in events.values()] == ["kept", *["not taken up"] * 3, "turned down"]
    assert events["budget"].coefficient == -0.1
    write_bank(path / "rounds/round-001/skill_bank.json", Bank(skills.chunks[:2]))
    assert "not taken up" not in {event.event for event in bank_history(path)}


def test_banks_of_a_run_and_their_difference(tmp_path, skills):
    banks = banks_of(run_folder(tmp_path, skills))
    assert sorted(banks) == [0, 1]
    assert bank_difference(banks[0], banks[1]) == {
        "added": [],
        "removed": ["budget"],
        "rewritten": [],
        "unchanged": ["recent", "colour"],
    }


def test_bank_commands(tmp_path, skills, capsys):
    from intraskill.cli import main

    run = str(run_folder(tmp_path, skills))
    for arguments in (["show", run], ["show", "builtin:s0-no-colour"], ["diff", run], ["history", run]):
        with pytest.raises(SystemExit) as stop:
            main(["bank", *arguments])
        assert stop.value.code == 0
        assert capsys.readouterr().out.strip()
    with pytest.raises(SystemExit):
        main(["bank", "diff", "builtin:s0", "builtin:s0-no-colour", "--json"])
    assert json.loads(capsys.readouterr().out)["removed"] == ["own-colour"]
    with pytest.raises(SystemExit) as stop:
        main(["bank", "show", run, "--round", "9"])
    assert stop.value.code == 2
    assert "round 9 has no bank" in capsys.readouterr().err
    for arguments, message in (
        (["diff", "builtin:s0"], "name a second bank"),
        (["diff", "/none"], "name a second bank"),
        (["history", "/none"], "no such run folder"),
        (["history", "builtin:s0"], "no such run folder"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["bank", *arguments])
        assert stop.value.code == 2
        assert message in capsys.readouterr().err


def test_an_incomplete_gate_is_told_as_such(tmp_path, skills):
    path = run_folder(tmp_path, skills) / "rounds/round-000/gate/contributions.json"
    row = {
        "intervention_id": "recent",
        "kind": "current",
        "operation": None,
        "logical_chunk_id": "recent",
        "title": "t",
    }
    heading = {"round": 0, "step": 5, "observations": 400}
    write_json_atomic(path, {"complete": False, "contributions": [row]} | heading)
    (event,) = bank_history(tmp_path)
    assert (event.event, event.coefficient) == ("not measured", None)


def test_the_history_fits_80_columns(tmp_path, skills):
    from rich.console import Console

    from intraskill.commands.bank import _history_table

    new = Event("recent", "online-0123456789abcdef", 0, 20, "turned down", 0.1, (-0.1, 0.3), 3, "another one", "t")
    added = Event(
        "online-0123456789abcdee", "online-0123456789abcdee", 1, 40, "added", 0.1, (0.0, 0.2), 3, "", "A title"
    )
    console = Console(file=io.StringIO(), width=80)
    console.print(_history_table([new, added]))
    lines = [line.strip() for line in console.file.getvalue().splitlines()]
    assert "(online-0123456789abcdef)" in " ".join(lines)
    assert any(line.startswith("online-0123456789abcdee") and line.endswith("added: A title") for line in lines)
    assert [line for line in lines if ", step " in line] == ["round 0, step 20", "round 1, step 40"]
