"""The page state machine: what each action does, what is refused and why."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shopsimulator.engine import ShopSession

NORVIK = ("search[norvik]", "click[100000000001]")
MUG = ("search[odd mug]", "click[300000000002]")


@pytest.fixture
def session(make_world) -> ShopSession:
    session = make_world(page_size=2).new_session()
    session.reset(7)
    return session


def play(session: ShopSession, *actions: str) -> dict:
    """The payload after the last action; all of them must be valid."""
    for action in actions:
        payload = session.step(action)
        assert payload["action_feedback"]["valid"], (action, payload["action_feedback"])
    return payload


def state_after(session: ShopSession, *actions: str) -> dict:
    return play(session, *actions)["observation_state"]


def test_a_whole_purchase_earns_the_full_reward(session):
    play(session, *NORVIK, "click[colour=blue]", "click[size=small]")
    end = session.step("click[buy now]")
    assert end["done"] is end["over"] is True
    assert (end["reward"], end["reward_detail"]["r_success"]) == (1.0, 1)
    assert end["termination_reason"] == end["reward_detail"]["termination_reason"] == "purchase"
    assert end["purchase"] == {
        "asin": "100000000001",
        "category": "home›storage›shelf",
        "name": "norvik oak shelf",
        "product_category": "",
        "instruction_text": "a norvik oak shelf in blue under 40",
        "attributes": ["norvik", "oak"],
        "price": 30.0,
        "options": {"colour": "blue", "size": "small"},
    }
    goal = end["goal"]
    assert (goal["asin"], goal["price_upper"], goal["goal_options"]) == ("100000000001", 40.0, ["blue"])
    assert end["observation_state"]["page_type"] == "terminal"
    assert end["observation_state"]["actions"] == []


def test_a_variant_above_the_budget_earns_nothing(session):
    end = play(session, *NORVIK, "click[colour=blue]", "click[size=large]", "click[buy now]")
    assert end["reward"] == end["reward_detail"]["r_price"] == 0.0
    assert end["purchase"]["price"] == 55.0


def test_results_come_in_pages_and_going_back_keeps_the_page(session):
    first = state_after(session, "search[shelf]")
    assert (first["page"], first["total_pages"], first["total_results"]) == (1, 3, 5)
    assert first["actions"][:2] == ["back to search", "next >"]
    second = state_after(session, "click[next >]")
    assert (second["page"], second["rank_start"], second["rank_end"]) == (2, 3, 4)
    assert second["actions"][:3] == ["back to search", "< prev", "next >"]
    back = state_after(session, f"click[{second['products'][0]['asin']}]", "click[< prev]")
    assert back["products"] == second["products"]
    last = state_after(session, "click[next >]")
    assert (len(last["products"]), "next >" in last["actions"]) == (1, False)
    assert state_after(session, "click[< prev]")["page"] == 2


def test_a_search_is_possible_on_the_home_page_only(session):
    assert not state_after(session, "search[shelf]")["search_available"]
    assert session.step("search[lamp]")["action_feedback"]["reason"] == "search_unavailable"
    home = state_after(session, "click[200000000000]", "click[back to search]")
    assert (home["page_type"], home["search_available"], home["actions"]) == ("search_home", True, [])
    assert [row["title"] for row in state_after(session, "search[lamp]")["products"]] == ["twin lamp"]


def test_buying_becomes_clickable_when_every_axis_is_chosen(session):
    state = state_after(session, *NORVIK)
    assert state["missing_option_axes"] == ["colour", "size"]
    assert "buy now" not in state["actions"]
    assert "selected_price" not in state
    refused = session.step("click[buy now]")["action_feedback"]
    assert (refused["reason"], refused["missing_option_axes"]) == ("incomplete_options", ["colour", "size"])
    assert refused["message"] == "Choose these options before buying: colour, size"
    state = state_after(session, "click[size=large]", "click[colour=red]")
    assert state["options_complete"]
    assert state["selected_price"] == 55.0
    assert state["actions"] == ["back to search", "< prev", "buy now", "colour=blue", "size=small"]


def test_a_product_without_axes_can_be_bought_at_once(session):
    session.reset(8)
    state = state_after(session, "search[tarn]", "click[200000000000]")
    assert state["actions"] == ["back to search", "< prev", "buy now"]
    assert play(session, "click[buy now]")["reward_detail"]["r_success"] == 1


def test_an_axis_without_values_makes_a_product_unbuyable(session):
    state = state_after(session, "search[vase]", "click[300000000003]", "click[size=tall]")
    assert (state["missing_option_axes"], state["available_options"]["finish"]) == (["finish"], [])
    assert session.step("click[buy now]")["action_feedback"]["reason"] == "incomplete_options"


def test_another_value_of_an_axis_replaces_the_choice(session):
    state = state_after(session, *NORVIK, "click[colour=red]", "click[colour=blue]")
    assert state["selected_options"] == {"colour": "blue"}
    assert "colour=red" in state["actions"]
    assert "colour=blue" not in state["actions"]


def test_leaving_a_product_forgets_its_choices(session):
    play(session, *NORVIK, "click[colour=red]", "click[< prev]")
    assert state_after(session, "click[100000000001]")["selected_options"] == {}


@pytest.mark.parametrize(
    ("before", "action", "reason", "message"),
    [
        ([], "buy the first one", "invalid_format", "An action must be search[...] or click[...]"),
        ([], "buy[it]", "invalid_format", "An action must be search[...] or click[...]"),
        ([], "search[x", "invalid_format", "An action must be exactly search[...] or click[...]"),
        ([], "", "invalid_format", "An action must not be empty"),
        ([], "search[]", "empty_argument", "The words of search[...] must not be empty"),
        ([], "click", "empty_argument", "The value of click[...] must not be empty"),
        ([], "click[  ]", "empty_argument", "The value of click[...] must not be empty"),
        ([], "search[a] click[b]", "multiple_actions_not_allowed", "One call performs one search[...] or"),
        ([], "click[100000000001]", "unavailable_action", "Nothing on this page is called: 100000000001"),
        ([], "click[buy now]", "unavailable_action", "Nothing on this page is called: buy now"),
        (["search[shelf]"], "click[buy now]", "unavailable_action", "Nothing on this page is called: buy now"),
        (["search[shelf]"], "click[< prev]", "unavailable_action", "Nothing on this page is called: < prev"),
        (["search[shelf]"], "click[ 100000000001]", "unavailable_action", "Nothing on this page is called:"),
        (["search[shelf]"], "search[lamp]", "search_unavailable", "This page offers no search"),
        (["search[shelf]"], "search[ ]", "empty_argument", "The words of search[...] must not be empty"),
        (NORVIK, "click[blue]", "unavailable_action", "Nothing on this page is called: blue"),
        (NORVIK, "click[attributes]", "unavailable_action", "Nothing on this page is called: attributes"),
        ([*NORVIK, "click[colour=red]"], "click[colour=red]", "already_selected", "This option is already chosen:"),
        ([*NORVIK, "click[colour=red]"], "click[buy now]", "incomplete_options", "Choose these options before"),
    ],
)
def test_an_invalid_action_leaves_the_page_and_says_why(session, before, action, reason, message):
    payload = session.reset(7)
    for valid in before:
        payload = session.step(valid)
    was = payload["observation_state"]
    payload = session.step(action)
    now, feedback = payload["observation_state"], payload["action_feedback"]
    assert (feedback["action"], feedback["valid"], feedback["reason"]) == (action, False, reason)
    assert feedback["message"].startswith(message)
    assert now.pop("last_action") == feedback
    was.pop("last_action", None)
    assert now == was
    assert (payload["message"], payload["done"]) == ("Invalid action", False)


def test_an_invalid_action_counts_as_a_step(make_world):
    session = make_world(max_steps=2).new_session()
    session.reset(7)
    assert not session.step("nonsense")["done"]
    assert session.step("nonsense")["termination_reason"] == "action_limit"


def test_every_listed_action_is_valid_on_every_page(make_world):
    session = make_world(page_size=2, max_steps=1000, show_attributes=True).new_session()
    session.reset(7)
    prefixes = [
        ["search[shelf]"],
        ["search[shelf]", "click[next >]"],
        [*NORVIK, "click[colour=red]", "click[size=small]"],
        [*NORVIK, "click[attributes]"],
        ["search[lamp]", "click[300000000001]", "click[base=plain]"],
        list(MUG),
    ]
    for prefix in prefixes:
        session.reset(7)
        actions = state_after(session, *prefix)["actions"]
        assert actions
        for value in actions:
            session.reset(7)
            play(session, *prefix, f"click[{value}]")


def test_a_value_on_two_axes_is_clicked_by_its_axis(session):
    state = state_after(session, "search[lamp]", "click[300000000001]", "click[shade=plain]")
    assert state["selected_options"] == {"shade": "plain"}
    assert state_after(session, "click[base=plain]")["selected_options"] == {"shade": "plain", "base": "plain"}


def test_values_are_offered_as_they_were_changed_at_load_and_axes_as_they_are(session):
    state = state_after(session, *MUG)
    assert state["actions"][2:] == ["Print=back", "Print=buy now", "Print=🦊 [rot]", "Print=s | m"]
    assert state_after(session, "click[Print=🦊 [rot]]")["selected_options"] == {"Print": "🦊 [rot]"}
    assert state_after(session, "click[Print=s | m]")["selected_options"] == {"Print": "s | m"}
    assert session.step("click[Print=S/M]")["action_feedback"]["reason"] == "unavailable_action"
    assert play(session, "click[buy now]")["purchase"]["options"] == {"Print": "s | m"}


def test_the_attributes_page_is_there_if_it_is_switched_on(make_world):
    session = make_world(show_attributes=True).new_session()
    session.reset(7)
    assert "attributes" in state_after(session, *NORVIK)["actions"]
    page = play(session, "click[colour=blue]", "click[size=small]", "click[attributes]")
    state = page["observation_state"]
    assert (state["page_type"], state["actions"]) == ("information_subpage", ["back to search", "< prev"])
    assert (state["subpage"], state["content"]) == ("Attributes", ["norvik", "oak"])
    assert page["observation"].startswith("Page: product attributes\nProduct:\n- Title: norvik oak shelf\n")
    assert 'Subpage: Attributes\nContent: ["norvik", "oak"]\n' in page["observation"]
    assert session.step("click[buy now]")["action_feedback"]["message"] == "This page has no button to buy"
    back = state_after(session, "click[< prev]")
    assert (back["page_type"], back["selected_options"]) == ("product_detail", {"colour": "blue", "size": "small"})


def test_a_search_without_hits_is_valid_and_empty(session):
    state = state_after(session, "search[zzzz]")
    assert (state["products"], state["actions"]) == ([], ["back to search"])
    assert (state["total_pages"], state["rank_start"], state["rank_end"]) == (1, 0, 0)


def test_special_queries_show_a_category_or_products_at_random(session, make_world):
    assert state_after(session, "search[<c> home›light›lamp]")["products"][0]["title"] == "twin lamp"
    session.reset(7)
    assert state_after(session, "search[<c> home]")["products"] == []
    session.reset(7)
    shown = state_after(session, "search[<r>]")
    assert shown["total_results"] == 8
    other = make_world(page_size=2).new_session()
    other.reset(8)
    assert state_after(other, "search[<r>]")["products"] == shown["products"]


def test_hits_are_cut_at_the_setting(make_world):
    session = make_world(max_hits=3, page_size=2).new_session()
    session.reset(7)
    assert state_after(session, "search[shelf]")["total_results"] == 3


def test_sessions_of_one_world_do_not_disturb_each_other(make_world):
    world = make_world()
    one, two = world.new_session(), world.new_session()
    one.reset(7)
    two.reset(8)
    one.step("search[lamp]")
    shown = two.step("search[shelf]")["observation_state"]
    assert shown["total_results"] == 5
    for product in shown["products"]:
        product["key_attributes"].clear()
        product.clear()
    state = one.step("click[300000000001]")["observation_state"]
    for part in (state["product"], state["available_options"], state["actions"], state["last_action"]):
        part.clear()
    assert one.step("click[base=gold]")["action_feedback"]["valid"]
    two.reset(8)
    assert two.step("search[norvik]")["observation_state"]["products"][0]["key_attributes"] == ["norvik", "oak"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), rendering=st.sampled_from(["full", "compact"]))
def test_whatever_is_done_the_page_keeps_its_promises(make_world, data, rendering):
    session = make_world(page_size=2, max_steps=12, rendering=rendering).new_session()
    payload = session.reset(7)
    for _ in range(12):
        before = payload["observation_state"]
        listed = [f"click[{value}]" for value in before["actions"]]
        listed += ["search[shelf]", "search[lamp mug]"] * before["search_available"]
        action = data.draw(st.one_of(st.sampled_from(listed), st.text(max_size=8), st.just("click[colour=red]")))
        payload = session.step(action)
        state, feedback = payload["observation_state"], payload["action_feedback"]
        assert feedback["valid"] == (feedback["reason"] == "executed")
        assert feedback["valid"] or action not in listed
        assert state["last_action"] == feedback
        assert len(set(state["actions"])) == len(state["actions"])
        if product := state.get("product"):
            assert ("buy now" in state["actions"]) == state["options_complete"]
            assert {*state["missing_option_axes"], *state["selected_options"]} == set(state["available_options"])
            assert set(state["missing_option_axes"]).isdisjoint(state["selected_options"])
            assert product["title"] in payload["observation"]
        for value in state["actions"]:
            assert value in payload["observation"]
        if payload["done"]:
            assert payload["termination_reason"] in ("purchase", "action_limit")
            break
    else:
        pytest.fail("the budget did not end the episode")
