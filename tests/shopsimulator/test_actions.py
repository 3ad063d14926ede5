"""The grammar of actions: what is one, what is none, and why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shopsimulator.actions import NotAnAction, extract_action, parse_action


@pytest.mark.parametrize(
    ("response", "action"),
    [
        ("search[shoe]", "search[shoe]"),
        ("  search[shoe] ", "search[shoe]"),
        ("Thought: look first.\nAction: search[shoe]", "search[shoe]"),
        ("thought\n  ACTION : click[buy now]  \nmore", "click[buy now]"),
        ("Thought: a\\nAction: search[shoe]", "search[shoe]"),
        ("Action: search[a]\nAction: search[b]", "Action: search[a]\nAction: search[b]"),
        ("My Action: search[a]", "My Action: search[a]"),
    ],
)
def test_the_action_is_what_follows_the_only_label(response, action):
    assert extract_action(response) == action


@pytest.mark.parametrize(
    ("text", "verb", "argument"),
    [
        ("search[shoe]", "search", "shoe"),
        (" SEARCH [shoe] ", "SEARCH", "shoe"),
        ("click[a[b]c]", "click", "a[b]c"),
        ("search[a]b]", "search", "a]b"),
        ("click[ s | m ]", "click", " s | m "),
        ("click[]", "click", ""),
        ("click", "click", None),
        ("finish[]", "finish", ""),
        ("search[research]", "search", "research"),
    ],
)
def test_an_argument_runs_to_the_last_bracket_and_stays_as_it_is(text, verb, argument):
    assert parse_action(text) == (verb, argument)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("search[a] search[b]", "multiple_actions_not_allowed"),
        ("click[a], click[b]", "multiple_actions_not_allowed"),
        ("click[a]；Click [b]", "multiple_actions_not_allowed"),
        ("search[a]\nclick[b]", "multiple_actions_not_allowed"),
        ("Action: click[a]\nAction: click[b]", "multiple_actions_not_allowed"),
        ("", "invalid_format"),
        ("  \n ", "invalid_format"),
        ("two\nlines", "invalid_format"),
        ("search[two\nlines]", "invalid_format"),
        ("search[open", "invalid_format"),
        ("[nothing]", "invalid_format"),
        ("Thought: x\nsearch[a]", "invalid_format"),
        ("search[a] please", "invalid_format"),
    ],
)
def test_anything_else_is_refused_with_its_reason(text, reason):
    with pytest.raises(NotAnAction) as refused:
        parse_action(text)
    assert refused.value.reason == reason


@given(st.text(st.characters(exclude_characters="\n["), max_size=20))
def test_whatever_a_page_may_offer_can_be_clicked(value):
    assert parse_action(f"click[{value}]") == ("click", value)
