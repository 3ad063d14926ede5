"""How servers say that a request does not fit the model's context window.

There is no common code for it: every server has words of its own, some with status 400, some with 413, 422 or 500, some
inside of a 200. They are the same words whether a conversation has outgrown the window or `max_tokens` alone is larger
than it; which of the two it is, only the asker can know.
"""

from __future__ import annotations

import re

_WORDINGS = (
    r"context[ _-]?(?:length|window|size|limit)",  # OpenAI, vLLM, SGLang, llama.cpp, Anthropic, LM Studio, MiniMax
    r"maximum (?:prompt|model|input) length",  # xAI, vLLM, Qwen's API
    r"(?:prompt|input)(?: length)? (?:is )?too long",  # Anthropic, Ollama
    r"token count\b.{0,60}\bexceeds",  # Gemini
    r"`?inputs`? (?:tokens \+ `?max_new_tokens`? must be|must have less than)",  # Text Generation Inference
    r"exceeded model token limit",  # Kimi
    r"range of input length",  # Qwen's API
    r"reduce the length of the (?:messages|input|prompt)",  # Groq, and the end of many others
)
_OVERFLOW = re.compile("|".join(_WORDINGS), re.IGNORECASE)


def says_too_long(message: str) -> bool:
    """Whether a server's refusal is about the context window."""
    return any(_OVERFLOW.finditer(message))
