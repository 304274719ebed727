"""Newcomer tasks: tokens and chat templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlc_native import MLCEngine

CHAT: list[Any] = [{"role": "user", "content": "Hi"}]


def test_count_tokens(engine: MLCEngine) -> None:
    """How long is a text?"""
    text = "The capital of France is Paris."
    ids = engine.tokenizer.encode(text)
    assert 0 < len(ids) <= len(text)
    assert engine.tokenizer.decode(ids) == text


def test_count_the_tokens_of_a_chat(engine: MLCEngine) -> None:
    """The count before a request is that of its usage."""
    rendered = engine.render_chat(CHAT)
    answer = engine.chat.completions.create(messages=CHAT, max_tokens=1)
    assert len(rendered.token_ids) == answer.usage.prompt_tokens
    assert "Hi" in rendered.text


def test_chat_template_of_transformers(thinker: MLCEngine, checkpoint: Path) -> None:
    """The prompt is the one that transformers makes."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    theirs = tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    assert thinker.render_chat(CHAT).text == theirs
    plain = tokenizer.apply_chat_template(CHAT, tokenize=False)
    assert thinker.render_chat(CHAT, add_generation_prompt=False).text == plain


def test_continue_the_last_message(engine: MLCEngine) -> None:
    """The start of an answer is given, and the model goes on."""
    chat = [
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": "The capital of France is"},
    ]
    answer = engine.chat.completions.create(
        messages=chat, continue_final_message=True, add_generation_prompt=False, temperature=0
    )
    assert "Paris" in answer.choices[0].message.content
