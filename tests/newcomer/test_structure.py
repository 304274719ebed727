"""Newcomer tasks: answers in a form, tools, reasoning."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from mlc_native import InvalidRequest, MLCEngine

pytest.importorskip("xgrammar")

ANNA: list[Any] = [
    {"role": "user", "content": "Give me a JSON object with name and age for Anna, 31."}
]
WEATHER: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
            "required": ["city"],
        },
    },
}


class Person(BaseModel):
    name: str
    age: int


def test_json_object(engine: MLCEngine) -> None:
    """OpenAI's JSON mode."""
    answer = engine.chat.completions.create(
        messages=ANNA, response_format={"type": "json_object"}, temperature=0
    )
    assert isinstance(json.loads(answer.choices[0].message.content), dict)


def test_json_schema(engine: MLCEngine) -> None:
    """A schema, as OpenAI's body has it."""
    schema = {"name": "person", "strict": True, "schema": Person.model_json_schema()}
    answer = engine.chat.completions.create(
        messages=ANNA,
        response_format={"type": "json_schema", "json_schema": schema},
        temperature=0,
    )
    assert Person.model_validate_json(answer.choices[0].message.content).age == 31


def test_parse_into_a_class(engine: MLCEngine) -> None:
    """`parse` with a pydantic class."""
    answer = engine.chat.completions.parse(messages=ANNA, response_format=Person, temperature=0)
    assert answer.choices[0].message.parsed == Person(name="Anna", age=31)


def test_class_as_response_format(engine: MLCEngine) -> None:
    """`create` with a pydantic class answers text of that form."""
    answer = engine.chat.completions.create(messages=ANNA, response_format=Person, temperature=0)
    assert json.loads(answer.choices[0].message.content) == {"name": "Anna", "age": 31}


def test_parse_an_enum(engine: MLCEngine) -> None:
    """A field with a few values gets one of them."""

    class Label(BaseModel):
        label: Literal["positive", "negative"]

    answer = engine.chat.completions.parse(
        messages=[{"role": "user", "content": "Is this good or bad: I love it"}],
        response_format=Label,
    )
    assert answer.choices[0].message.parsed.label in ("positive", "negative")


def test_one_of_a_few_words(engine: MLCEngine) -> None:
    """vLLM's `guided_choice` has another name here, and the error says which."""
    body = {"guided_choice": ["good", "bad"]}
    with pytest.raises(InvalidRequest, match=r"guided_choice.*response_format"):
        engine.chat.completions.create(messages=WEATHER, extra_body=body)
    answer = engine.chat.completions.create(
        messages=WEATHER, response_format={"type": "choice", "choice": ["good", "bad"]}
    )
    assert answer.choices[0].message.content in ("good", "bad")


def test_regular_expression(engine: MLCEngine) -> None:
    """An answer of two digits."""
    answer = engine.chat.completions.create(
        messages=WEATHER, response_format={"type": "regex", "regex": "[0-9]{2}"}
    )
    assert len(answer.choices[0].message.content) == 2
    assert answer.choices[0].message.content.isdigit()


def test_bad_schema(engine: MLCEngine) -> None:
    """A schema that is no schema is refused before anything runs."""
    schema = {"name": "x", "schema": {"type": "no such type"}}
    with pytest.raises(InvalidRequest, match="no such type"):
        engine.chat.completions.create(
            messages=ANNA, response_format={"type": "json_schema", "json_schema": schema}
        )


def test_required_tool(engine: MLCEngine) -> None:
    """`tool_choice="required"` calls a tool with arguments of its schema."""
    answer = engine.chat.completions.create(
        messages=WEATHER, tools=[TOOL], tool_choice="required", temperature=0
    )
    [choice] = answer.choices
    assert choice.finish_reason == "tool_calls"
    call = choice.message.tool_calls[0]
    assert call.function.name == "get_weather"
    assert isinstance(json.loads(call.function.arguments)["city"], str)


def test_answer_a_tool_call(engine: MLCEngine) -> None:
    """The result of a tool goes back as a message of the role `tool`."""
    create = engine.chat.completions.create
    named = {"type": "function", "function": {"name": "get_weather"}}
    first = create(messages=WEATHER, tools=[TOOL], tool_choice=named, temperature=0)
    message = first.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
    second = create(messages=[*WEATHER, message, result], tools=[TOOL], temperature=0)
    assert second.choices[0].message.content.startswith("It is")


def test_messages_of_openai(engine: MLCEngine) -> None:
    """A history that began with OpenAI's library has its objects."""
    chat = pytest.importorskip("openai.types.chat")
    call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    asked = chat.ChatCompletionMessage.model_validate({"role": "assistant", "tool_calls": [call]})
    result = {"role": "tool", "tool_call_id": "1", "content": "12 degrees"}
    messages = [*WEATHER, asked, result]
    as_dicts = [*WEATHER, asked.model_dump(exclude_none=True), result]
    assert engine.render_chat(messages) == engine.render_chat(as_dicts)
    answer = engine.chat.completions.create(messages=messages, temperature=0)
    assert answer.choices[0].message.content.startswith("It is")


def test_no_tool(engine: MLCEngine) -> None:
    """`tool_choice="none"` answers with text."""
    answer = engine.chat.completions.create(
        messages=WEATHER, tools=[TOOL], tool_choice="none", max_tokens=4
    )
    assert not answer.choices[0].message.tool_calls


def test_stream_a_tool_call(engine: MLCEngine) -> None:
    """A stream of a call has its arguments in pieces."""
    stream = engine.chat.completions.create(
        messages=WEATHER, tools=[TOOL], stream=True, temperature=0
    )
    deltas = [call for chunk in stream for call in chunk.choices[0].delta.tool_calls or []]
    assert deltas[0].function.name == "get_weather"
    arguments = "".join(delta.function.arguments or "" for delta in deltas)
    assert json.loads(arguments)["city"] == "Paris"


def test_thinking(thinker: MLCEngine) -> None:
    """Qwen3's switch; what a model thinks is apart from what it says."""
    create = thinker.chat.completions.create
    thinking = create(messages=WEATHER, max_tokens=8)
    assert thinking.choices[0].message.reasoning_content
    assert not thinking.choices[0].message.content
    switch = {"chat_template_kwargs": {"enable_thinking": False}}
    quiet = create(messages=WEATHER, max_tokens=8, extra_body=switch)
    assert quiet.choices[0].message.reasoning_content is None
    assert quiet.choices[0].message.content
