"""A model's chat template as token ids: the first prompt, and what follows each sampled reply.

The template is the model's own (Jinja, as shipped with its tokenizer). Two renderings are enough for a whole
episode: `initial_ids` renders a conversation up to the point where the model speaks, and `extension_ids` gives the
ids between the end of a sampled reply and the next reply: the new messages, wrapped as the template wraps them, and
its generation prompt. The second is found by rendering a **probe** conversation whose assistant message holds a
marker, and taking what comes after that message's end-of-turn token; so it works for any template that closes
assistant turns with a token of their own, and never touches what was sampled.

What a template must be able to do is checked once, at construction, on such probes: render tool calls and tool
messages, and close its turns. How it writes a call is how its model was taught to: `call_format` is the format
(`agent/call_formats.py`) that reads the rendered probe back. Some templates fill an empty system message with words of
their own; such a prompt is refused, because only prompts without skills would have them. `shows_tools` tells whether
the tool schemas are written into the prompt (a model made for fixed tools can do without). `prefix_preserving` tells
whether rendering a longer conversation anew would give the same text as extending it. Templates that drop earlier
reasoning are not prefix-preserving: with them, extending keeps what the model really saw and said, and a text endpoint
would see something shorter.

Only the template speaks in control tokens: what messages and schemas merely spell out is made inert
(`control_tokens.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from intraskill.agent.call_formats import CALL_FORMATS, CallFormat
from intraskill.agent.parsing import THINK_OPEN, parse_reply
from intraskill.core.errors import UserError
from intraskill.core.records import Message, Tool
from intraskill.policies.control_tokens import BREAK, Breaker, each_text, special_tokens, structural_tokens
from intraskill.policies.stop_tokens import model_stop_ids

_MARK, _TOOL_MARK, _REASON_MARK, _QUERY_MARK = "zqMarkzq", "zqToolzq", "zqReasonzq", "zqQueryzq"
_PROBE_TOOL: Tool = {
    "type": "function",
    "function": {
        "name": "probe",
        "description": _TOOL_MARK,
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
}
_QUERY: Message = {"role": "user", "content": _QUERY_MARK}
_OPENING: tuple[Message, ...] = ({"role": "system", "content": "s"}, _QUERY)


def load_tokenizer(directory: Path | str) -> Any:
    """The tokenizer of a Hugging Face model directory. Raises `UserError` when there is none that can be used."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise UserError("transformers is not installed; install the package with its `local` extra") from error
    if not Path(directory).is_dir():
        raise UserError(f"{directory} is not a directory; give a Hugging Face model directory")
    try:
        return AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"{directory} holds no usable tokenizer ({first_line}); it needs a tokenizer.json") from error


def load_chat(directory: Path | str) -> ChatTemplate:
    """The chat template of a Hugging Face model directory. Raises `UserError` naming the directory."""
    tokenizer = load_tokenizer(directory)
    try:
        return ChatTemplate(tokenizer, model_stop_ids(Path(directory)))
    except UserError as error:
        raise UserError(f"model {directory}: {error}") from None


class ChatTemplate:
    """The chat template of `tokenizer`. Raises `UserError` when it cannot carry a tool-calling episode.

    `stop_ids` are the tokens that end a reply: the template's own, the tokenizer's and those the model names.
    """

    def __init__(self, tokenizer: Any, model_stop_ids: Collection[int] = ()) -> None:
        self.tokenizer = tokenizer
        if not getattr(tokenizer, "chat_template", None):
            raise UserError("the tokenizer has no chat template; use an instruction-tuned model or add one")
        self._added = sorted(tokenizer.get_added_vocab(), key=len, reverse=True)
        special = special_tokens(tokenizer)
        self._special = Breaker(special)
        self._control = Breaker({*special, *structural_tokens(self._added, str(tokenizer.chat_template))})
        self.end_of_turn = self._find_end_of_turn()
        self.end_of_turn_id: int = tokenizer.convert_tokens_to_ids(self.end_of_turn)
        own = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
        self.stop_ids = frozenset({self.end_of_turn_id, *own, *model_stop_ids})
        opening = self._render(_OPENING, (_PROBE_TOOL,))
        self.starts_in_think = opening.rstrip().endswith(THINK_OPEN)
        self.shows_tools = _TOOL_MARK in opening
        self.prefix_preserving = self._check(opening)
        self.call_format = self._find_call_format()
        self._own_words = self._find_own_words()
        self._answer_wrap = self._find_answer_wrap()
        self._rendered_ids = lru_cache(maxsize=64)(self._render_ids)  # siblings ask for the same prompt

    def initial_ids(self, messages: Sequence[Message], tools: Sequence[Tool]) -> tuple[int, ...]:
        """The whole conversation and the generation prompt.

        Raises `UserError` for an empty system message that the template would fill with words of its own.
        """
        if self._own_words and any(message["role"] == "system" and not message["content"] for message in messages):
            raise UserError(
                f"the chat template writes {self._own_words[:80]!r} where the system message is empty, so that only "
                "prompts without skills would have it; take it out of the template, or set policy.prompt to full"
            )
        return self._rendered_ids(json.dumps([list(messages), list(tools)], ensure_ascii=False))

    def extension_ids(self, new_messages: Sequence[Message]) -> tuple[int, ...]:
        """What follows a reply (which ends with its end-of-turn token) up to where the model speaks again."""
        if self._answer_wrap and len(new_messages) == 1 and new_messages[0]["role"] == "tool":
            return self._encode_rendered(self._control(str(new_messages[0]["content"])).join(self._answer_wrap))
        return self._encode_rendered(self._extension([self._inert(message) for message in new_messages]))

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of `text` as the template would write it: control tokens in it are control tokens, nothing is added."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of sampled ids, without the token that ended them and with every other one shown."""
        body = list(ids[:-1] if ids and ids[-1] in self.stop_ids else ids)
        return str(self.tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def identity(self) -> dict[str, Any]:
        """Hashes of the template and of the vocabulary."""
        vocabulary = json.dumps(sorted(self.tokenizer.get_vocab().items()), ensure_ascii=False)
        return {
            "chat_template_sha256": hashlib.sha256(str(self.tokenizer.chat_template).encode()).hexdigest(),
            "vocabulary_sha256": hashlib.sha256(vocabulary.encode()).hexdigest(),
        }

    def _render_ids(self, conversation: str) -> tuple[int, ...]:
        messages, tools = json.loads(conversation)
        return self._encode_rendered(self._render([self._inert(m) for m in messages], each_text(tools, self._control)))

    def _inert(self, message: Message) -> Message:
        """The message with breaks in the control tokens it spells out.

        In what the policy said only the special ones are broken: its tags are real.
        """
        inert: Message = each_text(message, self._special if message["role"] == "assistant" else self._control)
        return inert

    def _encode_rendered(self, text: str) -> tuple[int, ...]:
        """Ids of a rendered text, its breaks left out."""
        if BREAK not in text:
            return self.encode(text)
        return tuple(token for piece in text.split(BREAK) for token in self.encode(piece))

    def _render(self, messages: Sequence[Message], tools: Sequence[Tool], reply_follows: bool = True) -> str:
        try:
            text = self.tokenizer.apply_chat_template(
                [_with_mappings(message) for message in messages],
                tools=list(tools) or None,
                add_generation_prompt=reply_follows,
                tokenize=False,
            )
        except Exception as error:  # templates raise whatever they like: jinja errors, TypeError, KeyError
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(
                f"the chat template cannot render this conversation ({reason}); use an instruction-tuned model's"
            ) from error
        return str(text)

    def _extension(self, new_messages: Sequence[Message]) -> str:
        answers_call = any(message["role"] == "tool" for message in new_messages)
        reply = _probe_reply() if answers_call else {"role": "assistant", "content": _MARK}
        text = self._render((*_OPENING, reply, *new_messages), ())
        return text.partition(_MARK)[2].partition(self.end_of_turn)[2]

    def _find_answer_wrap(self) -> tuple[str, str] | None:
        """What stands before and after one tool message's content, where the template leaves the content alone.

        Almost every extension is one tool message, and rendering a conversation costs as much as an environment step.
        """
        before, found, after = self._extension(
            ({"role": "tool", "tool_call_id": "call_0", "content": _MARK},)
        ).rpartition(_MARK)
        for content in ('\n zq  "Answer" \\<zq> & é\n\n', ""):
            answer: Message = {"role": "tool", "tool_call_id": "call_0", "content": content}
            if not found or self._extension((answer,)) != f"{before}{content}{after}":
                return None
        return before, after

    def _find_end_of_turn(self) -> str:
        """The first control token after an assistant message's text."""
        text = self._render((*_OPENING, {"role": "assistant", "content": _MARK}), (), reply_follows=False)
        rest = text.partition(_MARK)[2]
        found = [(rest.index(token), -len(token), token) for token in self._added if token in rest]
        if not found:
            raise UserError(
                "the chat template closes assistant messages with no control token of the tokenizer; add one"
            )
        return min(found)[2]

    def _check(self, opening: str) -> bool:
        """Refuse a template without tool calls or tool messages; tell whether it re-renders what it rendered before."""
        answers: tuple[tuple[Message, Message], ...] = (
            (_probe_reply(), {"role": "tool", "tool_call_id": "call_0", "content": "zqAnswerzq"}),
            ({"role": "assistant", "content": _MARK, "reasoning_content": _REASON_MARK}, _OPENING[1]),
        )
        preserving = True
        for reply, answer in answers:
            text = self._render((*_OPENING, {**reply, "reasoning_content": _REASON_MARK}, answer), (_PROBE_TOOL,))
            closing, answered, _ = text.partition(_MARK)[2].partition(str(answer["content"]))
            if text.count(_MARK) != 1 or not answered:
                raise UserError(
                    f"the chat template drops tool calls or {answer['role']} messages, so it cannot carry an episode; "
                    "use a model made for tool calls"
                )
            if self.end_of_turn not in closing:
                raise UserError(
                    f"the chat template closes text with {self.end_of_turn}, but not tool calls, so it cannot carry an "
                    "episode; use a model made for tool calls"
                )
            preserving &= (
                text.startswith(opening) and _REASON_MARK in text and text.endswith(self._extension((answer,)))
            )
        return preserving

    def _find_call_format(self) -> CallFormat:
        """The format that reads the template's own rendering of a call back."""
        text = self._render((*_OPENING, _probe_reply()), (_PROBE_TOOL,), reply_follows=False)
        before, mark, after = text.rpartition(_QUERY_MARK)[2].partition(_MARK)
        reply = before + mark + after.partition(self.end_of_turn)[0]
        for call_format in CALL_FORMATS:
            calls = parse_reply(reply, call_format).tool_calls
            if [(call.name, call.arguments) for call in calls] == [("probe", {"text": _MARK})]:
                return call_format
        shown = reply.removeprefix(self.end_of_turn).strip().replace(_MARK, "TEXT")
        known = " or ".join(call_format.name for call_format in CALL_FORMATS)
        raise UserError(
            f"the chat template writes a tool call as {shown!r}, which cannot be read here; use a model that writes "
            f"{known} calls"
        )

    def _find_own_words(self) -> str:
        """What the template writes into an empty system message, beyond what it writes around one with words."""
        for tools in ((), (_PROBE_TOOL,)):
            empty, said = (
                self._render(({"role": "system", "content": content}, _QUERY), tools) for content in ("", _MARK)
            )
            if words := _only_in(empty, said):
                return words
        return ""


def _only_in(text: str, other: str) -> str:
    """What stands in `text` between the beginning and the end it has in common with `other`."""
    start = _shared(text, other)
    rest, other = text[start:], other[start:]
    return rest[: len(rest) - _shared(rest[::-1], other[::-1])].strip()


def _shared(text: str, other: str) -> int:
    """How many characters the two begin with together."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, other)))


def _probe_reply() -> Message:
    """An assistant message whose call holds the marker (one call whatever follows: some templates refuse several)."""
    function = {"name": "probe", "arguments": json.dumps({"text": _MARK})}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_0", "type": "function", "function": function}],
    }


def _with_mappings(message: Message) -> Message:
    """Tool-call arguments as a mapping, which templates iterate over, instead of the JSON text endpoints exchange."""
    if not message.get("tool_calls"):
        return message
    calls = []
    for call in message["tool_calls"]:
        function = dict(call["function"])
        if isinstance(function["arguments"], str):
            function["arguments"] = json.loads(function["arguments"])
        calls.append({**call, "function": function})
    return {**message, "tool_calls": calls}
