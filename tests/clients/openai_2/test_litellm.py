"""LiteLLM, on OpenAI's and on Anthropic's interface."""

from __future__ import annotations

import json
from typing import Any

import litellm
import pytest
from demo_chat import (
    ANSWER,
    ASK,
    KEY,
    PERSON_QUESTION,
    TOOL,
    TOOL_ANSWER,
    TOOL_ARGUMENTS,
    TOOL_QUESTION,
    TOOL_RESULT,
    TOOLS,
    WAIT_S,
)
from pydantic import BaseModel

litellm.telemetry = False


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture(params=["openai", "anthropic"])
def common(request: pytest.FixtureRequest, url: str) -> dict[str, Any]:
    base = f"{url}/v1" if request.param == "openai" else url
    return {
        "model": f"{request.param}/demo",
        "api_base": base,
        "api_key": KEY,
        "temperature": 0,
        "max_tokens": 100,
        "timeout": WAIT_S,
        "num_retries": 0,
    }


def test_completion(common: dict[str, Any]) -> None:
    answer = litellm.completion(messages=ASK, **common)
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens > 1


def test_stream(common: dict[str, Any]) -> None:
    chunks = list(litellm.completion(messages=ASK, stream=True, **common))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
    assert litellm.stream_chunk_builder(chunks).choices[0].message.content == ANSWER


async def test_async(common: dict[str, Any]) -> None:
    answer = await litellm.acompletion(messages=ASK, **common)
    assert answer.choices[0].message.content == ANSWER


@pytest.mark.parametrize("streams", [False, True], ids=["plain", "stream"])
def test_tools_in_two_rounds(common: dict[str, Any], streams: bool) -> None:
    def say(messages: list[Any]) -> Any:
        answer = litellm.completion(messages=messages, tools=TOOLS, stream=streams, **common)
        return litellm.stream_chunk_builder(list(answer)) if streams else answer

    history: list[Any] = [{"role": "user", "content": TOOL_QUESTION}]
    first = say(history).choices[0]
    assert first.finish_reason == "tool_calls"
    (call,) = first.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (TOOL, TOOL_ARGUMENTS)
    result = {"role": "tool", "tool_call_id": call.id, "content": TOOL_RESULT}
    history += [first.message, result]
    assert say(history).choices[0].message.content == TOOL_ANSWER


def test_structured_output(url: str) -> None:
    answer = litellm.completion(
        model="hosted_vllm/demo",
        api_base=f"{url}/v1",
        api_key=KEY,
        messages=[{"role": "user", "content": PERSON_QUESTION}],
        response_format=Person,
        temperature=0,
    )
    person = Person.model_validate_json(answer.choices[0].message.content)
    assert person == Person(name="Ella", age=52)


def test_errors(common: dict[str, Any]) -> None:
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**{**common, "model": common["model"][:-4] + "other"}, messages=ASK)
    with pytest.raises(litellm.AuthenticationError):
        litellm.completion(**{**common, "api_key": "other"}, messages=ASK)
