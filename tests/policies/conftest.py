"""A byte-level tokenizer without merges, and chat templates in the style of tool-calling models."""

from pathlib import Path

import pytest

QWEN_LIKE = """{%- if tools or (messages and messages[0].role == 'system') -%}
<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{%- if tools %}
# Tools
{% for tool in tools %}{{ tool.function | tojson }}
{% endfor %}{% endif %}<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}
<|im_start|>user
{{ message.content }}<|im_end|>
{% elif message.role == 'assistant' -%}
<|im_start|>assistant
{% if KEEP and message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>
{% endif %}{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>
<function={{ call.function.name }}>
{% for name, value in call.function.arguments | items %}<parameter={{ name }}>
{{ value }}
</parameter>
{% endfor %}</function>
</tool_call>{% endfor %}<|im_end|>
{% elif message.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user
{% endif %}<tool_response>
{{ message.content }}
</tool_response>
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>
{% else %}
{% endif %}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}"""


@pytest.fixture(scope="session")
def make_tokenizer():
    """make_tokenizer(template) -> a fresh tokenizer: one id per byte, plus control and tag tokens."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")

    def make(template: str | None):
        alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {symbol: index for index, symbol in enumerate(alphabet)}
        core = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
        core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = tokenizers.decoders.ByteLevel()
        core.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
        tags = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
        core.add_tokens([tokenizers.AddedToken(tag, special=False, normalized=False) for tag in tags])
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>"
        )
        tokenizer.chat_template = template
        return tokenizer

    return make


@pytest.fixture(scope="session")
def qwen_template() -> str:
    return QWEN_LIKE.replace("KEEP", "true")


@pytest.fixture(scope="session")
def forgetful_template() -> str:
    """Drops the reasoning of earlier turns, as several published templates do."""
    return QWEN_LIKE.replace("KEEP", "false")


@pytest.fixture(scope="session")
def tokenizer(make_tokenizer, qwen_template):
    return make_tokenizer(qwen_template)


@pytest.fixture(scope="session")
def tokenizer_dir(tokenizer, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(directory)
    return directory
