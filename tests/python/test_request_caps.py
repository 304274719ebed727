"""What one request may have: each cap is a setting, and what exceeds it is named."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from facades import OPENAI_FACADES
from fake_model import write_model

from mlc_native import EngineConfig, SyncMLCEngine
from mlc_native.errors import InvalidRequest
from mlc_native.json_ffi import JSONFFIEngine

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f"}}
CAPS: dict[str, Any] = {
    "max_messages": 3,
    "max_tools": 2,
    "max_logit_bias": 2,
    "max_stop_strs": 2,
    "max_stop_str_bytes": 4,
    "max_stop_token_ids": 2,
    "max_request_id_bytes": 16,
    "max_json_depth": 6,
}


def deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def call(arguments: Any) -> list[dict[str, Any]]:
    function = {"name": "f", "arguments": arguments}
    calls = [{"id": "c", "type": "function", "function": function}]
    return [{"role": "assistant", "content": "", "tool_calls": calls}, USER]


# The largest that is served, one that is not, and the field and the setting that the error names.
CHATS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "messages": ({"messages": [USER] * 3}, {"messages": [USER] * 4}, "messages", "max_messages"),
    "tools": (
        {"tools": [TOOL] * 2, "tool_choice": "none"},
        {"tools": [TOOL] * 3},
        "tools",
        "max_tools",
    ),
    "logit_bias": (
        {"logit_bias": {"1": 1, "2": 1}},
        {"logit_bias": {"1": 1, "2": 1, "3": 1}},
        "logit_bias",
        "max_logit_bias",
    ),
    "stop": ({"stop": ["a", "b"]}, {"stop": ["a", "b", "c"]}, "stop", "max_stop_strs"),
    "one stop": ({"stop": "abcd"}, {"stop": "abcde"}, "stop", "max_stop_str_bytes"),
    "bytes of stop": ({"stop": ["éé"]}, {"stop": ["ééé"]}, "stop", "max_stop_str_bytes"),
    "stop_token_ids": (
        {"stop_token_ids": [1, 2]},
        {"stop_token_ids": [1, 2, 3]},
        "stop_token_ids",
        "max_stop_token_ids",
    ),
    "request_id": (
        {"request_id": "é" * 8},
        {"request_id": "é" * 8 + "x"},
        "request_id",
        "max_request_id_bytes",
    ),
    "variables": (
        {"extra_body": {"chat_template_kwargs": deep(6)}},
        {"extra_body": {"chat_template_kwargs": deep(7)}},
        "chat_template_kwargs",
        "max_json_depth",
    ),
    "arguments": (
        {"messages": call(json.dumps(deep(6)))},
        {"messages": call(json.dumps(deep(7)))},
        "messages",
        "nested deeper than 6 levels",
    ),
    "very deep arguments": (
        {"messages": call(json.dumps([]))},
        {"messages": call("[" * 100_000)},
        "messages",
        "nested deeper than 6 levels",
    ),
}


@pytest.fixture(scope="module", params=OPENAI_FACADES)
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, fake_lib: str
) -> Iterator[Any]:
    model = write_model(tmp_path_factory.mktemp("caps") / "model")
    config = EngineConfig(**CAPS)
    made = OPENAI_FACADES[request.param](model, model_lib=fake_lib, engine_config=config)
    yield made
    made.terminate()


@pytest.mark.parametrize("name", CHATS)
def test_chats(engine: Any, name: str) -> None:
    largest, wrong, field, setting = CHATS[name]
    common = {"messages": [USER], "max_tokens": 1}
    engine.chat(**{**common, **largest})
    with pytest.raises(InvalidRequest, match=setting) as refused:
        engine.chat(**{**common, **wrong})
    assert refused.value.field == field


@pytest.mark.parametrize("name", ["logit_bias", "stop", "one stop", "stop_token_ids", "request_id"])
def test_completions_and_settings(engine: Any, name: str) -> None:
    largest, wrong, field, setting = CHATS[name]
    engine.complete(prompt="abc", max_tokens=1, **largest)
    with pytest.raises(InvalidRequest, match=setting) as refused:
        engine.complete(prompt="abc", max_tokens=1, **wrong)
    assert refused.value.field == field


def test_the_other_engines(make_model: Callable[..., str], fake_lib: str) -> None:
    model, config = make_model(), EngineConfig(**CAPS)
    engine = SyncMLCEngine(model, model_lib=fake_lib, engine_config=config)
    for wrong in (
        {"stop_strs": ["a"] * 3},
        {"stop_token_ids": [1, 2, 3]},
        {"stop_strs": ["a" * 5]},
    ):
        with pytest.raises(InvalidRequest, match="max_stop"):
            engine.create_request("r", "abc", wrong)
        with pytest.raises(InvalidRequest, match="max_stop"):
            engine.generate(["abc"], wrong)
    with pytest.raises(InvalidRequest, match="max_request_id_bytes"):
        engine.create_request("1" * 17, "abc")
    with pytest.raises(InvalidRequest, match="max_messages"):
        engine.render_chat([USER] * 4)
    ffi = JSONFFIEngine(model, model_lib=fake_lib, engine_config=config)
    (chunk,) = ffi.chat.completions.create(messages=[USER] * 4)
    assert "max_messages" in str(chunk.choices[0].delta.content)
    ffi.terminate()


def test_the_defaults() -> None:
    config = EngineConfig()
    assert (config.max_messages, config.max_tools, config.max_logit_bias) == (4096, 128, 1024)
    assert (config.max_stop_strs, config.max_stop_str_bytes) == (64, 1024)
    assert (config.max_stop_token_ids, config.max_request_id_bytes) == (1024, 256)
    assert (config.max_json_depth, config.max_pinned_prefixes) == (64, 64)


def test_what_is_too_much_is_refused_at_once(engine: Any) -> None:
    """It is counted before it is validated, which would take seconds."""
    messages = [USER] * 3_000_000
    start = time.process_time()
    with pytest.raises(InvalidRequest, match="max_messages"):
        engine.chat(messages=messages)
    assert time.process_time() - start < 1


def test_pins_have_an_owner_and_a_limit(make_model: Callable[..., str], fake_lib: str) -> None:
    config = EngineConfig(max_pinned_prefixes=2)
    engine = OPENAI_FACADES["sync"](make_model(), model_lib=fake_lib, engine_config=config)
    pin = {"debug_config": {"pinned_system_prompt": True}}
    for index in range(3):
        answer = engine.complete(
            prompt=f"{index}" * 40, max_tokens=1, request_id=f"r{index}", extra_body=pin
        )
        pinned = answer.usage.extra["pinned_tokens"]
        assert pinned == (40 if index < 2 else 0)
    assert [each.owner for each in engine.engine.pinned_prefixes()] == ["r0", "r1"]
    with pytest.raises(InvalidRequest, match="max_pinned_prefixes"):
        engine.engine.pin_prefix("2" * 40)
    engine.engine.pin_prefix("0" * 40)
    assert [each.owner for each in engine.engine.pinned_prefixes()] == ["", "r1"]
    engine.terminate()
