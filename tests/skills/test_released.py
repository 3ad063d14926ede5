"""Released banks: read wherever a bank is, shown to the letter, and written again as they were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from intraskill.core.errors import UserError
from intraskill.skills.bank import bank_record, parse_bank, read_bank, render_chunk, write_bank
from intraskill.skills.released import content_sha256, to_released

TEXT = """### 候选筛选 - 比较

- Applies when: 有多个候选时
- Procedure:
  1. 比较价格
  2. 比较品牌
- Verify: 都符合
- Avoid: 只看第一个"""


def skill(skill_id: str, content: str, **more: Any) -> dict[str, Any]:
    return {"skill_id": skill_id, "content": content, **more}


def released(*skills: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema_version": "shopsimrl-skillbank-v1",
        "bank_version": "draft-3",
        "metadata": {"selected_count": 2, "estimator": {"name": "x"}},
        "skills": list(skills),
    }


WHOLE = released(
    skill("chunk-1", TEXT, version="positive-1", metadata={"rank": 6}, content_sha256="of it", enabled=True),
    skill("chunk-2", "never shown", enabled=False),
    skill("chunk-3", "only four", task_ids=[4]),
)


def test_a_chunk_is_shown_to_the_letter_and_its_parts_are_read() -> None:
    chunk = parse_bank(WHOLE, "x").chunks[0]
    assert render_chunk(chunk, "full") == TEXT
    assert (chunk.title, chunk.applies_when) == ("候选筛选 - 比较", "有多个候选时")
    assert (chunk.procedure, chunk.verify, chunk.avoid) == (("比较价格", "比较品牌"), "都符合", "只看第一个")
    assert render_chunk(chunk, "compact") == "有多个候选时: 比较价格; 比较品牌"


def test_a_text_of_no_known_form_is_one_step() -> None:
    bank = parse_bank(released(skill("global", "always\n  check twice")), "x")
    assert render_chunk(bank.chunks[0], "compact") == "always check twice"


def test_a_disabled_skill_is_no_chunk_and_a_limited_one_applies_to_its_tasks() -> None:
    bank = parse_bank(WHOLE, "x")
    assert bank.ids == ("chunk-1", "chunk-3")
    assert [chunk.skill_id for chunk in bank.chunks if chunk.applies_to(4)] == ["chunk-1", "chunk-3"]
    assert [chunk.skill_id for chunk in bank.chunks if chunk.applies_to("9")] == ["chunk-1"]


def test_what_nobody_changed_is_written_as_it_was_read(tmp_path: Path) -> None:
    source = json.dumps(WHOLE, ensure_ascii=False, indent=2)
    (tmp_path / "released.json").write_text(source)
    write_bank(tmp_path / "ours.json", read_bank(tmp_path / "released.json"))
    again = to_released(bank_record(read_bank(tmp_path / "ours.json")))
    assert json.dumps(again, ensure_ascii=False, indent=2) == source


def test_a_changed_chunk_is_written_anew_and_the_others_stay() -> None:
    bank = parse_bank(WHOLE, "x")
    changed = replace(bank.chunks[1], content="", procedure=("look",), title="Look", applies_when="always")
    record = to_released(bank_record(replace(bank, chunks=(bank.chunks[0], changed))))
    assert record["skills"][:2] == WHOLE["skills"][:2]
    text = "### Look\n\n- Applies when: always\n- Procedure:\n  1. look"
    assert record["skills"][2]["content"] == text
    assert record["skills"][2]["content_sha256"] == content_sha256(text)
    assert record["skills"][2]["task_ids"] == [4]


def test_the_text_is_part_of_what_a_policy_sees() -> None:
    bank = parse_bank(WHOLE, "x")
    other = parse_bank(released(skill("chunk-1", TEXT + " "), *WHOLE["skills"][1:]), "x")
    assert bank.sha256 != other.sha256


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (released(skill("a", " ")), 'skill 1: "content" is missing or empty'),
        (released({"content": "x"}), 'skill 1: "skill_id" is missing'),
        (released(skill("a", "x", task_ids=["4"])), r'skill 1 \(a\): "task_ids"'),
        ({"schema_version": "shopsimrl-skillbank-v1"}, '"skills" must be a list'),
        (released(skill("a", "x"), skill("a", "y")), "both called 'a'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(broken: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse_bank(broken, "bank.json")
