"""OpenAI's ``/v1/responses``: requests, whole answers, events."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fake_model import write_model
from live_server import CHAT, WAIT_S, LiveServer, error_of

from mlc_native import AsyncMLCEngine
from mlc_native.serve.streams import AddedText
from mlc_native.server import ServerConfig
from mlc_native.server.errors import HttpError
from mlc_native.server.responses import ResponsesDialect

RESPONSES = "/v1/responses"
CALLS = [("weather", {"city": 'a "quoted" place', "days": 2}), ("time", {})]
THOUGHT = "They ask for the weather."
TEXT = f"<think>{THOUGHT}</think>Let me look." + "\n".join(
    f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'
    for name, arguments in CALLS
)
TEMPLATE = (
    '{% if tools %}Use: <tool_call>\\n{"name": ...}\\n</tool_call> <think>{% endif %}'
    "{{ reasoning_effort }}"
    "{% for m in messages %}{{ m.role }}:{% if m.reasoning_content %}({{ m.reasoning_content }})"
    "{% endif %} {{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]"
    "{% endfor %}{{ '\\n' }}{% endfor %}assistant: "
)
TOOLS = [
    {
        "type": "function",
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
    {"type": "function", "name": "time"},
]


@pytest.fixture(scope="module")
def server(fake_lib: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("models")
    model = write_model(folder / "tools", answer=TEXT, chat_template=TEMPLATE)
    engine = AsyncMLCEngine(model, model_lib=fake_lib, mode="server")
    server = LiveServer({"fake": engine})
    yield server
    server.stop()


def ask(**fields: Any) -> dict[str, Any]:
    return {"model": "fake", "input": "What is the weather?", **fields}


def answer_to(server: LiveServer, **fields: Any) -> dict[str, Any]:
    response = server.post(RESPONSES, ask(**fields))
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def events_to(server: LiveServer, **fields: Any) -> list[dict[str, Any]]:
    return events_of(server.post(RESPONSES, ask(**fields, stream=True)))


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    events = []
    for part in response.text.split("\n\n")[:-1]:
        name, _, data = part.partition("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def rebuilt(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items that the events build. Each ``done`` must repeat what the deltas said."""
    items: list[dict[str, Any]] = []
    for event in events[2:-1]:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(items)
            assert event["item"]["status"] == "in_progress"
            items.append(event["item"])
            continue
        item = items[event["output_index"]]
        assert event["output_index"] == len(items) - 1
        assert event.get("item_id", item["id"]) == item["id"]
        if kind == "output_item.done":
            assert event["item"] == {**item, "status": event["item"]["status"]}
            items[-1] = event["item"]
        elif kind == "content_part.added":
            assert event["content_index"] == len(item["content"])
            item["content"].append(event["part"])
        elif kind == "content_part.done":
            assert event["part"] == item["content"][event["content_index"]]
        elif kind.startswith("function_call_arguments"):
            if kind.endswith("delta"):
                item["arguments"] += event["delta"]
            else:
                assert event["arguments"] == item["arguments"]
        else:
            part = item["content"][event["content_index"]]
            if kind.endswith("delta"):
                part["text"] += event["delta"]
                part["logprobs"] = part.get("logprobs", []) + event.get("logprobs", [])
                if kind.startswith("reasoning"):
                    del part["logprobs"]
            else:
                assert event["text"] == part["text"]
    return items


def without_ids(response: dict[str, Any]) -> dict[str, Any]:
    response = json.loads(json.dumps(response))
    assert response.pop("id").startswith("resp_")
    for name in ("created_at", "completed_at"):
        response.pop(name)
    for item in response["output"]:
        prefixes = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}
        assert item.pop("id").startswith(prefixes[item["type"]])
        item.pop("call_id", None)
    response["usage"].pop("input_tokens_details")  # the second request finds the first one's prompt
    return response


def test_a_plain_answer(server: LiveServer) -> None:
    answer = answer_to(server, tools=TOOLS)
    assert answer["object"] == "response"
    assert answer["status"] == "completed"
    assert answer["tools"] == TOOLS
    thinking, message, *calls = answer["output"]
    assert thinking["content"] == [{"type": "reasoning_text", "text": THOUGHT}]
    assert thinking["summary"] == []
    (part,) = message["content"]
    assert (part["type"], part["text"]) == ("output_text", "Let me look.")
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == CALLS
    assert len({call["call_id"] for call in calls}) == 2
    assert {item["status"] for item in answer["output"]} == {"completed"}
    usage = answer["usage"]
    # The fake model has a token for each character.
    reasoning_tokens = len(f"<think>{THOUGHT}</think>")
    assert usage["output_tokens_details"] == {"reasoning_tokens": reasoning_tokens}
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"tools": TOOLS}, "completed"),
        ({"top_logprobs": 2, "temperature": 0.5, "seed": 1}, "completed"),
        ({"top_logprobs": 2, "tools": TOOLS, "reasoning": {"effort": "none"}}, "completed"),
        ({"max_output_tokens": 10}, "incomplete"),
        ({"max_output_tokens": len(TEXT) - 30, "tools": TOOLS}, "incomplete"),
        ({"instructions": "Be brief.", "metadata": {"a": "b"}, "tool_choice": "none"}, "completed"),
    ],
    ids=str,
)
def test_a_stream_says_the_same(server: LiveServer, fields: Any, status: str) -> None:
    events = events_to(server, **fields)
    first, second, last = events[0], events[1], events[-1]
    assert [first["type"], second["type"]] == ["response.created", "response.in_progress"]
    assert first["response"]["status"] == "in_progress"
    assert first["response"]["output"] == []
    assert last["type"] == f"response.{status}"
    final = last["response"]
    assert final["status"] == status
    assert final["id"] == first["response"]["id"]
    assert rebuilt(events) == final["output"]
    texts = [i["content"][0]["text"] for i in final["output"] if i["type"] == "message"]
    assert "<think>" not in "".join(texts)
    plain = answer_to(server, **fields)
    assert without_ids(plain) == without_ids(final)
    is_cut = status == "incomplete"
    assert plain["incomplete_details"] == ({"reason": "max_output_tokens"} if is_cut else None)
    assert plain["output"][-1]["status"] == status
    for name in fields.keys() - {"seed"}:
        assert final[name] == fields[name]


def test_log_probabilities(serve: Any) -> None:
    server = serve(answer="Héllo 🤔 there")
    (plain,) = answer_to(server, top_logprobs=2, max_output_tokens=12)["output"]
    events = events_to(server, top_logprobs=2, max_output_tokens=12)
    (part,) = plain["content"]
    assert rebuilt(events)[0]["content"] == [part]
    assert bytes(b for each in part["logprobs"] for b in each["bytes"]).decode() == part["text"]
    for each in part["logprobs"]:
        assert each.keys() == {"token", "bytes", "logprob", "top_logprobs"}
        assert len(each["top_logprobs"]) == 2


def test_the_history(server: LiveServer) -> None:
    """Items become the messages of a chat: the prompt is that of the chat."""
    items = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "The weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Let me look.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "a", "name": "time", "arguments": '{"zone": 1}'},
        {"type": "function_call", "call_id": "b", "name": "time", "arguments": ""},
        {"type": "function_call_output", "call_id": "a", "output": "noon"},
        {
            "type": "function_call_output",
            "call_id": "b",
            "output": [{"type": "input_text", "text": "night"}],
        },
        {"role": "assistant", "content": "Noon."},
        {"role": "user", "content": "So?"},
    ]
    expected = (
        "lowsystem: Be brief.\nsystem: Be kind.\nuser: The weather?\n"
        'assistant:(hm) Let me look.[time {"zone": 1}][time {}]\ntool: noon\ntool: night\n'
        "assistant: Noon.\nuser: So?\nassistant: "
    )
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "The weather?"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "a", "function": {"name": "time", "arguments": '{"zone": 1}'}},
                {"id": "b", "function": {"name": "time", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "noon"},
        {"role": "tool", "tool_call_id": "b", "content": "night"},
        {"role": "assistant", "content": "Noon."},
        {"role": "user", "content": "So?"},
    ]
    body = {"messages": messages, "chat_template_kwargs": {"reasoning_effort": "low"}}
    counted = server.post("/tokenize", body).json()["tokens"]
    assert bytes(counted).decode() == expected
    answer = answer_to(
        server, input=items, instructions="Be brief.", reasoning={"effort": "low", "summary": None}
    )
    assert answer["usage"]["input_tokens"] == len(expected)
    assert answer["reasoning"] == {"effort": "low", "summary": None}
    chat = server.post(CHAT, {**body, "max_tokens": 1, "chat_template_kwargs": None}).json()
    low = {**body, "max_tokens": 1, "chat_template_kwargs": None, "reasoning_effort": "low"}
    counts = server.post(CHAT, low).json()["usage"]["prompt_tokens"]
    assert counts == chat["usage"]["prompt_tokens"] + len("low") == len(expected)


def test_a_form(demo_server: LiveServer) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
    body = {"input": "Is it?", "text": {"format": form}}
    answer = demo_server.post(RESPONSES, body).json()
    (part,) = answer["output"][-1]["content"]
    assert json.loads(part["text"]).keys() == {"ok"}
    assert answer["text"] == {"format": form}


def test_tools_of_openais_servers_are_ignored(server: LiveServer) -> None:
    tools = [{"type": "web_search"}, *TOOLS, {"type": "custom", "name": "c"}]
    response = server.post(RESPONSES, ask(tools=tools, unknown=1, truncation="auto"))
    assert response.status_code == 200, response.text
    named = response.headers["x-ignored-fields"]
    assert named == "tools.web_search, tools.custom, unknown, truncation"
    only = server.post(RESPONSES, ask(tools=[{"type": "local_shell"}], tool_choice="auto"))
    assert only.status_code == 200, only.text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [5]}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"input": [{"role": "user", "content": 5}]}, "input"),
        ({"instructions": 5}, "instructions"),
        ({"instructions": {}}, "instructions"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": "9"}, "max_output_tokens"),
        ({"max_output_tokens": 1 << 63}, "max_output_tokens"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True}, "background"),
        ({"tools": {}}, "tools"),
        ({"tools": [5]}, "tools"),
        ({"tools": TOOLS, "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "xml"}}}, "text"),
        ({"text": 1}, "text"),
        ({"reasoning": {"effort": 5}}, "reasoning_effort"),
        ({"temperature": -1}, "temperature"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"stream": 1}, "stream"),
    ],
    ids=str,
)
def test_errors(server: LiveServer, fields: Any, param: str) -> None:
    response = server.post(RESPONSES, ask(**fields))
    assert response.status_code == 400, response.text
    assert error_of(response)["param"] == param


def test_an_error_while_the_answer_is_written(serve: Any) -> None:
    server = serve(answer="abcdef", fail_at_forward=[4])
    events = events_to(server)
    assert events[-1]["type"] == "response.failed"
    final = events[-1]["response"]
    assert final["status"] == "failed"
    assert final["error"]["code"] == "server_error"


def test_the_items_of_a_response_that_fails_have_what_was_sent() -> None:
    dialect = ResponsesDialect(ask(stream=True), "fake", ServerConfig())
    sent = dialect.opening()
    sent += dialect.text_events(AddedText(0, "reasoning", "So"))
    sent += dialect.text_events(AddedText(0, "content", "Let me"))
    sent += dialect.error_events(HttpError(500, "the engine has failed"))
    events = events_of(httpx.Response(200, content=sent))
    final = events[-1]["response"]
    assert final["output"] == rebuilt(events)
    assert [item["status"] for item in final["output"]] == ["completed", "incomplete"]
    assert final["output"][1]["content"][0]["text"] == "Let me"


def test_an_error_of_a_plain_answer(serve: Any) -> None:
    server = serve(answer="abcdef", fail_at_forward=[4])
    response = server.post(RESPONSES, ask())
    assert response.status_code == 500
    assert error_of(response)["code"] == "engine_error"


def test_the_library_of_openai(server: LiveServer) -> None:
    openai = pytest.importorskip("openai")
    base_url = f"{server.url}/v1"
    with openai.OpenAI(base_url=base_url, api_key="any", timeout=WAIT_S, max_retries=0) as client:
        answer = client.responses.create(**ask(tools=TOOLS))
        assert answer.output_text == "Let me look."
        with client.responses.stream(**ask(tools=TOOLS)) as stream:
            final = stream.get_final_response()
        called = [
            (item.name, json.loads(item.arguments))
            for item in final.output
            if item.type == "function_call"
        ]
        assert called == CALLS
        # The second round: the items of the first one and the results are the input.
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
            for item in answer.output
            if item.type == "function_call"
        ]
        history = [
            {"role": "user", "content": "The weather?"},
            *(item.model_dump(exclude_none=True) for item in answer.output),
            *results,
        ]
        second = client.responses.create(**ask(input=history, tools=TOOLS))
        assert second.output_text == "Let me look."
        with pytest.raises(openai.BadRequestError):
            client.responses.create(**ask(temperature=-1))
