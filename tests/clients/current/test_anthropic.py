"""Anthropic's library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from demo_chat import (
    ANSWER,
    ASK,
    KEY,
    PARAMETERS,
    TOOL,
    TOOL_ANSWER,
    TOOL_ARGUMENTS,
    TOOL_DESCRIPTION,
    TOOL_QUESTION,
    TOOL_RESULT,
    WAIT_S,
)

COMMON: dict[str, Any] = {"model": "demo", "max_tokens": 100, "extra_body": {"temperature": 0}}
TOOLS = [{"name": TOOL, "description": TOOL_DESCRIPTION, "input_schema": PARAMETERS}]


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0, timeout=WAIT_S) as client:
        yield client


def test_messages(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(messages=ASK, **COMMON)
    (block,) = answer.content
    assert block.text == ANSWER
    assert answer.stop_reason == "end_turn"
    counted = client.messages.count_tokens(model="demo", messages=ASK)
    usage = answer.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_stream(client: anthropic.Anthropic) -> None:
    with client.messages.stream(messages=ASK, **COMMON) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == ANSWER
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens > 1


async def test_async(url: str) -> None:
    async with anthropic.AsyncAnthropic(
        base_url=url, api_key=KEY, max_retries=0, timeout=WAIT_S
    ) as client:
        answer = await client.messages.create(messages=ASK, **COMMON)
        assert answer.content[0].text == ANSWER


@pytest.mark.parametrize("streams", [False, True], ids=["plain", "stream"])
def test_tools_in_two_rounds(client: anthropic.Anthropic, streams: bool) -> None:
    def say(messages: list[Any]) -> Any:
        if not streams:
            return client.messages.create(messages=messages, tools=TOOLS, **COMMON)
        with client.messages.stream(messages=messages, tools=TOOLS, **COMMON) as stream:
            return stream.get_final_message()

    history: list[Any] = [{"role": "user", "content": TOOL_QUESTION}]
    first = say(history)
    assert first.stop_reason == "tool_use"
    (call,) = [block for block in first.content if block.type == "tool_use"]
    assert (call.name, call.input) == (TOOL, TOOL_ARGUMENTS)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": TOOL_RESULT}
    history += [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    assert say(history).content[-1].text == TOOL_ANSWER


def test_errors(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="other", max_tokens=1, messages=ASK)
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(model="demo", max_tokens=0, messages=ASK)
    with pytest.raises(anthropic.AuthenticationError):
        client.with_options(api_key="other").messages.create(messages=ASK, **COMMON)
