"""llama-index-llms-openai-like."""

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
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return TOOL_RESULT


@pytest.fixture(scope="module")
def llm(url: str) -> OpenAILike:
    return OpenAILike(
        model="demo",
        api_base=f"{url}/v1",
        api_key=KEY,
        is_chat_model=True,
        is_function_calling_model=True,
        should_use_structured_outputs=True,
        temperature=0,
        timeout=WAIT_S,
        max_retries=0,
    )


ASK = [ChatMessage(role="user", content=QUESTION)]


def test_chat(llm: OpenAILike) -> None:
    assert llm.chat(ASK).message.content == ANSWER
    assert [each.delta for each in llm.stream_chat(ASK)] != [ANSWER]
    assert "".join(each.delta or "" for each in llm.stream_chat(ASK)) == ANSWER


async def test_async(llm: OpenAILike) -> None:
    assert (await llm.achat(ASK)).message.content == ANSWER
    stream = await llm.astream_chat(ASK)
    assert "".join([each.delta or "" async for each in stream]) == ANSWER


def test_complete(url: str) -> None:
    """A model that is not for chats is asked for completions."""
    llm = OpenAILike(
        model="demo", api_base=f"{url}/v1", api_key=KEY, temperature=0, max_tokens=8, max_retries=0
    )
    whole = llm.complete("one two").text
    assert whole
    assert "".join(each.delta or "" for each in llm.stream_complete("one two")) == whole


@pytest.mark.parametrize("streams", [False, True], ids=["plain", "stream"])
def test_tools_in_two_rounds(llm: OpenAILike, streams: bool) -> None:
    tool = FunctionTool.from_defaults(get_weather, description="Get the weather of a city.")
    question = ChatMessage(role="user", content=TOOL_QUESTION)
    if streams:
        *_, first = llm.stream_chat_with_tools([tool], chat_history=[question], tool_required=True)
    else:
        first = llm.chat_with_tools([tool], chat_history=[question], tool_required=True)
    (call,) = llm.get_tool_calls_from_response(first)
    assert (call.tool_name, call.tool_kwargs) == (TOOL, TOOL_ARGUMENTS)
    result = ChatMessage(
        role="tool", content=TOOL_RESULT, additional_kwargs={"tool_call_id": call.tool_id}
    )
    second = llm.chat_with_tools([tool], chat_history=[question, first.message, result])
    assert second.message.content == TOOL_ANSWER


def test_structured_output(llm: OpenAILike) -> None:
    answer = llm.as_structured_llm(Person).chat([ChatMessage(PERSON_QUESTION)])
    assert answer.raw == Person(name="Ella", age=52)
