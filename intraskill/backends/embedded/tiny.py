"""The tiny model's fixed parts: vocabulary, chat format, architecture.

A policy of two million parameters has no capacity to spare for spelling. Its byte-level BPE is trained on the very
texts it will read, until every word of its world is one token; and the fixed pieces of the wire format and of its
world, the openings of its calls among them, are added tokens with their line breaks. So a call with such a piece as its
argument is four sampled tokens: opening, value, closing, end of turn.

Two kinds of argument take more. A choice is two tokens, `colour=` and `red`: the pre-tokenizer keeps `=` with the word
before it. A long number is cut into its first four digits and pairs after them, all of which are tokens, rather than
into whatever pieces happen to be frequent: every number then has the same few parts, and is copied pair by pair. A
number with a dash before it (`30-55`) keeps the dash, so that an amount is never mistaken for such a pair.

The *text* is the ordinary `qwen3_coder` format all the same: any parser of it reads this model's replies, and any other
text can be encoded, byte by byte if need be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config

END_OF_TURN = "<|im_end|>"
PADDING = "<|endoftext|>"
CONTROL_TOKENS = (PADDING, "<|im_start|>", END_OF_TURN)

# Longest match wins, so each of these is one token wherever it occurs. Not "special": decoding keeps them. None begins
# with the end of turn: a reply ends with that token alone, whether sampled or rendered again.
FORMAT_TOKENS = (
    "\n</parameter>\n</function>\n</tool_call>",
    "<|im_start|>system\n",
    "<|im_start|>user\n",
    "\n<|im_start|>user\n",
    "\n<|im_start|>assistant\n",
    "\n<|im_start|>user\n<tool_response>\n",
    f"\n</tool_response>{END_OF_TURN}\n<|im_start|>assistant\n",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
_PAIR_COPIES = 50  # of each pair of digits among the texts, so that all of them become tokens
_PIECES = Regex(
    r" ?[0-9]{4}(?=(?:[0-9]{2})+(?![0-9]))"  # the head of a long number
    r"|(?<=[0-9]{4})[0-9]{2}"  # and its pairs
    r"|[ -]?[0-9]+"
    r"| ?\p{L}+=?"
    r"| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?!\S)|\s+"
)

# An empty system message leaves no trace. Tool schemas are not rendered: this model knows its tools.
CHAT_TEMPLATE = """\
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}
{%- if message.reasoning_content %}
{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n' }}
{%- endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n<function=' + call.function.name + '>\\n' }}
{%- for name, value in call.function.arguments.items() %}
{{- '<parameter=' + name + '>\\n' + value | string + '\\n</parameter>\\n' }}
{%- endfor %}
{{- '</function>\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.content %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}"""


def build_tokenizer(texts: Iterable[str], vocabulary: int, whole: Sequence[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE of at most `vocabulary` tokens, added ones included, trained on `texts`.

    `whole` are the texts that are one token besides those of the format: how calls begin, and what never varies.
    """
    pieces = (*whole, *FORMAT_TOKENS)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(_PIECES, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    added = len(CONTROL_TOKENS) + len(pieces)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - added,
        min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    pairs = (f"1000{number:02d}" for number in range(100) for _ in range(_PAIR_COPIES))
    tokenizer.train_from_iterator(chain(texts, pairs), trainer)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in CONTROL_TOKENS])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in pieces])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=PADDING,
        chat_template=CHAT_TEMPLATE,
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )


def tiny_config(tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    """Qwen3 at about two million parameters."""
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
