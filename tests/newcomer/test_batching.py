"""Newcomer tasks: many prompts at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mlc_native import AsyncMLCEngine, InvalidRequest, MLCEngine


def chat(question: str) -> list[Any]:
    return [{"role": "user", "content": question}]


def test_generate_prompts(engine: MLCEngine) -> None:
    """vLLM's `LLM.generate`: results in the order of the prompts."""
    prompts = [f"{i} and {i + 1} and" for i in range(20)]
    results = engine.generate(prompts, max_tokens=4, temperature=0)
    assert len(results) == 20
    for prompt, result in zip(prompts, results, strict=True):
        assert (
            result.text
            == engine.completions.create(prompt=prompt, max_tokens=4, temperature=0).choices[0].text
        )


def test_generate_chats(engine: MLCEngine) -> None:
    """vLLM's `LLM.chat`: a list of chats."""
    results = engine.generate([chat("What is 2 + 3?"), chat("What is 4 + 4?")], temperature=0)
    assert "5" in results[0].text
    assert "8" in results[1].text


def test_generate_one_prompt(engine: MLCEngine) -> None:
    """vLLM takes one prompt for a list of one."""
    [result] = engine.generate("The capital of France is", max_tokens=4)
    assert result.usage.completion_tokens <= 4


def test_generate_nothing(engine: MLCEngine) -> None:
    """An empty list has no results."""
    assert engine.generate([]) == []


def test_generate_from_token_ids(engine: MLCEngine) -> None:
    """A prompt may be a list of token ids; the result has those of the answer."""
    ids = engine.tokenizer.encode("Paris is")
    [by_ids, by_text] = engine.generate([ids, "Paris is"], max_tokens=4, temperature=0)
    assert by_ids.token_ids == by_text.token_ids
    assert engine.tokenizer.decode(by_ids.token_ids) == by_ids.text


def test_generate_from_a_generator(engine: MLCEngine) -> None:
    """Prompts may come from a file, line by line."""
    lines = iter(["Paris is\n", "London is\n"])
    results = engine.generate((line.strip() for line in lines), max_tokens=2)
    assert [result.error for result in results] == [None, None]


def test_one_bad_prompt(engine: MLCEngine) -> None:
    """A prompt that cannot run has an error in its place; the others have answers."""
    results = engine.generate(["Paris is", "word " * 100_000, "London is"], max_tokens=2)
    assert [result.error is None for result in results] == [True, False, True]
    assert isinstance(results[1].error, InvalidRequest)


def test_options_for_each_prompt(engine: MLCEngine) -> None:
    """vLLM takes a list of SamplingParams, one for each prompt."""
    results = engine.generate(["a", "b"], [{"max_tokens": 1}, {"max_tokens": 2}], ignore_eos=True)
    assert [result.usage.completion_tokens for result in results] == [1, 2]


def test_progress_bar(engine: MLCEngine, capsys: pytest.CaptureFixture[str]) -> None:
    """Progress goes to stderr, and only where it is asked for or a terminal shows it."""
    engine.generate(["a"] * 3, max_tokens=1)
    assert capsys.readouterr() == ("", "")
    engine.generate(["a"] * 3, max_tokens=1, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "3/3" in err


async def test_generate_async(async_engine: AsyncMLCEngine) -> None:
    """The batch of an asynchronous engine is awaited."""
    results = await async_engine.generate([chat("What is 2 + 3?")] * 3, temperature=0)
    assert [result.text for result in results] == [results[0].text] * 3


async def test_gather(async_engine: AsyncMLCEngine) -> None:
    """Tasks share the engine, and the failure of one is a value among the answers."""
    create = async_engine.chat.completions.create
    answers = await asyncio.gather(
        create(messages=chat("What is 2 + 3?"), temperature=0),
        create(messages=chat("What is 2 + 3?"), temperature=-1),
        create(messages=chat("What is 4 + 4?"), temperature=0),
        return_exceptions=True,
    )
    assert "5" in answers[0].choices[0].message.content
    assert isinstance(answers[1], InvalidRequest)
    assert "8" in answers[2].choices[0].message.content
