"""A prompt from a user's file, so that a checkpoint trained elsewhere is told the very words it knows.

The file is a Jinja template that defines macros and prints nothing itself:

    {% macro system(persona, skills) %}...{% endmacro %}          the system message
    {% macro user(instruction, observation) %}...{% endmacro %}   the first user message

`persona` is the shopper's profile as it is in the catalog (none if there is none), `skills` a list of the visible
chunks with `id`, `version` and `content` (their text as Markdown). The filter `json` writes a value as JSON with sorted
keys. Templates run in Jinja's sandbox; a name that does not exist is an error.

A reply that is no valid call is answered by the feedback of `openai-function-tools-repair-v3`: one line of JSON that
names the error and the tools of the page, and does not repeat the page.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from shopsimulator.text import has_cjk

from intraskill.core.errors import UserError
from intraskill.core.records import Message, Reset, Tool
from intraskill.families.base import ProtocolError
from intraskill.families.shop.persona import persona_of
from intraskill.skills.bank import Chunk, chunk_record
from intraskill.skills.released import markdown, released_version

_MACROS = ("system", "user")
_INSTRUCTION = {
    "en": "The last reply did nothing and the page is the same. Reply with one call of an available tool, no text.",
    "zh": "上一次回复没有生效，页面没有变化。请只调用一个可用工具，不要写其他文字。",
}


class FilePrompt:
    """The prompt of one template file. Raises `UserError` naming the file when it cannot be used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._source = path.read_bytes()
        except OSError as error:
            raise UserError(f"policy.prompt: cannot read {path}: {error.strerror or error}") from error
        environment = ImmutableSandboxedEnvironment(
            undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
        )
        environment.filters["json"] = lambda value: json.dumps(value, ensure_ascii=False, sort_keys=True)
        try:
            self._module = environment.from_string(self._source.decode()).module
        except (TemplateError, UnicodeDecodeError) as error:
            line = getattr(error, "lineno", None)
            raise UserError(f"{path}{f', line {line}' if line else ''}: no usable Jinja template: {error}") from error
        for name in _MACROS:
            if not callable(getattr(self._module, name, None)):
                raise UserError(f"{path}: defines no macro {name}; a prompt file has {' and '.join(_MACROS)}")
        self.messages(_PROBE, ())  # what every episode would stumble over is said before the first one

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self._source).hexdigest()

    def messages(self, reset: Reset, chunks: Sequence[Chunk]) -> tuple[Message, ...]:
        """The system and the user message an episode starts with."""
        skills = [
            {
                "id": chunk.skill_id,
                "version": released_version(chunk.metadata, chunk.version),
                "content": markdown(chunk_record(chunk)).strip(),
            }
            for chunk in chunks
        ]
        system = self._say("system", persona=persona_of(reset) or None, skills=skills)
        user = self._say("user", instruction=reset.instruction, observation=reset.observation)
        return ({"role": "system", "content": system}, {"role": "user", "content": user})

    def protocol_feedback(self, error: ProtocolError, observation: str, tools: Sequence[Tool]) -> str:
        return repair_feedback(error.code, error.message, tools, observation)

    def _say(self, macro: str, **values: Any) -> str:
        try:
            return str(getattr(self._module, macro)(**values))
        except (TemplateError, TypeError, ValueError, ArithmeticError) as error:
            raise UserError(f"{self._path}: macro {macro} cannot be rendered: {error}") from error


def repair_feedback(code: str, message: str, tools: Sequence[Tool], observation: str) -> str:
    """The feedback of `openai-function-tools-repair-v3`, in the language of the page."""
    said: Mapping[str, Any] = {
        "type": "tool_protocol_error",
        "code": code,
        "message": message,
        "instruction": _INSTRUCTION["zh" if has_cjk(observation) else "en"],
        "available_tools": [tool["function"]["name"] for tool in tools],
    }
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))


_PROBE = Reset("0", "instruction", "page", {"actions": []})
