"""langchain-openai."""

from __future__ import annotations

import pytest
from demo_chat import (
    ANSWER,
    KEY,
    PERSON_QUESTION,
    QUESTION,
    TOOL,
    TOOL_ANSWER,
    TOOL_ARGUMENTS,
    TOOL_QUESTION,
    TOOL_RESULT,
    WAIT_S,
)
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return TOOL_RESULT


@pytest.fixture(scope="module")
def model(url: str) -> ChatOpenAI:
    return ChatOpenAI(
        model="demo",
        base_url=f"{url}/v1",
        api_key=KEY,
        temperature=0,
        timeout=WAIT_S,
        max_retries=0,
        stream_usage=True,
    )


def test_invoke(model: ChatOpenAI) -> None:
    answer = model.invoke(QUESTION)
    assert answer.content == ANSWER
    assert answer.usage_metadata["output_tokens"] > 1
    assert answer.response_metadata["finish_reason"] == "stop"


def test_stream(model: ChatOpenAI) -> None:
    chunks = list(model.stream(QUESTION))
    assert "".join(chunk.content for chunk in chunks) == ANSWER
    assert sum(c.usage_metadata["output_tokens"] for c in chunks if c.usage_metadata) > 1


async def test_async(model: ChatOpenAI) -> None:
    assert (await model.ainvoke(QUESTION)).content == ANSWER
    assert "".join([chunk.content async for chunk in model.astream(QUESTION)]) == ANSWER


def test_tools_in_two_rounds(model: ChatOpenAI) -> None:
    with_tools = model.bind_tools([get_weather])
    question = HumanMessage(TOOL_QUESTION)
    first = with_tools.invoke([question])
    (call,) = first.tool_calls
    assert (call["name"], call["args"]) == (TOOL, TOOL_ARGUMENTS)
    result = get_weather.invoke(call)
    assert isinstance(result, ToolMessage)
    assert with_tools.invoke([question, first, result]).content == TOOL_ANSWER

    chunks = list(with_tools.stream([question]))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    (streamed,) = whole.tool_calls
    assert (streamed["name"], streamed["args"]) == (TOOL, TOOL_ARGUMENTS)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(model: ChatOpenAI, method: str) -> None:
    person = model.with_structured_output(Person, method=method).invoke(PERSON_QUESTION)
    assert isinstance(person, Person)
    if method == "json_schema":
        assert person == Person(name="Ella", age=52)
