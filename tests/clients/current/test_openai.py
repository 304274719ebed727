"""OpenAI's library."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from demo_chat import (
    ANSWER,
    ASK,
    KEY,
    PERSON_QUESTION,
    QUESTION,
    TOOL,
    TOOL_ANSWER,
    TOOL_ARGUMENTS,
    TOOL_QUESTION,
    TOOL_RESULT,
    TOOLS,
    WAIT_S,
)
from pydantic import BaseModel


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=WAIT_S) as client:
        yield client


@pytest.fixture
async def async_client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=WAIT_S
    ) as client:
        yield client


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").object == "model"


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="demo", messages=ASK, temperature=0)
    (choice,) = answer.choices
    assert choice.message.content == ANSWER
    assert choice.finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.create(
        model="demo",
        messages=ASK,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == ANSWER
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens > 1


def test_stream_helper_with_logprobs(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"logprobs": True, "top_logprobs": 2, "temperature": 0}
    with client.chat.completions.stream(model="demo", messages=ASK, **options) as stream:
        events = [event.type for event in stream]
        streamed = stream.get_final_completion().choices[0]
    plain = client.chat.completions.create(model="demo", messages=ASK, **options).choices[0]
    assert "content.delta" in events
    assert events[-1] != "error"
    assert streamed.message.content == plain.message.content == ANSWER
    assert [t.token for t in streamed.logprobs.content] == [t.token for t in plain.logprobs.content]
    assert "".join(t.token for t in plain.logprobs.content).startswith(ANSWER)
    assert all(len(t.top_logprobs) == 2 for t in plain.logprobs.content)


def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="demo", prompt=["one two", "three"], max_tokens=4, temperature=0, echo=True
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].text.startswith("one two")
    chunks = list(
        client.completions.create(
            model="demo", prompt="one two", max_tokens=4, temperature=0, stream=True
        )
    )
    streamed = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert "one two" + streamed == answer.choices[0].text


async def test_async(async_client: openai.AsyncOpenAI) -> None:
    answer = await async_client.chat.completions.create(model="demo", messages=ASK, temperature=0)
    assert answer.choices[0].message.content == ANSWER
    stream = await async_client.chat.completions.create(
        model="demo", messages=ASK, temperature=0, stream=True
    )
    text = "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
    assert text == ANSWER


def second_round(message: Any) -> list[Any]:
    """The history with the result of the call in a message of the assistant."""
    (call,) = message.tool_calls
    assert call.function.name == TOOL
    assert json.loads(call.function.arguments) == TOOL_ARGUMENTS
    result = {"role": "tool", "tool_call_id": call.id, "content": TOOL_RESULT}
    return [{"role": "user", "content": TOOL_QUESTION}, message, result]


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_tools_in_two_rounds(client: openai.OpenAI, choice: str) -> None:
    ask = [{"role": "user", "content": TOOL_QUESTION}]
    common: dict[str, Any] = {"model": "demo", "tools": TOOLS, "temperature": 0}
    first = client.chat.completions.create(messages=ask, tool_choice=choice, **common)
    assert first.choices[0].finish_reason == "tool_calls"
    history = second_round(first.choices[0].message)
    second = client.chat.completions.create(messages=history, **common)
    assert second.choices[0].message.content == TOOL_ANSWER


def test_tools_in_two_streams(client: openai.OpenAI) -> None:
    ask = [{"role": "user", "content": TOOL_QUESTION}]
    common: dict[str, Any] = {"model": "demo", "tools": TOOLS, "temperature": 0}
    with client.chat.completions.stream(messages=ask, **common) as stream:
        done = [e for e in stream if e.type == "tool_calls.function.arguments.done"]
        message = stream.get_final_completion().choices[0].message
    assert [event.name for event in done] == [TOOL]
    history = second_round(message)
    with client.chat.completions.stream(messages=history, **common) as stream:
        assert stream.get_final_completion().choices[0].message.content == TOOL_ANSWER


def test_strict_tool(client: openai.OpenAI) -> None:
    tool = openai.pydantic_function_tool(Person, name="person")
    answer = client.chat.completions.parse(
        model="demo",
        messages=[{"role": "user", "content": PERSON_QUESTION}],
        tools=[tool],
        tool_choice={"type": "function", "function": {"name": "person"}},
        temperature=0,
    )
    (call,) = answer.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Person)


def test_parse(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {
        "model": "demo",
        "messages": [{"role": "user", "content": PERSON_QUESTION}],
        "response_format": Person,
        "temperature": 0,
    }
    person = Person(name="Ella", age=52)
    assert client.chat.completions.parse(**ask).choices[0].message.parsed == person
    with client.chat.completions.stream(**ask) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == person


def test_responses(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="demo", input=QUESTION, temperature=0)
    assert answer.output_text == ANSWER


def test_timeout(client: openai.OpenAI) -> None:
    """The server drops what the client no longer waits for, and answers the next request."""
    impatient = client.with_options(timeout=0.001)
    with pytest.raises(openai.APITimeoutError):
        impatient.chat.completions.create(
            model="demo", messages=ASK, extra_body={"min_tokens": 100}, max_tokens=100
        )
    test_chat(client)


def test_errors(client: openai.OpenAI, url: str) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="other", messages=ASK)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="demo", messages=ASK, temperature=-1)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="other").models.list()
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model="demo", messages=ASK, response_format=Person, max_tokens=1
        )
