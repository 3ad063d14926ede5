"""The compiler: many lessons to few candidates, and what must never become one."""

import random
from dataclasses import replace

import pytest

from intraskill.core.errors import UserError
from intraskill.evolution.cards import Lesson, text_key
from intraskill.evolution.compiler import (
    Limits,
    candidate_record,
    clusters,
    compile_candidates,
    parse_candidate,
)
from intraskill.families.analysis import Abstraction, Facts
from intraskill.families.shop.facts import own_facts
from intraskill.families.shop.mechanisms import MECHANISMS, ShopMechanisms
from intraskill.families.shop.titles import TitleIndex
from intraskill.gate.interventions import build_pool, slots
from intraskill.skills.bank import Bank, render_chunk

FACTS = Facts(frozenset(), frozenset(), {}, TitleIndex(["norvik oak shelf"]), (), own_facts)
KNOWN = ShopMechanisms()
LIMITS = Limits(count=6, min_cards=2, style="compact")


def lesson(number, mechanism="brand", operation="ADD", target=None, text=None):
    known = MECHANISMS.get(mechanism)
    text = text or Abstraction(
        mechanism, known.title, known.short[0].applies_when, known.short[0].procedure, known.verify, known.avoid
    )
    return Lesson(f"card-{number:03d}", "failure", operation, target, text)


def own(mechanism, applies_when, *procedure):
    return Abstraction(mechanism, mechanism.replace("_", " "), applies_when, procedure)


def compiled(lessons, bank=None, ledger=(), limits=LIMITS):
    return compile_candidates(lessons, bank or Bank(), ledger, FACTS, KNOWN, limits)


def texts(result):
    return [(c.chunk.applies_when, c.chunk.procedure) for c in result.candidates]


def rejected(operation, family, wording, result="non_positive"):
    key = text_key(wording.applies_when, wording.procedure)
    return {"operation": operation, "family": family, "text_key": key, "result": result, "round": 0}


def test_many_lessons_of_one_mechanism_make_one_candidate():
    result = compiled([lesson(i) for i in range(5)])
    (candidate,) = result.candidates
    assert candidate.operation == "ADD"
    assert candidate.chunk.metadata["cards"] == [f"card-{i:03d}" for i in range(5)]
    assert candidate.chunk.metadata["mechanism"] == "brand"
    assert result.dropped == ()


def test_the_order_of_the_lessons_does_not_matter():
    lessons = [lesson(i, m) for i, m in enumerate(["brand", "colour", "brand", "recent", "colour", "recent", "brand"])]
    shuffled = random.Random(1).sample(lessons, len(lessons))
    assert compiled(lessons) == compiled(shuffled)


def test_too_few_cards_are_left_out_with_the_reason():
    result = compiled([lesson(0), lesson(1, "colour"), lesson(2, "colour")])
    assert [c.chunk.metadata["mechanism"] for c in result.candidates] == ["colour"]
    assert [(d.mechanism, d.reason) for d in result.dropped] == [("brand", "too_few_cards")]


def test_no_lessons_no_candidates():
    assert compiled([]).candidates == ()


def test_at_most_the_limit_and_the_best_supported_first():
    names = list(MECHANISMS)[:8]
    lessons = [lesson(10 * i + j, name) for i, name in enumerate(names) for j in range(2 + i)]
    result = compiled(lessons)
    assert len(result.candidates) == 6
    assert [c.chunk.metadata["mechanism"] for c in result.candidates] == names[:1:-1]
    assert {d.reason for d in result.dropped} == {"over_limit"}


def test_a_rejected_wording_gives_way_to_the_next_one():
    lessons = [lesson(0), lesson(1)]
    short = MECHANISMS["brand"].short
    assert texts(compiled(lessons)) == [(short[0].applies_when, short[0].procedure)]
    ledger = [rejected("ADD", "online-1", short[0])]
    assert texts(compiled(lessons, ledger=ledger)) == [(short[1].applies_when, short[1].procedure)]
    ledger = [rejected("ADD", f"online-{i}", wording) for i, wording in enumerate(short)]
    result = compiled(lessons, ledger=ledger)
    assert result.candidates == ()
    assert [d.reason for d in result.dropped] == ["rejected_before"]


def test_a_rejected_rewrite_of_one_chunk_says_nothing_about_another(skills):
    short = MECHANISMS["colour"].short
    lessons = [lesson(i, "colour", "REWRITE", "colour") for i in range(2)]
    ledger = [rejected("REWRITE", "other", short[0], "rewrite_loser")]
    assert texts(compiled(lessons, skills, ledger)) == [(short[0].applies_when, short[0].procedure)]


def test_what_only_missed_the_budget_may_come_again():
    ledger = [rejected("ADD", "online-1", MECHANISMS["brand"].short[0], "budget_excluded")]
    assert len(compiled([lesson(0), lesson(1)], ledger=ledger).candidates) == 1


def test_a_rewrite_of_a_retired_chunk_is_dropped(skills):
    lessons = [lesson(i, "brand", "REWRITE", "gone") for i in range(3)]
    result = compiled(lessons, skills)
    assert result.candidates == ()
    assert [d.reason for d in result.dropped] == ["target_not_active"]


def test_an_addition_the_bank_covers_is_dropped(skills):
    result = compiled([lesson(i, "colour") for i in range(3)], skills)
    assert [d.reason for d in result.dropped] == ["covered_by_bank"]


def test_a_text_that_stands_in_the_bank_is_not_proposed_again(skills):
    old = skills.chunk("recent")
    same = own("newest_search", old.applies_when, *old.procedure)
    result = compiled([lesson(i, "newest_search", text=same) for i in range(2)], skills)
    assert [d.reason for d in result.dropped] == ["duplicate_of_bank"]


def test_two_candidates_with_the_same_text_are_one():
    one = own("compare_pages", "results differ", "open both")
    other = own("weigh_up", "results differ", "open both")
    lessons = [lesson(i, "compare_pages", text=one) for i in range(2)]
    lessons += [lesson(2 + i, "weigh_up", "ADD", text=other) for i in range(2)]
    assert len(compiled(lessons).candidates) == 1
    rewrites = [
        lesson(i, "x", "REWRITE", target, own("x", "results differ", "open both"))
        for i, target in enumerate(["colour", "colour", "recent", "recent"])
    ]
    from intraskill.skills.bank import Chunk

    bank = Bank(
        (Chunk("colour", applies_when="a", procedure=("b",)), Chunk("recent", applies_when="c", procedure=("d",)))
    )
    result = compiled(rewrites, bank)
    assert len(result.candidates) == 1
    assert [d.reason for d in result.dropped] == ["duplicate_of_candidate"]


def test_differently_named_lessons_that_say_the_same_are_joined():
    one = own("check_reviews", "reviews are shown", "read the reviews", "prefer good reviews")
    other = own("read_reviews_first", "reviews are shown", "read good reviews", "prefer the reviews")
    (cluster,) = clusters([lesson(0, "check_reviews", text=one), lesson(1, "read_reviews_first", text=other)], KNOWN)
    assert cluster.cards == ("card-000", "card-001")


def test_additions_and_rewrites_are_never_joined(skills):
    lessons = [lesson(0, "colour"), lesson(1, "colour", "REWRITE", "colour")]
    assert len(clusters(lessons, KNOWN)) == 2


def test_a_text_the_firewall_refuses_becomes_no_candidate():
    leaky = own("shelf", "a shelf is wanted", "open the norvik oak shelf")
    result = compiled([lesson(i, "shelf", text=leaky) for i in range(3)])
    assert [d.reason for d in result.dropped] == ["firewall"]
    assert "norvik" not in str(result.dropped)  # the record goes where the candidates go
    alone = compiled([lesson(0, "shelf", text=leaky)])
    assert [d.reason for d in alone.dropped] == ["firewall"]  # also where it would have been dropped anyway
    assert "norvik" not in str(alone.dropped)


def test_a_full_prompt_gets_full_sentences():
    result = compiled([lesson(0), lesson(1)], limits=replace(LIMITS, style="full"))
    assert texts(result)[0][0] == MECHANISMS["brand"].full[0].applies_when


def test_candidates_build_a_pool_with_slots(skills):
    lessons = [lesson(i) for i in range(3)] + [lesson(3 + i, "colour", "REWRITE", "colour") for i in range(2)]
    result = compiled(lessons, skills)
    pool = build_pool(skills, result.candidates)
    rewrite = next(c for c in result.candidates if c.operation == "REWRITE").chunk.skill_id
    add = next(c for c in result.candidates if c.operation == "ADD").chunk.skill_id
    assert slots(pool) == (("recent",), ("colour", rewrite), ("budget",), (add,))


def test_the_first_text_of_a_chunk_that_was_rewritten_since_can_be_proposed_again(skills):
    (added,) = compiled([lesson(i) for i in range(2)]).candidates
    rewritten = replace(added.chunk, procedure=("look again",), metadata={"mechanism": "another"})
    bank = Bank((*skills.chunks, rewritten))
    (again,) = compiled([lesson(i) for i in range(2)], bank).candidates
    assert again.chunk.procedure == added.chunk.procedure
    assert again.chunk.skill_id not in bank.ids
    pool = build_pool(bank, [again])
    assert len({item.intervention_id for item in pool}) == len(pool)


def test_a_candidate_survives_its_file():
    (candidate,) = compiled([lesson(0), lesson(1)]).candidates
    assert parse_candidate(candidate_record(candidate)) == candidate


def test_a_rewrite_of_nothing_active_is_refused_by_the_pool(skills):
    (candidate,) = compiled([lesson(0), lesson(1)]).candidates
    with pytest.raises(UserError, match="not active"):
        build_pool(skills, [replace(candidate, operation="REWRITE", target="gone")])


def test_candidates_render_in_the_compact_style():
    (candidate,) = compiled([lesson(0), lesson(1)]).candidates
    assert render_chunk(candidate.chunk, "compact") == "usual brand: put the high brand in the query"
