"""The rule that asks for evidence: the incumbent stays in doubt, and doubt is called doubt."""

import numpy as np
import pytest

from intraskill.core.errors import UserError
from intraskill.gate.decide import decide
from intraskill.gate.evidence import Posterior
from intraskill.gate.selection import Contribution


def current(name, order=1):
    return name, "current", name, None, order


def rewrite(name, of, order=1):
    return name, "candidate", of, "REWRITE", order


def add(name, order=9):
    return name, "candidate", name, "ADD", order


def selected(items, budget=10, confidence=0.9, error=0.04):
    """`decide` on [(text, effect)], every effect known to within `error`."""
    means = np.array([effect for _, effect in items])
    posterior = Posterior(tuple(text[0] for text, _ in items), means, np.eye(len(items)) * error**2, 0.1)
    return decide([Contribution(*text, effect) for text, effect in items], posterior, confidence, budget)


def verdicts(items, **options):
    return {row.intervention_id: row.status for row in selected(items, **options).rows}


def test_a_chunk_stays_goes_or_is_undecided_as_the_evidence_says():
    items = [(current("good", 1), 0.1), (current("unclear", 2), 0.02), (current("doubtful", 3), -0.02)]
    items += [(current("bad", 4), -0.1)]
    found = selected(items)
    assert verdicts(items) == {"good": "selected", "unclear": "undecided", "doubtful": "undecided", "bad": "retired"}
    assert found.selected_ids == ("good", "unclear", "doubtful"), "the incumbent stays in doubt"
    assert [row.rank for row in found.rows] == [1, 2, 3, 4]


def test_a_new_chunk_needs_evidence_to_come_in():
    items = [(add("sure", 1), 0.1), (add("unclear", 2), 0.03), (add("bad", 3), -0.1)]
    assert verdicts(items) == {"sure": "selected", "unclear": "undecided", "bad": "non_positive"}
    assert selected(items).selected_ids == ("sure",)


def test_a_text_is_replaced_only_when_the_new_one_is_better_beyond_doubt():
    old = (current("a", 1), 0.05)
    clear, close = (rewrite("a1", "a"), 0.15), (rewrite("a2", "a"), 0.08)
    assert verdicts([old, clear]) == {"a": "rewrite_loser", "a1": "selected"}
    assert selected([old, clear]).replacement_winners == {"a": "a1"}
    assert verdicts([old, close]) == {"a": "undecided", "a2": "undecided"}
    assert selected([old, close]).selected_ids == ("a",)
    assert selected([old, close], error=0.005).selected_ids == ("a2",)


def test_a_wording_that_is_worse_beyond_doubt_is_turned_down_and_may_not_come_again():
    items = [(current("a", 1), 0.2), (rewrite("worse", "a"), 0.02), (rewrite("alike", "a"), 0.19)]
    assert verdicts(items) == {"a": "selected", "worse": "rewrite_loser", "alike": "undecided"}


def test_of_several_new_wordings_the_best_is_compared():
    items = [(current("a", 1), 0.0), (rewrite("a1", "a"), 0.2), (rewrite("a2", "a"), 0.25)]
    assert selected(items).replacement_winners == {"a": "a2"}
    assert verdicts(items) == {"a": "rewrite_loser", "a1": "undecided", "a2": "selected"}


def test_the_budget_cuts_by_the_shrunken_effect():
    items = [(current("a", 1), 0.01), (current("b", 2), 0.3), (add("n", 3), 0.2)]
    found = selected(items, budget=2)
    assert found.selected_ids == ("b", "n")
    assert {row.intervention_id: row.status for row in found.rows}["a"] == "budget_excluded"


def test_confidence_is_what_a_decision_asks_for():
    items = [(current("a", 1), 0.06)]  # helps with probability .93
    assert verdicts(items, confidence=0.9) == {"a": "selected"}
    assert verdicts(items, confidence=0.95) == {"a": "undecided"}


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(UserError, match="stands there twice"):
        selected([(current("a"), 0.1), (current("a"), 0.2)])


def test_worthless_chunks_are_kept_on_evidence_no_more_often_than_stated():
    random, kept = np.random.default_rng(0), 0
    for _ in range(400):
        values = random.normal(0, 0.04, 6)
        items = [(add(f"c{i}", i), value) for i, value in enumerate(values)]
        kept += len(selected(items, error=0.04).selected_ids)
    assert kept / 2400 == pytest.approx(0.1, abs=0.02)
