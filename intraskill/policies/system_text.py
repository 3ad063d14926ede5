"""Whether a server keeps an empty system message empty.

Some chat templates write a sentence of their own ("You are a helpful assistant ...") where the system message is empty.
Prompts with skills would not have it, so a comparison of the two would measure that sentence, too. A server's template
cannot be seen, but its token counts can: a prompt whose system message is empty must not be longer than the same prompt
with one word there. A server that counts nothing is believed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from intraskill.core.errors import UserError
from intraskill.core.records import Turn
from intraskill.policies.retry import Refused

_NOBODY = (401, 403, 404)  # no request of ours would be answered
Ask = Callable[[dict[str, Any]], Awaitable[Turn]]


def has_empty_system(body: dict[str, Any]) -> bool:
    """Whether a request's conversation begins with an empty system message."""
    first = body["messages"][0]
    return bool(first["role"] == "system" and not first["content"])


async def refuse_foreign_text(body: dict[str, Any], ask: Ask) -> None:
    """Compare two one-token replies to the conversation of `body`. Raises `UserError` when the server adds text.

    Raises `Refused` when it answers nobody with our key or no such model.
    """
    rest = body["messages"][1:]
    said, empty = (
        {**body, "max_tokens": 1, "messages": [{"role": "system", "content": content}, *rest]} for content in ("x", "")
    )
    try:
        longest = (await ask(said)).usage["prompt_tokens"]
        counted = (await ask(empty)).usage["prompt_tokens"]
    except Refused as refused:
        if refused.status in _NOBODY:
            raise
        return  # the episode's own request will tell what is wrong, if anything is
    if longest and counted > longest:
        raise UserError(
            f"the server of {body['model']!r} writes a text of its own ({counted - longest + 1} tokens or more) where "
            "the system message is empty, so that only prompts without skills would have it; serve the model with a "
            "chat template that does not, or set policy.prompt to full"
        )
