"""A user's prompt file: rendered to the letter, in a sandbox, and refused with its place when it cannot be."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from intraskill.core.errors import UserError
from intraskill.core.records import Reset
from intraskill.families.base import ProtocolError
from intraskill.families.shop.family import Shop
from intraskill.families.shop.prompt_file import FilePrompt
from intraskill.families.shop.settings import ShopSettings
from intraskill.families.shop.tools import build_tools
from intraskill.skills.bank import Chunk, parse_bank

TEMPLATE = """\
{% macro system(persona, skills) %}
Shop well.
{% if persona %}

Profile: {{ persona | json }}
{% endif %}
{% for skill in skills %}
<skill id="{{ skill.id }}" version="{{ skill.version }}">
{{ skill.content }}
</skill>
{% endfor %}
{% endmacro %}
{% macro user(instruction, observation) %}
Task:
{{ instruction }}

{{ observation }}
{% endmacro %}
"""
RESET = Reset("7", "买一双鞋", "页面：搜索首页\n", {}, {"user_persona": {"b": "五", "a": [1]}})


@pytest.fixture
def write(tmp_path: Path):
    def at(text: str) -> Path:
        path = tmp_path / "mine.jinja"
        path.write_text(text)
        return path

    return at


def test_the_file_says_every_word(write) -> None:
    bank = parse_bank(
        {
            "schema_version": "shopsimrl-skillbank-v1",
            "skills": [{"skill_id": "chunk-1", "content": "### 先比较\n", "version": "positive-1"}],
        },
        "x",
    )
    system, user = FilePrompt(write(TEMPLATE)).messages(RESET, bank.chunks)
    profile, skill = system["content"].split("\n<skill ")
    assert profile == 'Shop well.\n\nProfile: {"a": [1], "b": "五"}'
    assert skill == 'id="chunk-1" version="positive-1">\n### 先比较\n</skill>\n'
    assert user["content"] == "Task:\n买一双鞋\n\n页面：搜索首页\n\n"


def test_a_chunk_of_parts_is_written_in_the_released_form(write) -> None:
    chunk = Chunk("care", 3, "Care", "always", ("look", "compare"), avoid="haste")
    system, _ = FilePrompt(write(TEMPLATE)).messages(RESET, (chunk,))
    text = "### Care\n\n- Applies when: always\n- Procedure:\n  1. look\n  2. compare\n- Avoid: haste"
    assert f'<skill id="care" version="3">\n{text}\n</skill>' in system["content"]


def test_feedback_is_one_line_of_json_that_does_not_repeat_the_page(write) -> None:
    tools = build_tools({"search_available": True, "actions": []}, "dynamic")
    error = ProtocolError("mixed_content", "text beside the call")
    line = FilePrompt(write(TEMPLATE)).protocol_feedback(error, "页面：搜索首页", tools)
    said = json.loads(line)
    assert list(said) == ["type", "code", "message", "instruction", "available_tools"]
    assert (said["type"], said["code"]) == ("tool_protocol_error", "mixed_content")
    assert said["available_tools"] == ["search"]
    assert "页面：搜索首页" not in line
    assert line == json.dumps(said, ensure_ascii=False, separators=(",", ":"))


def test_the_hash_is_that_of_the_file(write) -> None:
    path = write(TEMPLATE)
    assert FilePrompt(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_family_takes_a_name_or_a_file(write) -> None:
    shop = Shop(ShopSettings(), None)
    assert isinstance(shop.prompt(str(write(TEMPLATE))), FilePrompt)
    assert shop.prompt("full").sha256 != shop.prompt("compact").sha256
    with pytest.raises(UserError, match="full or compact"):
        shop.prompt("fancy")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{% macro system(persona, skills) %}", "mine.jinja, line 1: no usable Jinja template"),
        ("hello", "defines no macro system"),
        (TEMPLATE.replace("macro user", "macro you"), "defines no macro user"),
        (TEMPLATE.replace("persona, skills", "persona"), "macro system cannot be rendered"),
        (TEMPLATE.replace("{{ instruction }}", "{{ wish }}"), "'wish' is undefined"),
        (TEMPLATE.replace("{{ instruction }}", "{{ ''.__class__.__mro__ }}"), "unsafe"),
        (TEMPLATE.replace("Task:", "{% include '/etc/passwd' %}"), "macro user cannot be rendered"),
    ],
)
def test_what_cannot_be_used_is_said_before_the_first_episode(write, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        FilePrompt(write(text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"policy\.prompt: cannot read"):
        FilePrompt(tmp_path / "none.jinja")
