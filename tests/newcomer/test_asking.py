"""Newcomer tasks: load a model and ask it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlc_native import AsyncMLCEngine, MLCEngine

FRANCE: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]


def test_ask_one_question() -> None:
    """The three lines of every README: load, ask, print."""
    with MLCEngine("demo") as engine:
        answer = engine.chat.completions.create(messages=FRANCE, temperature=0)
    assert "Paris" in answer.choices[0].message.content


def test_name_the_model_in_the_request(engine: MLCEngine) -> None:
    """OpenAI's library requires `model`."""
    answer = engine.chat.completions.create(model="demo", messages=FRANCE, temperature=0)
    assert "Paris" in answer.choices[0].message.content
    assert answer.model == "demo"


def test_stream_an_answer(engine: MLCEngine) -> None:
    """The pieces of a stream make the answer."""
    text = ""
    for chunk in engine.chat.completions.create(messages=FRANCE, stream=True, temperature=0):
        text += chunk.choices[0].delta.content or ""
    whole = engine.chat.completions.create(messages=FRANCE, temperature=0)
    assert text == whole.choices[0].message.content


def test_stream_with_usage(engine: MLCEngine) -> None:
    """The last chunk has no choice and counts the tokens."""
    chunks = list(
        engine.chat.completions.create(
            messages=FRANCE, stream=True, stream_options={"include_usage": True}, max_tokens=4
        )
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens <= 4
    assert chunks[-1].usage.total_tokens > chunks[-1].usage.prompt_tokens > 0


def test_system_message(engine: MLCEngine) -> None:
    """A system message stands in front of the question."""
    answer = engine.chat.completions.create(
        messages=[{"role": "system", "content": "You are a helpful assistant."}, *FRANCE],
        temperature=0,
    )
    assert "Paris" in answer.choices[0].message.content


def test_go_on_with_the_answer_object(engine: MLCEngine) -> None:
    """OpenAI's habit: the message of an answer is appended to the chat as it is."""
    messages = list(FRANCE)
    first = engine.chat.completions.create(messages=messages, temperature=0)
    messages.append(first.choices[0].message)
    messages.append({"role": "user", "content": "What is 2 + 3?"})
    second = engine.chat.completions.create(messages=messages, temperature=0)
    assert "5" in second.choices[0].message.content
    assert second.usage.prompt_tokens > first.usage.total_tokens


def test_content_as_parts(engine: MLCEngine) -> None:
    """A message may be a list of text parts."""
    parts = [{"type": "text", "text": "What is the capital of France?"}]
    answer = engine.chat.completions.create(
        messages=[{"role": "user", "content": parts}], temperature=0
    )
    assert "Paris" in answer.choices[0].message.content


def test_parts_in_every_role(engine: MLCEngine) -> None:
    """As in OpenAI's interface, the content of any message may be a list of text parts."""
    texts = [
        ("system", "You are a helpful assistant."),
        ("user", "What is the weather in Paris?"),
        ("assistant", "I look it up."),
        ("tool", "sunny"),
        ("user", "What is 2 + 2?"),
    ]
    plain = [{"role": role, "content": text} for role, text in texts]
    parts = [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in texts]
    assert engine.render_chat(parts).text == engine.render_chat(plain).text


def test_limit_the_length(engine: MLCEngine) -> None:
    """Both names of the limit end the answer, and the reason says so."""
    for limit in ({"max_tokens": 2}, {"max_completion_tokens": 2}):
        answer = engine.chat.completions.create(messages=FRANCE, **limit)
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage.completion_tokens == 2


def test_complete_a_text(engine: MLCEngine) -> None:
    """`completions.create` continues a prompt, without the chat template."""
    answer = engine.completions.create(prompt="The capital of France is", max_tokens=4)
    assert answer.choices[0].text
    assert answer.object == "text_completion"


def test_complete_several_texts(engine: MLCEngine) -> None:
    """A list of prompts has a choice for each, in order."""
    answer = engine.completions.create(prompt=["One, two,", "Paris is"], max_tokens=3)
    assert [choice.index for choice in answer.choices] == [0, 1]


def test_complete_token_ids(engine: MLCEngine) -> None:
    """A prompt may be the tokens of a text."""
    ids = engine.tokenizer.encode("The capital of France is")
    by_ids = engine.completions.create(prompt=ids, max_tokens=4, temperature=0)
    by_text = engine.completions.create(
        prompt="The capital of France is", max_tokens=4, temperature=0
    )
    assert by_ids.choices[0].text == by_text.choices[0].text


def test_answer_as_json(engine: MLCEngine) -> None:
    """An answer is a pydantic model, as in OpenAI's library."""
    answer = engine.chat.completions.create(messages=FRANCE, max_tokens=4)
    body = json.loads(answer.model_dump_json())
    assert body == answer.model_dump(mode="json")
    assert body["choices"][0]["message"]["role"] == "assistant"


def test_body_from_a_file(engine: MLCEngine) -> None:
    """A recorded body has fields without a meaning here; the error names the method for it."""
    body = json.loads(
        '{"model": "demo", "messages": [{"role": "user", "content": "What is 2 + 3?"}],'
        ' "temperature": 0, "user": "me", "store": false}'
    )
    with pytest.raises(TypeError, match=r"'store'.*create_from"):
        engine.chat.completions.create(**body)
    with pytest.warns(UserWarning, match="store") as warned:
        answer = engine.chat.completions.create_from(body)
    assert warned[0].filename == __file__
    assert "5" in answer.choices[0].message.content


async def test_ask_async() -> None:
    """The asynchronous engine has the same methods."""
    async with AsyncMLCEngine("demo") as engine:
        answer = await engine.chat.completions.create(messages=FRANCE, temperature=0)
    assert "Paris" in answer.choices[0].message.content


async def test_stream_async(async_engine: AsyncMLCEngine) -> None:
    """An awaited stream is iterated with `async for`."""
    text = ""
    stream = await async_engine.chat.completions.create(messages=FRANCE, stream=True, temperature=0)
    async for chunk in stream:
        text += chunk.choices[0].delta.content or ""
    assert "Paris" in text
