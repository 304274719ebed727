"""The demo model's byte-level BPE tokenizer and its chat template."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from .example import Example
from .text import examples

SPECIAL_TOKENS = [
    "<|pad|>", "<|bos|>", "<|eos|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>",
]  # fmt: skip
PAD, BOS, EOS, SYSTEM, USER, ASSISTANT, END = range(len(SPECIAL_TOKENS))

# Tools stand in the system message, one JSON schema a line; a tool's result comes as a user turn
# in <tool_response> tags. A call's arguments may be an object or, as OpenAI has it, a JSON string.
CHAT_TEMPLATE = """\
{%- macro text(content) -%}
{%- if content is string -%}{{ content }}
{%- elif content is iterable -%}{%- for part in content -%}{{ part['text'] }}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{{- '<|bos|>' -}}
{%- set has_system = messages and messages[0]['role'] == 'system' -%}
{%- if has_system or tools -%}
{{- '<|system|>' -}}
{%- if has_system -%}{{ text(messages[0]['content']) }}{%- endif -%}
{%- if has_system and tools -%}{{ '\\n' }}{%- endif -%}
{%- if tools -%}
{{- 'You can call these tools:' -}}
{%- for tool in tools -%}{{ '\\n' + (tool | tojson) }}{%- endfor -%}
{%- endif -%}
{{- '<|end|>' -}}
{%- endif -%}
{%- for message in messages -%}
{%- set role = message['role'] -%}
{%- if role == 'system' -%}
{%- if not loop.first -%}{{ '<|system|>' + text(message['content']) + '<|end|>' }}{%- endif -%}
{%- elif role == 'user' -%}
{{- '<|user|>' + text(message['content']) + '<|end|>' -}}
{%- elif role == 'tool' -%}
{{- '<|user|><tool_response>' + text(message['content']) + '</tool_response><|end|>' -}}
{%- elif role == 'assistant' -%}
{{- '<|assistant|>' + text(message['content']) -}}
{%- for call in message['tool_calls'] or [] -%}
{%- set function = call['function'] if call['function'] else call -%}
{%- set arguments = function['arguments'] -%}
{{- '<tool_call>{"name": ' + (function['name'] | tojson) + ', "arguments": ' -}}
{{- arguments if arguments is string else (arguments | tojson) -}}
{{- '}</tool_call>' -}}
{%- endfor -%}
{{- '<|end|>' -}}
{%- else -%}
{{- raise_exception('unknown role: ' + role) -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}
"""


def template() -> jinja2.Template:
    """CHAT_TEMPLATE compiled as `transformers` compiles templates (its tojson escapes nothing)."""
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return env.from_string(CHAT_TEMPLATE)


def render(compiled: jinja2.Template, example: Example) -> str:
    """The text of an example as the model sees it, special tokens included."""
    if example.text is not None:
        return f"<|bos|>{example.text}<|eos|>"
    return compiled.render(messages=example.messages, tools=example.tools)


def train_tokenizer(seed: int, vocab_size: int, num_examples: int = 30000) -> Tokenizer:
    """Byte-level BPE over `num_examples` examples of `seed`; digits are tokens of their own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(seed, num_examples), trainer)
    return tokenizer


def _texts(seed: int, num_examples: int) -> Iterator[str]:
    for example in itertools.islice(examples(seed), num_examples):
        if example.text is not None:
            yield example.text
        yield from (json.dumps(tool) for tool in example.tools or [])
        yield from (message["content"] for message in example.messages)


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Write tokenizer.json and a tokenizer_config.json that holds the chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": "<|end|>",
        "pad_token": "<|pad|>",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
