"""What the policy is told: protocol, visible skill chunks, task, persona, first page.

A template is a name, a version and the way it renders; its hash covers all three (it is taken over what the template
renders for fixed probes in both languages, so a change of any word changes it). `full` speaks to a real language
model, in English or Chinese as the environment does. `compact` speaks to a model of a few million parameters that
was trained on it, so every word it can do without is left out.

Chunks appear in the order given, which is the bank's. Without chunks there is no trace of a skills section: a
skill-free prompt does not know that skills exist.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from shopsimulator.text import has_cjk

from intraskill.core.errors import UserError
from intraskill.core.records import Message, Reset, Style, Tool
from intraskill.families.base import ProtocolError
from intraskill.families.shop.persona import compact_persona, full_persona, persona_of
from intraskill.skills.bank import Chunk, render_chunk

VERSION = 1

_SYSTEM = {
    "en": """You are shopping online on behalf of one particular person. Find and buy the product that fits the task.

How you act:
- Every reply is exactly one tool call and nothing else: `search(query)` where the page offers a search, or \
`click(value)` with one of the values the page lists as clickable, written exactly as shown.
- You may think first; the visible part of the reply must be the tool call alone. Two calls, or text beside the call, \
do nothing and still cost a step.
- The tool's answer is the next page. An action the page does not allow leaves the page as it is, says why, and costs \
a step.

How you decide:
- The task says what to buy. What it leaves open (a usual brand, a size, a taste) follows from the shopper's profile.
- A product's options must all be chosen before it can be bought, and a budget applies to the price of the chosen \
variant.
- The purchase is final and ends the task. Compare before you buy, and buy before the steps run out.""",
    "zh": """你正在代替一位特定的用户网上购物。请找到并买下符合任务要求的商品。

如何行动：
- 每次回复只能是一个工具调用，不能有其他内容：页面提供搜索时可用 `search(query)`，点击用 `click(value)`，\
取值必须与页面列出的可点击内容完全一致。
- 可以先思考，但回复的可见部分只能是工具调用。一次调用两个工具、或在调用之外写文字，都不会产生任何动作，仍会消耗一步。
- 工具的返回就是下一个页面。页面不允许的动作不会改变页面，会说明原因，并消耗一步。

如何决定：
- 任务说明要买什么；任务没有说清楚的（常用品牌、尺码、喜好）要从用户画像中推断。
- 商品的所有规格都选定后才能购买；预算针对所选规格的价格。
- 购买后任务立即结束、不可撤销。先比较再购买，并在步数用完之前购买。""",
}
_HEADINGS = {
    "en": {"skills": "Skills", "task": "Task", "persona": "Shopper profile", "page": "Current page"},
    "zh": {"skills": "技能", "task": "任务", "persona": "用户画像", "page": "当前页面"},
}
_SKILLS_INTRO = {
    "en": "Procedures that have worked before. Apply each one where its condition holds.",
    "zh": "以往有效的做法。条件符合时按其步骤执行。",
}
_FEEDBACK = {
    "en": "Protocol error ({code}): {message}. Nothing was done, one step was spent, the page is unchanged.",
    "zh": "协议错误（{code}）：{message}。没有执行任何动作，已消耗一步，页面不变。",
}


@dataclass(frozen=True)
class PromptTemplate:
    """Renders an episode's messages. `name` is also the style in which chunks are rendered."""

    name: Style

    def messages(self, reset: Reset, chunks: Sequence[Chunk]) -> tuple[Message, ...]:
        """The system and the user message an episode starts with."""
        compact = self.name == "compact"
        system = _compact_system(chunks) if compact else _full_system(reset, chunks)
        user = _compact_user(reset) if compact else _full_user(reset)
        return ({"role": "system", "content": system}, {"role": "user", "content": user})

    def protocol_feedback(self, error: ProtocolError, observation: str, tools: Sequence[Tool]) -> str:
        """What answers a reply that was no valid call: the reason, then the unchanged page."""
        if self.name == "compact":
            return f"{error.code}\n{observation}"
        said = _FEEDBACK[_language(observation)].format(code=error.code, message=error.message)
        return f"{said}\n\n{observation}"

    @cached_property
    def sha256(self) -> str:
        """Content hash of everything this template can say."""
        probes = [_probe(language, persona) for language in ("en", "zh") for persona in (None, _PROBE_PERSONA)]
        rendered: list[Any] = [self.name, VERSION]
        for reset in probes:
            rendered += [self.messages(reset, ()), self.messages(reset, _PROBE_CHUNKS)]
            feedback = self.protocol_feedback(ProtocolError("code", "message"), reset.observation, ())
            rendered.append({"role": "user", "content": feedback})
        return hashlib.sha256(json.dumps(rendered, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


def prompt_template(name: str) -> PromptTemplate:
    """The template of that name. Raises `UserError` on an unknown one."""
    if name in ("full", "compact"):
        return PromptTemplate(cast(Style, name))
    raise UserError(f"unknown prompt template {name!r}; use full or compact")


def _compact_system(chunks: Sequence[Chunk]) -> str:
    return "\n".join(f"- {render_chunk(chunk, 'compact')}" for chunk in chunks)


def _compact_user(reset: Reset) -> str:
    persona = compact_persona(persona_of(reset), _language(reset.instruction))
    return "\n".join(part for part in (reset.instruction, persona, reset.observation) if part)


def _full_system(reset: Reset, chunks: Sequence[Chunk]) -> str:
    language = _language(reset.instruction)
    if not chunks:
        return _SYSTEM[language]
    rendered = "\n\n".join(render_chunk(chunk, "full").strip() for chunk in chunks)
    return f"{_SYSTEM[language]}\n\n# {_HEADINGS[language]['skills']}\n\n{_SKILLS_INTRO[language]}\n\n{rendered}"


def _full_user(reset: Reset) -> str:
    headings = _HEADINGS[_language(reset.instruction)]
    persona = full_persona(persona_of(reset))
    sections = [("task", reset.instruction), ("persona", persona), ("page", reset.observation)]
    return "\n\n".join(f"## {headings[key]}\n{text}" for key, text in sections if text)


def _language(text: str) -> str:
    """The language to answer a text in: Chinese if it holds any Han character."""
    return "zh" if has_cjk(text) else "en"


_PROBE_PERSONA: dict[str, Any] = {
    "用户ID": "U0",
    "人口属性": {"性别": "女", "年龄段": ""},
    "兴趣偏好": {
        "品牌偏好": [{"品牌名称": "norvik", "偏好程度": "高"}],
        "商品属性偏好": {"价格区间": {"最小值": 10, "最大值": 90}, "颜色": ["red"], "材质": ["oak"]},
    },
    "行为特征": {"最近14天搜索关键词": ["oak shelf", "lamp"], "活跃时间段": ", "},
    "用户标签": ["tidy"],
}
_PROBE_CHUNKS = (
    Chunk(
        skill_id="probe",
        version=1,
        title="Probe",
        applies_when="always",
        procedure=("look", "compare"),
        verify="it fits",
        avoid="haste",
        contribution=None,
        contribution_checkpoint=None,
        metadata={},
    ),
)


def _probe(language: str, persona: dict[str, Any] | None) -> Reset:
    instruction, page = {"en": ("instruction", "page"), "zh": ("任务", "页面")}[language]
    return Reset("0", instruction, page, {"actions": []}, {"user_persona": persona})
