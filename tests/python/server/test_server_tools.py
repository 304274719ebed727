"""Calls of tools and reasoning through HTTP, in OpenAI's and in Anthropic's words."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_model import write_model
from live_server import CHAT, WAIT_S, LiveServer

from mlc_native import AsyncMLCEngine

MESSAGES = "/v1/messages"
CALLS = [("weather", {"city": 'a "quoted" place', "days": 2}), ("time", {})]
TEXT = "<think>They ask for the weather.</think>Let me look." + "\n".join(
    f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'
    for name, arguments in CALLS
)
TEMPLATE = (
    '{% if tools %}Use: <tool_call>\\n{"name": ...}\\n</tool_call> <think>{% endif %}'
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]"
    "{% endfor %}{{ '\\n' }}{% endfor %}assistant: "
)
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "time"}},
]
ASK = [{"role": "user", "content": "What is the weather?"}]
ANTHROPIC_TOOLS = [
    {"name": "weather", "description": "d", "input_schema": PARAMETERS},
    {"name": "time", "input_schema": {"type": "object"}},
]


@pytest.fixture(scope="module")
def server(fake_lib: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("models")
    model = write_model(folder / "tools", answer=TEXT, chat_template=TEMPLATE)
    engine = AsyncMLCEngine(model, model_lib=fake_lib, mode="server")
    server = LiveServer({"fake": engine})
    yield server
    server.stop()


def test_a_plain_answer(server: LiveServer) -> None:
    answer = server.chat(messages=ASK, tools=TOOLS)
    (choice,) = answer["choices"]
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls"
    assert message["reasoning"] == message["reasoning_content"] == "They ask for the weather."
    assert message["content"] == "Let me look."
    called = [
        (c["function"]["name"], json.loads(c["function"]["arguments"]))
        for c in message["tool_calls"]
    ]
    assert called == CALLS
    assert len({call["id"] for call in message["tool_calls"]}) == 2


def test_reasoning_may_be_left_out(server: LiveServer) -> None:
    fields = {"messages": ASK, "tools": TOOLS, "include_reasoning": False}
    (choice,) = server.chat(**fields)["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me look."
    assert not {"reasoning", "reasoning_content"} & set(choice["message"])
    deltas = [event["choices"][0]["delta"] for event in server.stream(CHAT, fields)]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Let me look."
    assert not any({"reasoning", "reasoning_content"} & set(delta) for delta in deltas)


def test_a_stream_says_the_same(server: LiveServer) -> None:
    events = server.stream(CHAT, {"messages": ASK, "tools": TOOLS})
    parts = {"content": "", "reasoning": "", "reasoning_content": ""}
    calls: list[dict[str, Any]] = []
    for event in events:
        delta = event["choices"][0]["delta"]
        for name in parts:
            parts[name] += delta.get(name) or ""
        for call in delta.get("tool_calls", []):
            if call["index"] == len(calls):
                calls.append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
            calls[call["index"]]["arguments"] += call["function"]["arguments"]
    assert parts["reasoning"] == parts["reasoning_content"] == "They ask for the weather."
    assert parts["content"] == "Let me look."
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == CALLS
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_two_rounds_with_openai(server: LiveServer) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        first = client.chat.completions.create(model="fake", messages=ASK, tools=TOOLS)
        message = first.choices[0].message
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
            for call in message.tool_calls
        ]
        history = [*ASK, message.model_dump(exclude_none=True), *results]
        second = client.chat.completions.create(model="fake", messages=history, tools=TOOLS)
        assert second.choices[0].message.content == "Let me look."
        with client.chat.completions.stream(model="fake", messages=ASK, tools=TOOLS) as stream:
            final = stream.get_final_completion()
    names = [call.function.name for call in final.choices[0].message.tool_calls]
    assert names == ["weather", "time"]
    # The history is in the prompt as the template writes it.
    counted = server.post("/tokenize", {"messages": history, "tools": TOOLS}).json()["tokens"]
    assert '[weather {"city"' in bytes(counted).decode()


# ------------------------------------------------------------------------------------ Anthropic


def ask(**fields: Any) -> dict[str, Any]:
    return {"model": "fake", "max_tokens": 1000, "messages": ASK, **fields}


def anthropic_events(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    events = []
    for part in response.text.split("\n\n")[:-1]:
        name, _, data = part.partition("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a stream makes, as the SDK does it."""
    message = events[0]["message"]
    inputs: dict[int, str] = {}
    open_block = None
    for event in events[1:]:
        kind, index = event["type"], event.get("index")
        if kind == "content_block_start":
            assert open_block is None
            open_block = index
            assert index == len(message["content"])
            message["content"].append(event["content_block"])
            inputs[index] = ""
        elif kind == "content_block_delta":
            assert index == open_block
            delta, block = event["delta"], message["content"][index]
            if delta["type"] == "input_json_delta":
                inputs[index] += delta["partial_json"]
            else:
                name = delta["type"].removesuffix("_delta")
                block[name] += delta[name]
        elif kind == "content_block_stop":
            assert index == open_block
            open_block = None
            if message["content"][index]["type"] == "tool_use":
                message["content"][index]["input"] = json.loads(inputs[index] or "{}")
        elif kind == "message_delta":
            message |= event["delta"]
            message["usage"] |= event["usage"]
    assert open_block is None
    assert events[-1] == {"type": "message_stop"}
    return message


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    message = json.loads(json.dumps(message))
    assert message.pop("id").startswith("msg_")
    for block in message["content"]:
        if block["type"] == "tool_use":
            assert block.pop("id")
    usage = message["usage"]
    usage["input_tokens"] += usage.pop("cache_read_input_tokens")
    return message


def test_messages(server: LiveServer) -> None:
    answer = server.post(MESSAGES, ask(tools=ANTHROPIC_TOOLS)).json()
    thinking, text, *calls = answer["content"]
    assert thinking == {
        "type": "thinking",
        "thinking": "They ask for the weather.",
        "signature": "",
    }
    assert text == {"type": "text", "text": "Let me look."}
    assert [(call["name"], call["input"]) for call in calls] == CALLS
    assert answer["stop_reason"] == "tool_use"
    assert answer["stop_sequence"] is None
    stream = server.post(MESSAGES, ask(tools=ANTHROPIC_TOOLS, stream=True))
    assert without_ids(assembled(anthropic_events(stream))) == without_ids(answer)


@pytest.mark.parametrize(
    ("fields", "reason", "sequence"),
    [
        ({"max_tokens": 8}, "max_tokens", None),
        ({}, "end_turn", None),
        ({"stop_sequences": ["weather"]}, "stop_sequence", "weather"),
        ({"stop_sequences": ["zebra", "for the"]}, "stop_sequence", "for the"),
        ({"stop_sequences": ["zebra"]}, "end_turn", None),
    ],
    ids=str,
)
def test_the_end_of_a_message(serve: Any, fields: Any, reason: str, sequence: str | None) -> None:
    server = serve(answer="They ask for the weather.")
    answer = server.post(MESSAGES, ask(**fields)).json()
    assert answer["stop_reason"] == reason
    assert answer["stop_sequence"] == sequence
    assert (sequence or "no sequence") not in answer["content"][0]["text"]
    stream = server.post(MESSAGES, ask(**fields, stream=True))
    assert without_ids(assembled(anthropic_events(stream))) == without_ids(answer)


@pytest.mark.parametrize("stop", ["zebra", "a text that is longer than all of the answer" * 9])
def test_text_in_front_of_calls_stays_there(server: LiveServer, stop: str) -> None:
    """A stream withholds the end of a text that may be a stop sequence, but not behind a call."""
    body = ask(tools=ANTHROPIC_TOOLS, stop_sequences=[stop])
    answer = server.post(MESSAGES, body).json()
    assert [block["type"] for block in answer["content"]] == [
        *("thinking", "text", "tool_use", "tool_use")
    ]
    stream = server.post(MESSAGES, body | {"stream": True})
    assert without_ids(assembled(anthropic_events(stream))) == without_ids(answer)


def test_a_call_that_the_request_names_is_a_use_of_a_tool(server: LiveServer) -> None:
    tools = [{"name": "time", "input_schema": {}}]  # without arguments, so that the call ends
    body = ask(tools=tools, tool_choice={"type": "tool", "name": "time"}, max_tokens=500)
    answer = server.post(MESSAGES, body).json()
    assert [block["type"] for block in answer["content"]] == ["tool_use"]
    assert answer["stop_reason"] == "tool_use"
    stream = assembled(anthropic_events(server.post(MESSAGES, body | {"stream": True})))
    assert stream["stop_reason"] == "tool_use"
    cut = server.post(MESSAGES, body | {"max_tokens": 8}).json()
    assert cut["stop_reason"] == "max_tokens"


def test_numbers_of_a_call_that_no_float_can_be(fake_lib: str, tmp_path: Path) -> None:
    text = '<tool_call>{"name": "weather", "arguments": {"a": [1e400, -1e999, 1e3]}}</tool_call>'
    model = write_model(tmp_path / "model", answer=text, chat_template=TEMPLATE)
    server = LiveServer({"fake": AsyncMLCEngine(model, model_lib=fake_lib, mode="server")})
    try:
        data = server.post(MESSAGES, ask(tools=ANTHROPIC_TOOLS)).text
    finally:
        server.stop()
    (block,) = json.loads(data, parse_constant=pytest.fail)["content"]
    largest = sys.float_info.max
    assert block["input"] == {"a": [largest, -largest, 1000.0]}


def test_the_history_of_messages(server: LiveServer) -> None:
    messages = [
        {"role": "user", "content": "first"},
        {"role": "user", "content": [{"type": "text", "text": "second", "cache_control": {}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "t1", "name": "time", "input": {"zone": "UTC"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "noon"},
                {"type": "text", "text": "So?"},
            ],
        },
    ]
    body = ask(messages=messages, system=[{"type": "text", "text": "Be brief."}])
    answer = server.post(MESSAGES, body).json()
    del body["max_tokens"]
    counted = server.post(f"{MESSAGES}/count_tokens", body).json()
    usage = answer["usage"]
    assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}
    expected = (
        "system: Be brief.\nuser: first\nsecond\n"
        'assistant: Let me look.[time {"zone": "UTC"}]\ntool: noon\nuser: So?\nassistant: '
    )
    assert counted["input_tokens"] == len(expected)


@pytest.mark.parametrize(
    ("fields", "status", "kind"),
    [
        ({"max_tokens": None}, 400, "invalid_request_error"),
        ({"max_tokens": 0}, 400, "invalid_request_error"),
        ({"messages": "hi"}, 400, "invalid_request_error"),
        ({"messages": [{"role": "system", "content": "x"}]}, 400, "invalid_request_error"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            400,
            "invalid_request_error",
        ),
        ({"messages": [{"role": "user", "content": [1]}]}, 400, "invalid_request_error"),
        ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, 400, "invalid_request_error"),
        ({"tools": [5]}, 400, "invalid_request_error"),
        ({"system": {}}, 400, "invalid_request_error"),
        ({"tool_choice": {"type": "tool", "name": "nothing"}}, 400, "invalid_request_error"),
        ({"tool_choice": "auto"}, 400, "invalid_request_error"),
        ({"tool_choice": {"type": ["auto"]}}, 400, "invalid_request_error"),
        ({"tool_choice": {"type": {}}}, 400, "invalid_request_error"),
        ({"stop_sequences": [""]}, 400, "invalid_request_error"),
        ({"output_config": {"format": {"type": "json_object"}}}, 400, "invalid_request_error"),
        ({"output_config": {"format": "json"}}, 400, "invalid_request_error"),
        ({"temperature": -1}, 400, "invalid_request_error"),
        ({"model": "claude"}, 404, "not_found_error"),
    ],
    ids=str,
)
def test_errors_of_messages(server: LiveServer, fields: Any, status: int, kind: str) -> None:
    for stream in (False, True):
        response = server.post(MESSAGES, ask(**fields) | {"stream": stream})
        assert response.status_code == status, response.text
        body = response.json()
        assert body["type"] == "error"
        assert body["error"].keys() == {"type", "message"}
        assert body["error"]["type"] == kind


def test_an_error_in_a_stream_of_messages(serve: Any) -> None:
    server = serve(answer="abcdef", fail_at_forward=[4])
    events = anthropic_events(server.post(MESSAGES, ask(stream=True)))
    assert events[-1]["error"]["type"] == "api_error"


def test_fields_of_messages(server: LiveServer) -> None:
    body = ask(
        metadata={"user_id": "u"},
        thinking={"type": "adaptive"},
        top_k=3,
        top_p=0.9,
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        tools=ANTHROPIC_TOOLS,
        container="x",
    )
    response = server.post(MESSAGES, body, headers={"anthropic-version": "2023-06-01"})
    assert response.status_code == 200, response.text
    assert response.headers["x-ignored-fields"] == "container"
    assert [b["type"] for b in response.json()["content"]].count("tool_use") == 1


def test_the_library_of_anthropic(server: LiveServer) -> None:
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=server.url, api_key="any", timeout=WAIT_S) as client:
        answer = client.messages.create(**ask(tools=ANTHROPIC_TOOLS))
        assert [block.type for block in answer.content] == [
            "thinking",
            "text",
            "tool_use",
            "tool_use",
        ]
        with client.messages.stream(**ask(tools=ANTHROPIC_TOOLS)) as stream:
            final = stream.get_final_message()
        assert [(b.name, b.input) for b in final.content if b.type == "tool_use"] == CALLS
        assert final.stop_reason == "tool_use"
        assert final.usage.output_tokens == answer.usage.output_tokens
        counted = client.messages.count_tokens(model="fake", messages=ASK)
        assert counted.input_tokens > 0
        with pytest.raises(anthropic.BadRequestError):
            client.messages.create(**ask(), extra_body={"temperature": -1})
