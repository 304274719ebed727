"""openai-agents, on chat completions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from demo_chat import (
    ANSWER,
    KEY,
    PERSON_QUESTION,
    QUESTION,
    TOOL_ANSWER,
    TOOL_QUESTION,
    TOOL_RESULT,
    WAIT_S,
)
from pydantic import BaseModel

set_tracing_disabled(True)


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture
async def agent_on(url: str) -> AsyncIterator[Any]:
    """agent_on(**more): an agent on the server."""
    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=WAIT_S
    ) as client:
        model = OpenAIChatCompletionsModel("demo", client)
        settings = ModelSettings(temperature=0)
        yield lambda **more: Agent(name="a", model=model, model_settings=settings, **more)


async def test_run(agent_on: Any) -> None:
    assert (await Runner.run(agent_on(), QUESTION)).final_output == ANSWER


async def test_stream(agent_on: Any) -> None:
    result = Runner.run_streamed(agent_on(), QUESTION)
    deltas = [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    assert "".join(deltas) == result.final_output == ANSWER


@pytest.mark.parametrize("streams", [False, True], ids=["plain", "stream"])
async def test_tools(agent_on: Any, streams: bool) -> None:
    cities = []

    @function_tool
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        cities.append(city)
        return TOOL_RESULT

    agent = agent_on(tools=[get_weather])
    if streams:
        result: Any = Runner.run_streamed(agent, TOOL_QUESTION)
        async for _ in result.stream_events():
            pass
    else:
        result = await Runner.run(agent, TOOL_QUESTION)
    assert cities == ["Paris"]
    assert result.final_output == TOOL_ANSWER


async def test_structured_output(agent_on: Any) -> None:
    result = await Runner.run(agent_on(output_type=Person), PERSON_QUESTION)
    assert result.final_output == Person(name="Ella", age=52)
