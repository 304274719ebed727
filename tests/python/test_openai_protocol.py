"""Requests of the OpenAI interface: what is refused and how, defaults, conversion to settings."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.error_protocol import BadRequestError, create_error_response
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.openai_api_protocol import (
    ChatCompletionRequest,
    ChatCompletionResponseChoice,
    ChatCompletionStreamResponseChoice,
    CompletionRequest,
    CompletionResponseChoice,
)
from mlc_native.serve.openai_interface import request_fields
from mlc_native.serve.request_processing import generation_config

USER = {"role": "user", "content": "hi"}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {}}}


def chat(**fields: Any) -> ChatCompletionRequest:
    return ChatCompletionRequest(**{"messages": [USER], **fields})


def completion(**fields: Any) -> CompletionRequest:
    return CompletionRequest(**{"prompt": "hi", **fields})


@pytest.mark.parametrize("kind", [chat, completion])
def test_null_is_the_default(kind: Any) -> None:
    names = [name for name in type(kind()).model_fields if name not in ("messages", "prompt")]
    assert kind(**dict.fromkeys(names)) == kind()
    with pytest.raises(ValueError, match=r"messages|prompt"):
        kind(messages=None, prompt=None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"frequency_penalty": 2.5}, "range [-2, 2]"),
        ({"presence_penalty": -2.1}, "range [-2, 2]"),
        ({"presence_penalty": float("nan")}, "range [-2, 2]"),
        ({"logit_bias": {5: 101}}, "Logit bias value should be in range [-100, 100]"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"stream": "yes"}, "stream\n  Input should be a valid boolean"),
        ({"stream_options": {"include_usage": True}}, "stream must be set to True"),
        ({"debug_config": {"special_request": "query_engine_metrics"}}, "requires stream=True"),
        (
            {"debug_config": {"special_request": "query_engine_metrics"}, "stream": True},
            "requires include_usage",
        ),
        ({"debug_config": {"ignore_eoss": True}}, "ignore_eoss"),
        ({"temprature": 1}, "temprature"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"n": "many"}, "n\n"),
    ],
)
@pytest.mark.parametrize("make", [chat, completion])
def test_both_kinds_refuse(make: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        make(**fields)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"top_logprobs": 21, "logprobs": True}, '"top_logprobs" must be in range [0, 20]'),
        ({"logprobs": 3}, "must be true or false, got 3; top_logprobs is"),
        ({"logprobs": 10**3000}, "got 100000000000000000...0000000000000000000; top_logprobs is"),
        ({"top_logprobs": 2}, '"logprobs" must be True to support "top_logprobs"'),
        ({"messages": []}, "must not be empty"),
        (
            {"messages": [USER, {**USER, "tool_call_id": "1"}]},
            "Non-tool message having `tool_call_id` is invalid: the one at position 1 has the "
            'role "user"',
        ),
        (
            {"messages": [{**USER, "tool_calls": [{"function": {"name": "f"}}]}]},
            "Non-assistant message having `tool_calls`",
        ),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "role"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "contradict each other"),
        ({"tools": [{**WEATHER, "type": "oracle"}]}, "Only 'function' tool type is supported"),
        ({"tool_choice": {"type": "oracle"}}, "Only 'function' tool choice is supported"),
        ({"tool_choice": {"type": "function"}}, "Invalid tool_choice value"),
        (
            {
                "tools": [WEATHER],
                "tool_choice": {"type": "function", "function": {"name": "time"}},
            },
            "The tool_choice function time is not found in the tools list",
        ),
    ],
)
def test_chat_refuses(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        chat(**fields)
    assert message in str(error.value)


@pytest.mark.parametrize("logprobs", [-1, 6])
def test_completion_refuses_logprobs(logprobs: int) -> None:
    with pytest.raises(ValueError, match=r'"logprobs" must be in range \[0, 5\]'):
        completion(logprobs=logprobs)


# W33
@pytest.mark.parametrize(
    "choice", [ChatCompletionResponseChoice, ChatCompletionStreamResponseChoice]
)
@pytest.mark.parametrize(
    "reason", ["stop", "length", "tool_calls", "abort", "error", "timeout", None]
)
def test_every_finish_reason_can_be_told(choice: Any, reason: str | None) -> None:
    message = {"role": "assistant", "content": ""}
    assert choice(finish_reason=reason, message=message, delta=message).finish_reason == reason
    assert CompletionResponseChoice(finish_reason=reason, text="").finish_reason == reason


def test_settings_of_a_request() -> None:
    request = chat(
        temperature=0.5,
        top_p=0.25,
        top_k=7,
        min_p=0.125,
        repetition_penalty=1.5,
        max_completion_tokens=9,
        n=3,
        seed=11,
        stop="x",
        stop_token_ids=[4],
        logit_bias={"5": -100},
        logprobs=True,
        top_logprobs=20,
        ignore_eos=False,
        priority="low",
        queue_timeout_s=1.5,
        timeout_s=20,
    )
    config = generation_config(request, extra_stop_token_ids=[2])
    assert config == GenerationConfig(
        temperature=0.5,
        top_p=0.25,
        top_k=7,
        min_p=0.125,
        repetition_penalty=1.5,
        max_tokens=9,
        n=3,
        seed=11,
        stop_strs=["x"],
        stop_token_ids=[4, 2],
        logit_bias={5: -100.0},
        logprobs=True,
        top_logprobs=20,
        priority="low",
        queue_timeout_s=1.5,
        timeout_s=20,
        debug_config=DebugConfig(),
    )


def test_stop_list_of_the_caller_is_left_alone() -> None:
    stop = ["a", "b"]
    request = completion(stop=stop)
    config = generation_config(request, extra_stop_token_ids=[2])
    assert config.stop_strs is not None
    config.stop_strs.append("c")
    assert stop == ["a", "b"]
    assert request.stop == ["a", "b"]


def test_ignore_eos_keeps_the_stops_of_the_caller_only() -> None:
    config = generation_config(completion(ignore_eos=True, stop_token_ids=[4]), [2])
    assert config.stop_token_ids == [4]
    assert config.debug_config is not None
    assert config.debug_config.ignore_eos


@pytest.mark.parametrize("make", [chat, completion])
@pytest.mark.parametrize(
    ("stop_token_ids", "expected"), [(None, [2]), ([], []), ([4], [4, 2])], ids=str
)
def test_an_empty_list_of_stop_tokens_is_one(make: Any, stop_token_ids: Any, expected: Any) -> None:
    config = generation_config(make(stop_token_ids=stop_token_ids), extra_stop_token_ids=[2])
    assert config.stop_token_ids == expected
    assert generation_config(make(stop_token_ids=stop_token_ids)).stop_token_ids == stop_token_ids


@pytest.mark.parametrize(
    ("logprobs", "expected"), [(None, (False, 0)), (0, (True, 0)), (3, (True, 3))]
)
def test_completion_logprobs_are_a_count(logprobs: int | None, expected: tuple[bool, int]) -> None:
    config = generation_config(completion(logprobs=logprobs))
    assert (config.logprobs, config.top_logprobs) == expected


def test_tools_for_the_template() -> None:
    time = {"type": "function", "function": {"name": "time", "parameters": {}}}
    assert chat().template_tools() is None
    assert chat(tools=[WEATHER], tool_choice="none").template_tools() is None
    assert chat(tools=[WEATHER, time]).template_tools() == [WEATHER, time]
    chosen = {"type": "function", "function": {"name": "time"}}
    assert chat(tools=[WEATHER, time], tool_choice=chosen).template_tools() == [time]


@pytest.mark.parametrize("fields", [{}, {"parameters": None}, {"parameters": {}}], ids=str)
def test_a_tool_without_parameters(fields: dict[str, Any]) -> None:
    (tool,) = chat(tools=[{"type": "function", "function": {"name": "f", **fields}}]).tools
    assert tool.function.parameters == {}


def test_extra_body_is_checked_by_name() -> None:
    fields = request_fields(CompletionRequest, {"prompt": "x", "extra_body": {"top_k": 3}})
    assert fields == {"prompt": "x", "top_k": 3}
    with pytest.raises(BadRequestError, match='no field "topk"'):
        request_fields(CompletionRequest, {"prompt": "x", "extra_body": {"topk": 3}})
    with pytest.raises(BadRequestError, match='"extra_body" must be a dict'):
        request_fields(CompletionRequest, {"prompt": "x", "extra_body": ["top_k"]})


def test_generation_config_refuses_unknown_fields() -> None:
    with pytest.raises(ValueError, match="stop_strings"):
        GenerationConfig(stop_strings=["a"])  # type: ignore[call-arg]


def test_error_response_is_one_object() -> None:
    response = create_error_response(400, "no")
    assert response.model_dump() == {"object": "error", "message": "no", "code": 400}


def test_create_has_the_signature_of_mlc_llm() -> None:
    from mlc_native.serve.openai_interface import ChatCompletions, Completions

    shared = {
        "model": None,
        "frequency_penalty": None,
        "presence_penalty": None,
        "logit_bias": None,
        "max_tokens": None,
        "n": 1,
        "seed": None,
        "stop": None,
        "stream": False,
        "stream_options": None,
        "temperature": None,
        "top_p": None,
        "user": None,
        "response_format": None,
        "request_id": None,
        "extra_body": None,
    }
    required = inspect.Parameter.empty
    expected: dict[Any, dict[str, Any]] = {
        ChatCompletions: {
            "messages": required,
            "logprobs": False,
            "top_logprobs": 0,
            "tools": None,
            "tool_choice": None,
        },
        Completions: {
            "prompt": required,
            "best_of": 1,
            "echo": False,
            "logprobs": None,
            "suffix": None,
        },
    }
    for cls, own in expected.items():
        parameters = dict(inspect.signature(cls.create).parameters)
        parameters.pop("self")
        defaults = {name: p.default for name, p in parameters.items()}
        assert {**shared, **own}.items() <= defaults.items()
        assert all(p.kind is p.KEYWORD_ONLY for p in parameters.values())
