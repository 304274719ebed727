"""pydantic-ai, on OpenAI's and on Anthropic's interface."""

from __future__ import annotations

import json
from typing import Any

import pytest
from demo_chat import (
    ANSWER,
    KEY,
    PERSON_QUESTION,
    QUESTION,
    TOOL_ANSWER,
    TOOL_ARGUMENTS,
    TOOL_QUESTION,
    TOOL_RESULT,
)
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@pytest.fixture(params=["openai", "anthropic"])
def model(request: pytest.FixtureRequest, url: str) -> Any:
    settings: dict[str, Any] = {"temperature": 0, "max_tokens": 100}
    if request.param == "openai":
        provider = OpenAIProvider(base_url=f"{url}/v1", api_key=KEY)
        return OpenAIChatModel("demo", provider=provider, settings=settings)
    anthropic = AnthropicProvider(base_url=url, api_key=KEY)
    return AnthropicModel("demo", provider=anthropic, settings=settings)


async def test_run(model: Any) -> None:
    result = await Agent(model).run(QUESTION)
    assert result.output == ANSWER
    assert result.usage.output_tokens > 1


async def test_stream(model: Any) -> None:
    async with Agent(model).run_stream(QUESTION) as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
    assert "".join(pieces) == ANSWER


@pytest.mark.parametrize("streams", [False, True], ids=["plain", "stream"])
async def test_tools(model: Any, streams: bool) -> None:
    agent = Agent(model)
    calls = []

    @agent.tool_plain
    def get_weather(city: str) -> Any:
        """Get the weather of a city."""
        calls.append({"city": city})
        return json.loads(TOOL_RESULT)

    if streams:
        async with agent.run_stream(TOOL_QUESTION) as result:
            assert (await result.get_output()) == TOOL_ANSWER
    else:
        assert (await agent.run(TOOL_QUESTION)).output == TOOL_ANSWER
    assert calls == [TOOL_ARGUMENTS]


@pytest.mark.parametrize("output", [NativeOutput, ToolOutput])
async def test_structured_output(model: Any, output: Any) -> None:
    if isinstance(model, AnthropicModel) and output is NativeOutput:
        pytest.skip("pydantic-ai offers it for models of Anthropic that it knows by name")
    result = await Agent(model, output_type=output(Person)).run(PERSON_QUESTION)
    assert isinstance(result.output, Person)
