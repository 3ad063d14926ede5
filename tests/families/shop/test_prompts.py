import dataclasses
import json

import pytest

from intraskill.core.errors import UserError
from intraskill.core.records import Reset
from intraskill.families.base import ProtocolError
from intraskill.families.shop import prompts
from intraskill.families.shop.persona import compact_persona, full_persona
from intraskill.families.shop.prompts import prompt_template
from intraskill.skills.bank import Chunk

CHUNKS = tuple(
    Chunk(skill_id=f"id-{name}", title=f"T{name}", applies_when=f"when {name}", procedure=(f"do {name}", "check"))
    for name in ("zeta", "alpha")
)
PERSONA = {
    "用户ID": "U123456",
    "人口属性": {"性别": "女", "年龄段": ", "},
    "兴趣偏好": {
        "品牌偏好": [{"品牌名称": "tarn", "偏好程度": "低"}, {"品牌名称": "norvik", "偏好程度": "高"}],
        "商品属性偏好": {"颜色": ["red"], "材质": [], "功能": "", "尺码偏好": {"上衣": "M"}},
    },
    "行为特征": {"最近14天搜索关键词": ["pine lamp", "", "oak shelf"], "最近14天加购商品": [""]},
    "注册时间": "2020-01-01",
}


WISH = {"en": "Buy a shelf of my usual brand.", "zh": "想买一个常用品牌的架子"}


def reset(language="en", persona=PERSONA):
    return Reset("7", WISH[language], "search", {"actions": []}, {"user_persona": persona})


def text(name, language="en", chunks=CHUNKS, persona=PERSONA):
    messages = prompt_template(name).messages(reset(language, persona), chunks)
    assert [message["role"] for message in messages] == ["system", "user"]
    return messages[0]["content"], messages[1]["content"]


def test_compact_is_as_short_as_it_can_be():
    system, user = text("compact")
    assert system == "- when zeta: do zeta; check\n- when alpha: do alpha; check"
    persona = "brands high norvik, low tarn; searched last oak shelf; before pine lamp; colour=red"
    assert user == f"Buy a shelf of my usual brand.\n{persona}\nsearch"
    assert text("compact", chunks=(), persona=None) == ("", "Buy a shelf of my usual brand.\nsearch")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_full_shows_chunks_in_bank_order_and_only_then_a_skills_section(language):
    system, user = text("full", language)
    bare, _ = text("full", language, chunks=())
    assert system.startswith(bare)
    assert bare.index("search(query)") > 0
    assert system.index("Tzeta") < system.index("Talpha")
    heading = prompts._HEADINGS[language]["skills"]
    assert f"# {heading}" in system
    assert f"# {heading}" not in bare
    assert "kill" not in bare
    assert "技能" not in bare
    assert user.endswith("search")


def test_the_wish_decides_the_language():
    assert "购物" in text("full", "zh")[0]
    assert "shopping" in text("full", "en")[0]
    assert "品牌 高 norvik, 低 tarn; 最后搜索 oak shelf; 之前搜索 pine lamp; 颜色=red" in text("compact", "zh")[1]


def test_siblings_read_the_same_bytes():
    for name in ("full", "compact"):
        one, two = (json.dumps(prompt_template(name).messages(reset(), CHUNKS), sort_keys=True) for _ in range(2))
        assert one == two


def test_personas_leave_out_what_says_nothing():
    said = full_persona(PERSONA)
    assert "U123456" not in said
    assert "年龄段" not in said
    assert "加购" not in said
    assert "  - 性别: 女" in said
    assert "上衣: M" in said
    assert "品牌名称 norvik, 偏好程度 高" in said
    for nothing in ({}, {"兴趣偏好": None}, {"兴趣偏好": {"品牌偏好": [", ", {}]}, "行为特征": ""}):
        assert compact_persona(nothing) == ""
        assert full_persona(nothing) == ""


def test_feedback_names_the_error_and_repeats_the_page():
    error = ProtocolError("tool_call_count", "two")
    said = prompt_template("full").protocol_feedback(error, "PAGE", ())
    assert "tool_call_count" in said
    assert said.endswith("PAGE")
    assert prompt_template("full").protocol_feedback(error, "页面", ()).startswith("协议错误")
    assert prompt_template("compact").protocol_feedback(error, "PAGE", ()) == "tool_call_count\nPAGE"


def test_the_hash_covers_every_word(monkeypatch):
    before = {name: prompt_template(name).sha256 for name in ("full", "compact")}
    assert before["full"] != before["compact"]
    assert {name: prompt_template(name).sha256 for name in before} == before
    monkeypatch.setitem(prompts._SYSTEM, "zh", prompts._SYSTEM["zh"] + "。")
    assert prompt_template("full").sha256 != before["full"]
    assert prompt_template("compact").sha256 == before["compact"]


def test_templates_are_chosen_by_name():
    assert dataclasses.is_dataclass(prompt_template("full"))
    with pytest.raises(UserError, match="full or compact"):
        prompt_template("fancy")
