"""Episodes from reset to end: what a reset tells, how an episode ends, and what stays private until then."""

from __future__ import annotations

import json

import pytest
from shopsimulator.engine import ShopSession
from shopsimulator.errors import EpisodeOver, ShopError, UnknownTask


@pytest.fixture
def session(make_world) -> ShopSession:
    session = make_world(page_size=2).new_session()
    session.reset(7)
    return session


def test_a_persona_shows_the_simple_instruction_only_where_it_is_asked_for(make_world):
    session = make_world().new_session()
    personal = session.reset(7, if_persona=True)
    assert (personal["task_instruction"], personal["task_mode"]) == ("a shelf in my colour under 40", "persona")
    plain = session.reset(7)
    assert (plain["task_instruction"], plain["task_mode"]) == ("a norvik oak shelf in blue under 40", "standard")
    assert plain["user_persona"] == personal["user_persona"] == {"用户ID": "U1", "用户标签": ["blue"]}
    without = session.reset(8, if_persona=True)
    assert (without["task_instruction"], without["task_mode"]) == ("a tarn pine shelf", "persona")
    assert without["user_persona"] == {}


def test_a_reset_says_what_was_started(make_world):
    payload = make_world().new_session(slot=3).reset(7)
    assert payload["message"] == "Task 7 started"
    assert (payload["env_idx"], payload["idx"], payload["interaction_mode"]) == (3, 7, "single_turn")
    assert payload["environment_version"] == "shopsimulator-paper-aligned-v8"
    assert "last_action" not in payload["observation_state"]


def test_the_step_that_uses_up_the_budget_returns_the_zero_reward_terminal(make_world):
    session = make_world(max_steps=2).new_session()
    session.reset(7)
    assert not session.step("search[shelf]")["done"]
    end = session.step("click[100000000001]")
    assert (end["done"], end["reward"], end["termination_reason"]) == (True, 0.0, "action_limit")
    assert end["reward_detail"]["r_success"] == 0
    assert end["purchase"] == {}
    assert end["goal"]["asin"] == "100000000001"
    assert end["observation_state"]["page_type"] == "product_detail"


def test_each_interaction_mode_has_its_limit(make_world):
    session = make_world(max_steps=1, max_steps_multi_turn=2).new_session()
    session.reset(7, interaction_mode="multi_turn")
    assert not session.step("x")["done"]
    assert session.step("x")["done"]
    with pytest.raises(ShopError, match="single_turn, multi_turn"):
        session.reset(7, interaction_mode="chat")


def test_a_purchase_with_the_last_step_counts(make_world):
    session = make_world(max_steps=3).new_session()
    session.reset(8)
    for action in ("search[tarn]", "click[200000000000]", "click[buy now]"):
        payload = session.step(action)
    assert payload["termination_reason"] == "purchase"


@pytest.mark.parametrize("reason", ["action_limit", "generation_length"])
def test_terminate_is_a_zero_reward_terminal_that_leaves_the_page(session, reason):
    was = session.step("search[shelf]")["observation_state"]
    end = session.terminate(reason)
    assert (end["done"], end["reward"], end["termination_reason"]) == (True, 0.0, reason)
    assert end["message"] == f"Episode terminated: {reason}"
    assert "action_feedback" not in end
    assert end["observation_state"] == was


def test_after_the_end_everything_but_reset_is_an_error(session):
    session.terminate("action_limit")
    with pytest.raises(EpisodeOver, match="over"):
        session.step("search[shelf]")
    with pytest.raises(EpisodeOver):
        session.terminate("action_limit")
    session.reset(7)
    assert session.step("search[shelf]")["action_feedback"]["valid"]


def test_misuse_is_named(make_world):
    session = make_world().new_session()
    with pytest.raises(EpisodeOver, match="reset"):
        session.step("search[shelf]")
    with pytest.raises(UnknownTask, match="999"):
        session.reset(999)
    session.reset(7)
    with pytest.raises(ShopError, match="action_limit"):
        session.terminate("purchase")


def test_interact_takes_the_action_out_of_a_whole_answer(session):
    payload = session.interact("Thought: look around\\nAction: search[shelf]")
    assert payload["action_feedback"]["action"] == "search[shelf]"
    assert payload["action_feedback"]["valid"]


def test_nothing_private_is_told_before_the_end(make_world):
    session = make_world().new_session()
    payloads = [session.reset(7, if_persona=True)]
    for action in ["search[shelf]", "click[200000000001]", "click[< prev]", "oops"]:
        payloads.append(session.step(action))
    for payload in payloads:
        assert not payload.get("goal")
        assert not payload.get("reward_detail")
        text = json.dumps(payload, ensure_ascii=False)
        assert "a norvik oak shelf in blue under 40" not in text  # the full instruction
        assert "goal_options" not in text
        assert "price_upper" not in text


def test_the_reasoning_behind_a_persona_is_told_to_nobody(make_world):
    session = make_world().new_session()
    payloads = [session.reset(7, if_persona=True, include_private_goal=True), session.terminate("action_limit")]
    assert "made up for task 7" not in json.dumps(payloads)


def test_the_private_goal_is_told_on_request(make_world):
    payload = make_world().new_session().reset(7, if_persona=True, include_private_goal=True)
    assert payload["private_task_instruction"] == "a norvik oak shelf in blue under 40"
    assert (payload["goal_options"], payload["reason_key"]) == (["blue"], None)


def test_identity_names_everything_that_decides_an_episode(make_world, shop_records):
    identity = make_world().identity()
    changes = (
        {"page_size": 3},
        {"rendering": "compact"},
        {"max_steps": 9},
        {"max_steps_multi_turn": 9},
        {"max_hits": 10},
        {"show_attributes": True},
        {"budget_version": "instruction-budget-v2"},
    )
    for change in changes:
        assert make_world(**change).identity() != identity
    assert make_world(records=shop_records[:-1]).identity() != identity
    assert identity["title_terms"] in ("lexical", "zh_core_web_sm")
