"""examples/langchain_model.py: what LangChain builds on a chat model, on the demo model."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlc_native import MLCEngine

pytest.importorskip("langchain_core")
pytestmark = [pytest.mark.nightly, pytest.mark.slow]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/langchain_model.py"
QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."


def get_weather(city: str) -> str:
    """Returns the weather of a city."""
    return f"{city}: sun"


@pytest.fixture(scope="module")
def engine() -> Iterator[MLCEngine]:
    with MLCEngine("demo", verbose=False, num_threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def chat(engine: MLCEngine) -> Any:
    spec = importlib.util.spec_from_file_location("langchain_model", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.ChatMLCNative(engine=engine, options={"temperature": 0, "max_tokens": 128})


def test_invoke_and_stream_agree(chat: Any) -> None:
    answer = chat.invoke(QUESTION)
    assert answer.content == ANSWER
    assert answer.response_metadata["finish_reason"] == "stop"
    usage = answer.usage_metadata
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 10
    parts = list(chat.stream(QUESTION))
    assert len(parts) > 1  # outputs that come fast are joined
    whole = parts[0]
    for part in parts[1:]:
        whole += part
    assert whole.content == ANSWER
    assert whole.usage_metadata["output_tokens"] == usage["output_tokens"]


def test_batches_chains_and_stops(chat: Any) -> None:
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompts import ChatPromptTemplate

    prompt = ChatPromptTemplate.from_messages([("human", "What is the capital of {country}?")])
    chain = prompt | chat | StrOutputParser()
    answers = chain.batch([{"country": "France"}, {"country": "Italy"}])
    assert answers == [ANSWER, "The capital of Italy is Rome."]
    assert chat.invoke(QUESTION, stop=["Paris"]).content.strip() == "The capital of France is"
    assert asyncio.run(chat.ainvoke(QUESTION)).content == ANSWER


def test_tools_are_called(chat: Any) -> None:
    forced = chat.bind_tools([get_weather], tool_choice="any")
    question = "What is the weather in Paris?"
    (call,) = forced.invoke(question).tool_calls
    assert call["name"] == "get_weather"
    assert isinstance(call["args"]["city"], str)
    named = chat.bind_tools([get_weather], tool_choice="get_weather").invoke(question)
    assert named.tool_calls[0]["args"] == call["args"]
    parts = list(forced.stream(question))
    whole = parts[0]
    for part in parts[1:]:
        whole += part
    assert whole.tool_calls[0]["args"] == call["args"]


def test_structured_output_is_an_object_of_the_class(chat: Any) -> None:
    from pydantic import BaseModel

    class Person(BaseModel):
        """A person."""

        name: str
        age: int

    person = chat.with_structured_output(Person).invoke("Anna is 31 years old.")
    assert isinstance(person, Person)
