"""What operators look at: ``/debug/*``, the log of requests; and what the server does not have."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from live_server import CHAT, COMPLETIONS, USER, LiveServer, error_of

from mlc_native import AsyncMLCEngine
from mlc_native.server import ServerConfig

NAMES = ["dump_event_trace", "dump_engine_metrics", "reset_engine"]


@pytest.fixture(scope="module")
def debug_server() -> Iterator[LiveServer]:
    engine = AsyncMLCEngine("demo", "cpu", mode="server", enable_tracing=True)
    server = LiveServer({"demo": engine}, ServerConfig(enable_debug=True))
    yield server
    server.stop()


@pytest.mark.parametrize("name", NAMES)
def test_debug_is_off_by_default(demo_server: LiveServer, name: str) -> None:
    assert demo_server.post(f"/debug/{name}", {"model": "demo"}).status_code == 404


def test_debug(debug_server: LiveServer) -> None:
    debug_server.chat(max_tokens=3)
    trace = debug_server.post("/debug/dump_event_trace", {"model": "demo"}).json()
    assert any("prefill" in json.dumps(event) for event in trace)
    metrics = debug_server.post("/debug/dump_engine_metrics", {"model": "demo"}).json()
    assert metrics["completion_tokens_sum"] > 0
    assert debug_server.post("/debug/reset_engine", {"model": "demo"}).json() == {}
    metrics = debug_server.post("/debug/dump_engine_metrics", {}).json()
    assert metrics["completion_tokens_sum"] == 0
    for name in NAMES:
        assert debug_server.post(f"/debug/{name}", {"model": "x"}).status_code == 404


def test_a_trace_needs_tracing(serve: Any) -> None:
    server = serve(ServerConfig(enable_debug=True), answer="x")
    response = server.post("/debug/dump_event_trace", {})
    assert response.status_code == 400
    assert "--enable-tracing" in error_of(response)["message"]


def test_debug_config_needs_debug(debug_server: LiveServer, demo_server: LiveServer) -> None:
    body = {"messages": USER, "max_tokens": 5, "debug_config": {"ignore_eos": True}}
    honoured = debug_server.post(CHAT, body)
    assert honoured.json()["usage"]["completion_tokens"] == 5
    assert "ttft_s" in honoured.json()["usage"]["extra"]
    assert "x-ignored-fields" not in honoured.headers
    ignored = demo_server.post(CHAT, {**body, "debug_config": {"pinned_system_prompt": True}})
    assert ignored.headers["x-ignored-fields"] == "debug_config"
    assert "extra" not in ignored.json()["usage"]
    assert demo_server.metrics()["kv_pages_pinned"] == 0


@pytest.mark.parametrize("prefix", ["/v1", ""])
@pytest.mark.parametrize(
    "path",
    [
        *("pooling", "audio/speech"),
        *("images/generations", "images/edits", "images/variations"),
    ],
)
def test_what_there_is_not(demo_server: LiveServer, prefix: str, path: str) -> None:
    response = demo_server.post(f"{prefix}/{path}", {"model": "demo", "input": "x"})
    assert response.status_code == 400
    error = error_of(response)
    assert error["code"] == "unsupported_endpoint"
    assert error["type"] == "invalid_request_error"


def test_moderations_are_refused_as_such(demo_server: LiveServer) -> None:
    error = error_of(demo_server.post("/v1/moderations", {"input": "x"}))
    assert "moderation" in error["message"]
    assert "embeddings" not in error["message"]


def test_responses_are_not_stored(demo_server: LiveServer) -> None:
    for method, path in (("GET", "x"), ("DELETE", "x"), ("POST", "x/cancel")):
        response = demo_server.client.request(method, f"/v1/responses/{path}")
        assert response.status_code == 404
        assert error_of(response)["code"] == "response_not_found"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (ServerConfig(), None),
        (ServerConfig(request_log=True), ""),
        (ServerConfig(request_log=True, max_log_len=30), '{"messages": [{"role": "user",'),
    ],
    ids=["off", "without texts", "with texts"],
)
def test_the_log_of_requests(
    serve: Any, caplog: pytest.LogCaptureFixture, config: ServerConfig, expected: str | None
) -> None:
    server = serve(config, answer="ok")
    with caplog.at_level(logging.INFO, logger="mlc_native.requests"):
        server.post(
            CHAT,
            {
                "messages": [{"role": "user", "content": "private"}],
                "max_tokens": 2,
                "stop": ["no"],
                "cache_salt": "secret",
            },
            headers={"x-request-id": "mine", "authorization": "Bearer key"},
        )
    lines = [r.getMessage() for r in caplog.records if r.name == "mlc_native.requests"]
    if expected is None:
        assert lines == []
        return
    (line,) = lines
    entry = json.loads(line)
    assert entry["request_id"] == "mine"
    assert entry["settings"] == {"max_tokens": 2}
    assert entry.get("texts", "") == expected
    assert "private" not in line
    assert "secret" not in line
    assert "key" not in line


def test_the_log_of_requests_is_short_and_without_texts(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(ServerConfig(request_log=True), answer="ok")
    body = {
        "messages": USER,
        "chat_template_kwargs": {"note": "private"},
        "temperature": 10_000 * "x",  # refused, but not before it is logged
        "stop_token_ids": list(range(10_000)),
        "top_p": 0.5,
        "tool_choice": "none",
    }
    with caplog.at_level(logging.INFO, logger="mlc_native.requests"):
        assert server.post(CHAT, body).status_code == 400
    (line,) = [r.getMessage() for r in caplog.records if r.name == "mlc_native.requests"]
    assert json.loads(line)["settings"] == {
        "temperature": "(10002 characters)",
        "stop_token_ids": "(58890 characters)",
        "top_p": 0.5,
        "tool_choice": "none",
    }


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_continuous_usage(serve: Any, path: str) -> None:
    server = serve(answer="abcdef", us_per_step=50_000, cost="sleep")  # else steps share a chunk
    prompt: dict[str, Any] = {"messages": USER} if path == CHAT else {"prompt": ["hi", "you"]}
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {**prompt, "max_tokens": 6, "temperature": 0}
    *events, last = server.stream(path, {**body, "stream_options": options})
    counts = [event["usage"]["completion_tokens"] for event in events if event["usage"]]
    assert len(counts) >= 2
    assert counts == sorted(counts)
    assert counts[-1] <= last["usage"]["completion_tokens"]
    prompts = {event["usage"]["prompt_tokens"] for event in events if event["usage"]}
    assert prompts == {last["usage"]["prompt_tokens"]}
    plain = server.post(path, body).json()["usage"]
    assert plain["completion_tokens"] == last["usage"]["completion_tokens"]


def test_a_budget_of_reasoning(serve: Any) -> None:
    pytest.importorskip("xgrammar")
    templates = {
        True: "{{ messages[0].content }}<think>",
        False: "{{ messages[0].content }}{# <think> #}",
    }
    for opened, template in templates.items():
        server = serve(
            answer=("" if opened else "<think>") + "a" * 50 + "</think>the answer",
            chat_template=template,
        )
        free = server.chat()
        assert free["choices"][0]["message"]["reasoning"] == "a" * 50
        bounded = server.chat(thinking_token_budget=10)
        message = bounded["choices"][0]["message"]
        assert 0 < len(message["reasoning"]) <= 10
        assert "think>" not in message["content"]
        anthropic = {"max_tokens": 80, "messages": USER}
        thinking = {"type": "enabled", "budget_tokens": 10}
        answer = server.post("/v1/messages", {**anthropic, "thinking": thinking}).json()
        assert answer["content"][0]["type"] == "thinking"
        assert len(answer["content"][0]["thinking"]) <= 10
        refused = server.post(CHAT, {"messages": USER, "thinking_token_budget": -1})
        assert error_of(refused)["param"] == "thinking_token_budget"
