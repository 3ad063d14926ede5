import json
from dataclasses import replace

import pytest

from intraskill.core.errors import UserError
from intraskill.skills.bank import Bank, Chunk, parse_bank, read_bank, render_chunk, write_bank

BRAND = Chunk(
    skill_id="brand",
    title="Usual brand",
    applies_when="the task says usual brand",
    procedure=("read the brand\nin the persona", "search with it"),
    verify="the title starts with the brand",
    contribution=0.125,
    contribution_checkpoint="step-0000",
    metadata={"evidence": ["task 3"], "nested": {"a": 1}},
)
HURRY = Chunk(
    skill_id="hurry", title="Hurry", applies_when="always", procedure=("buy the first result",), avoid="looking"
)
BANK = Bank((BRAND, HURRY), draft_only=True, uses_test_outcomes=True, notes={"hurry": "harmful on purpose"})


def record(**changes):
    chunk = {"skill_id": "a", "title": "A", "applies_when": "always", "procedure": ["do it"]}
    return {"schema": "intraskill-bank-v1", "chunks": [chunk | changes]}


def test_a_bank_survives_writing_and_reading(tmp_path):
    write_bank(tmp_path / "bank.json", BANK)
    assert read_bank(tmp_path / "bank.json") == BANK
    assert list(tmp_path.iterdir()) == [tmp_path / "bank.json"]


def test_only_id_and_texts_are_required():
    bank = parse_bank(record(), "x")
    assert bank.chunks[0] == Chunk("a", title="A", applies_when="always", procedure=("do it",))
    assert not bank.draft_only
    assert not bank.uses_test_outcomes


def test_hash_covers_what_the_policy_sees_and_nothing_else():
    measured = replace(HURRY, contribution=-0.5, contribution_checkpoint="step-0020", contribution_conditions="here")
    assert Bank((BRAND, measured)).sha256 == BANK.sha256
    for changed in (
        Bank((HURRY, BRAND)),
        Bank((BRAND,)),
        Bank((replace(BRAND, avoid="x"), HURRY)),
        Bank((replace(BRAND, skill_id="b"), HURRY)),
    ):
        assert changed.sha256 != BANK.sha256


def test_subset_keeps_bank_order():
    assert BANK.subset(["hurry", "brand"]).ids == ("brand", "hurry")
    assert BANK.subset(["hurry"]).ids == ("hurry",)
    with pytest.raises(UserError, match="no chunk is called 'colour'"):
        BANK.subset(["colour"])


def test_compact_rendering_is_one_line():
    compact = render_chunk(BRAND, "compact")
    assert compact == "the task says usual brand: read the brand in the persona; search with it"


def test_full_rendering_shows_every_visible_part_and_no_measurement():
    full = render_chunk(BRAND, "full")
    assert full.splitlines() == [
        "### Usual brand",
        "",
        "**When:** the task says usual brand",
        "",
        "1. read the brand in the persona",
        "2. search with it",
        "",
        "**Verify:** the title starts with the brand",
    ]
    assert "**Avoid:** looking" in render_chunk(HURRY, "full")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], "a bank is a JSON object"),
        ({"chunks": []}, 'add "schema": "intraskill-bank-v1"'),
        (record() | {"schema": "intraskill-bank-v2"}, "schema 'intraskill-bank-v2' is not known"),
        (record() | {"colour": 1}, "unknown key 'colour'"),
        (record() | {"chunks": {}}, '"chunks" must be a list'),
        (record() | {"draft_only": 1}, '"draft_only" must be true or false'),
        (record(colour=1), r"chunk 1 \(a\): unknown key 'colour'"),
        (record(skill_id=""), 'chunk 1 has no "skill_id"'),
        (record(skill_id=7), 'chunk 1 has no "skill_id"'),
        (record(procedure="do it"), '"procedure" must be a list of texts'),
        (record(procedure=[]), '"procedure" is missing or empty'),
        (record(title=None), '"title" must be a text, not null'),
        (record(version=True), '"version" must be a whole number'),
        (record(contribution="0.1"), '"contribution" must be a finite number or null'),
        (record(contribution=float("nan")), '"contribution" must be a finite number or null'),
        (record(metadata=[]), '"metadata" must be an object'),
        (record() | {"chunks": record()["chunks"] * 2}, "chunks 1 and 2 are both called 'a'"),
    ],
)
def test_a_broken_bank_is_refused_by_name(bad, message):
    with pytest.raises(UserError, match=f"^bank.json: .*{message}|^bank.json: {message}") as caught:
        parse_bank(bad, "bank.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{\n"chunks": [,]}', r"bank.json:2: not valid JSON"),
        (b"\xff", "not UTF-8"),
        (b'{"chunks": [], "chunks": []}', "'chunks' stands twice"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(tmp_path, content, message):
    (tmp_path / "bank.json").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_bank(tmp_path / "bank.json")


def test_a_missing_file_is_the_users_to_mend(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_bank(tmp_path / "none.json")
    with pytest.raises(UserError, match="cannot be read"):
        read_bank(tmp_path)


def test_texts_may_be_missing_where_only_contributions_matter():
    bare = {"chunks": [{"skill_id": "a", "contribution": 0.5}]}
    assert parse_bank(json.loads(json.dumps(bare)), "x", texts_required=False).chunks[0].contribution == 0.5
