"""The page state machine: what each action does, what is refused and why, and how an episode ends."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shopsimulator.engine import ShopSession
from shopsimulator.errors import EpisodeOver, ShopError, UnknownTask


@pytest.fixture
def session(make_world) -> ShopSession:
    session = make_world(page_size=2, max_steps=30).new_session()
    session.reset(7)
    return session


def play(session: ShopSession, *actions: str) -> dict:
    """The payload after the last action; all of them must be valid."""
    for action in actions:
        payload = session.step(action)
        assert payload["action_feedback"]["valid"], (action, payload["action_feedback"])
    return payload


def test_reset_shows_the_simple_instruction_with_the_persona_and_the_full_one_without(make_world):
    session = make_world().new_session()
    personal = session.reset(7)
    assert personal["task_instruction"] == "a shelf in my colour under 40"
    assert personal["user_persona"]["用户ID"] == "U1"
    plain = session.reset(7, include_persona=False)
    assert plain["task_instruction"] == "a norvik oak shelf in blue under 40"
    assert plain["user_persona"] is None
    assert session.reset(8)["task_mode"] == plain["task_mode"] != personal["task_mode"]


def test_a_whole_purchase_earns_the_full_reward(session):
    play(session, "search[norvik shelf]", "click[100000000001]", "click[blue]", "click[small]")
    end = session.step("click[buy now]")
    assert end["done"] is end["over"] is True
    assert (end["reward"], end["reward_detail"]["r_success"]) == (1.0, 1)
    assert end["termination_reason"] == "purchase"
    assert end["purchase"] == {
        "asin": "100000000001",
        "title": "norvik oak shelf",
        "options": {"colour": "blue", "size": "small"},
        "price": 30.0,
    }
    assert end["goal"] == {"asin": "100000000001", "attributes": ["norvik"], "options": ["blue"], "price_upper": 40.0}
    assert end["observation_state"]["page"] == "done"
    assert end["observation_state"]["actions"] == []


def test_a_variant_above_the_budget_earns_nothing(session):
    end = play(session, "search[norvik]", "click[100000000001]", "click[blue]", "click[large]", "click[buy now]")
    assert end["reward"] == 0.0
    assert end["purchase"]["price"] == 55.0


def test_results_come_in_pages_and_going_back_keeps_the_page(session):
    first = play(session, "search[shelf]")["observation_state"]
    assert (first["page_index"], first["page_count"], first["total_results"]) == (0, 3, 5)
    assert "next page" in first["actions"]
    assert "previous page" not in first["actions"]
    second = play(session, "click[next page]")["observation_state"]
    assert second["page_index"] == 1
    assert {row["asin"] for row in first["results"]}.isdisjoint(row["asin"] for row in second["results"])
    back = play(session, f"click[{second['results'][0]['label']}]", "click[back to results]")["observation_state"]
    assert back["results"] == second["results"]
    last = play(session, "click[next page]")["observation_state"]
    assert len(last["results"]) == 1
    assert "next page" not in last["actions"]
    assert play(session, "click[previous page]")["observation_state"]["page_index"] == 1


def test_a_new_search_is_possible_from_results_but_not_from_a_product(session):
    assert play(session, "search[shelf]")["observation_state"]["search_available"]
    state = play(session, "search[lamp]")["observation_state"]
    assert [row["title"] for row in state["results"]] == ["twin lamp"]
    assert not play(session, "click[300000000001]")["observation_state"]["search_available"]
    assert session.step("search[shelf]")["action_feedback"]["code"] == "search_unavailable"


def test_buying_becomes_clickable_when_every_axis_is_chosen(session):
    state = play(session, "search[norvik]", "click[100000000001]")["observation_state"]
    assert state["missing_option_axes"] == ["colour", "size"]
    assert "buy now" not in state["actions"]
    state = play(session, "click[red]")["observation_state"]
    assert (state["missing_option_axes"], state["options_complete"]) == (["size"], False)
    refused = session.step("click[buy now]")
    assert refused["action_feedback"]["code"] == "incomplete_options"
    assert "size" in refused["action_feedback"]["message"]
    state = play(session, "click[large]")["observation_state"]
    assert state["options_complete"]
    assert "buy now" in state["actions"]
    assert state["price"] == 55.0


def test_a_product_without_axes_can_be_bought_at_once(session):
    session.reset(8)
    state = play(session, "search[tarn]", "click[200000000000]")["observation_state"]
    assert state["actions"] == ["back to results", "buy now"]
    assert play(session, "click[buy now]")["reward_detail"]["r_success"] == 1


def test_another_value_of_an_axis_replaces_the_choice(session):
    play(session, "search[norvik]", "click[100000000001]", "click[red]")
    state = play(session, "click[blue]")["observation_state"]
    assert state["selected_options"] == {"colour": "blue"}
    assert "red" in state["actions"]
    assert "blue" not in state["actions"]


def test_leaving_a_product_forgets_its_choices(session):
    play(session, "search[norvik]", "click[100000000001]", "click[red]", "click[back to results]")
    assert play(session, "click[100000000001]")["observation_state"]["selected_options"] == {}


@pytest.mark.parametrize(
    ("before", "action", "code"),
    [
        ([], "buy the first one", "invalid_format"),
        ([], "search[]", "invalid_format"),
        ([], "click[  ]", "invalid_format"),
        ([], "", "invalid_format"),
        ([], "search[shelf] click[1]", "invalid_format"),
        ([], "click[100000000001]", "not_clickable"),
        (["search[shelf]"], "click[buy now]", "not_clickable"),
        (["search[shelf]"], "click[previous page]", "not_clickable"),
        (["search[norvik]", "click[100000000001]"], "search[shelf]", "search_unavailable"),
        (["search[norvik]", "click[100000000001]"], "click[green]", "not_clickable"),
        (["search[norvik]", "click[100000000001]"], "click[next page]", "not_clickable"),
        (["search[norvik]", "click[100000000001]", "click[red]"], "click[red]", "already_selected"),
        (["search[norvik]", "click[100000000001]", "click[red]"], "click[buy now]", "incomplete_options"),
    ],
)
def test_an_invalid_action_leaves_the_page_counts_as_a_step_and_says_why(make_world, before, action, code):
    session = make_world(max_steps=30).new_session()
    payload = session.reset(7)
    for valid in before:
        payload = session.step(valid)
    was = payload["observation_state"]
    payload = session.step(action)
    now = payload["observation_state"]
    assert payload["action_feedback"]["code"] == code
    assert payload["action_feedback"]["message"]
    assert now["last_action"] == {"action": action, "valid": False, "code": code}
    assert now["step"] == was["step"] + 1
    unchanged = [key for key in was if key not in ("step", "last_action")]
    assert {key: now[key] for key in unchanged} == {key: was[key] for key in unchanged}
    assert payload["observation"].startswith(("[" + code, code))
    assert not payload["done"]


def test_every_listed_action_is_valid_on_every_page(make_world):
    world = make_world(page_size=2, max_steps=1000)
    session = world.new_session()
    session.reset(7)
    prefixes = [
        ["search[shelf]"],
        ["search[shelf]", "click[next page]"],
        ["search[norvik]", "click[100000000001]", "click[red]", "click[small]"],
        ["search[lamp]", "click[300000000001]", "click[plain]"],
        ["search[mug]", "click[300000000002]"],
    ]
    for prefix in prefixes:
        session.reset(7)
        actions = play(session, *prefix)["observation_state"]["actions"]
        assert actions
        for value in actions:
            session.reset(7)
            play(session, *prefix, f"click[{value}]")


def test_a_value_on_two_axes_reaches_every_combination(session):
    play(session, "search[lamp]", "click[300000000001]")
    state = play(session, "click[plain]")["observation_state"]
    assert state["selected_options"] == {"base": "plain"}
    state = play(session, "click[plain]")["observation_state"]
    assert state["selected_options"] == {"base": "plain", "shade": "plain"}
    assert session.step("click[plain]")["action_feedback"]["code"] == "already_selected"
    state = play(session, "click[gold]")["observation_state"]
    assert state["selected_options"] == {"base": "gold", "shade": "plain"}


def test_options_named_like_buttons_can_be_chosen_and_the_buttons_still_work(session):
    play(session, "search[mug]", "click[300000000002]")
    state = play(session, "click[buy now]")["observation_state"]
    assert state["selected_options"] == {"print": "buy now"}
    assert play(session, "click[buy now]")["purchase"]["options"] == {"print": "buy now"}


def test_values_with_brackets_and_emoji_are_clicked_as_written(session):
    play(session, "search[odd mug]", "click[300000000002]")
    state = play(session, "click[🦊 [rot]]")["observation_state"]
    assert state["selected_options"] == {"print": "🦊 [rot]"}


def test_a_search_without_hits_is_valid_and_empty(session):
    payload = play(session, "search[zzzz]")
    assert payload["observation_state"]["results"] == []
    assert payload["observation_state"]["actions"] == []
    assert payload["observation_state"]["search_available"]


def test_the_step_that_uses_up_the_budget_returns_the_zero_reward_terminal(make_world):
    session = make_world(max_steps=3).new_session()
    session.reset(7)
    assert not session.step("search[shelf]")["done"]
    assert not session.step("nonsense")["done"]
    end = session.step("click[100000000001]")
    assert (end["done"], end["reward"], end["termination_reason"]) == (True, 0.0, "action_limit")
    assert end["reward_detail"]["r_success"] == 0
    assert end["purchase"] is None
    assert end["goal"]["asin"] == "100000000001"


def test_a_purchase_with_the_last_step_counts(make_world):
    session = make_world(max_steps=3).new_session()
    session.reset(8)
    assert play(session, "search[tarn]", "click[200000000000]", "click[buy now]")["termination_reason"] == "purchase"


@pytest.mark.parametrize("reason", ["action_limit", "generation_length"])
def test_terminate_is_a_zero_reward_terminal(session, reason):
    end = session.terminate(reason)
    assert (end["done"], end["reward"], end["termination_reason"]) == (True, 0.0, reason)
    assert end["observation_state"]["page"] == "done"


def test_after_the_end_everything_but_reset_is_an_error(session):
    session.terminate("action_limit")
    with pytest.raises(EpisodeOver, match="over"):
        session.step("search[shelf]")
    with pytest.raises(EpisodeOver):
        session.terminate("action_limit")
    assert session.reset(7)["observation_state"]["step"] == 0
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


def test_nothing_private_is_told_before_the_end(make_world):
    session = make_world().new_session()
    payloads = [session.reset(7)]
    for action in ["search[shelf]", "click[200000000001]", "click[back to results]", "oops"]:
        payloads.append(session.step(action))
    for payload in payloads:
        assert "goal" not in payload
        assert not payload.get("reward_detail")
        text = json.dumps(payload, ensure_ascii=False)
        assert "a norvik oak shelf in blue under 40" not in text  # the full instruction
        assert "instruction_options" not in text
        assert "price_upper" not in text


def test_identity_names_everything_that_decides_an_episode(make_world, shop_records):
    identity = make_world().identity()
    for change in ({"page_size": 3}, {"rendering": "compact"}, {"max_steps": 9}, {"max_hits": 10}):
        assert make_world(**change).identity() != identity
    assert make_world(records=shop_records[:-1]).identity() != identity
    assert identity["environment"] == "shopsimulator-paper-aligned-v8"


def test_sessions_of_one_world_do_not_disturb_each_other(make_world):
    world = make_world()
    one, two = world.new_session(), world.new_session()
    one.reset(7)
    two.reset(8)
    one.step("search[lamp]")
    assert two.step("search[shelf]")["observation_state"]["total_results"] == 5
    state = one.step("click[300000000001]")["observation_state"]
    state["product"]["options"].clear()
    state["actions"].clear()
    assert one.step("click[gold]")["action_feedback"]["valid"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), rendering=st.sampled_from(["full", "compact"]))
def test_whatever_is_done_the_page_keeps_its_promises(make_world, data, rendering):
    session = make_world(page_size=2, max_steps=12, rendering=rendering).new_session()
    payload = session.reset(7)
    for step in range(1, 13):
        before = payload["observation_state"]
        clicks = [f"click[{value}]" for value in before["actions"]]
        searches = ["search[shelf]", "search[lamp mug]"]
        listed = clicks + searches * before["search_available"]
        action = data.draw(
            st.one_of(st.sampled_from(listed or ["search[x]"]), st.text(max_size=8), st.just("click[red]"))
        )
        payload = session.step(action)
        state, feedback = payload["observation_state"], payload["action_feedback"]
        assert feedback["valid"] == (feedback["code"] == "ok")
        assert feedback["valid"] or action not in listed
        assert state["step"] == step
        assert len(set(state["actions"])) == len(state["actions"])
        product, buy = state["product"], "buy" if rendering == "compact" else "buy now"
        assert (buy in state["actions"]) >= (product is not None and state["options_complete"])
        if product is not None:
            assert set(state["missing_option_axes"]).isdisjoint(state["selected_options"])
            assert {*state["missing_option_axes"], *state["selected_options"]} == set(product["options"])
        if payload["done"]:
            assert payload["termination_reason"] in ("purchase", "action_limit")
            break
    else:
        pytest.fail("the budget did not end the episode")
