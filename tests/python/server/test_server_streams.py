"""Streams: the events, and that they say the same as a plain answer."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from live_server import CHAT, COMPLETIONS, USER, LiveServer, events_of

from mlc_native.server import ServerConfig

ANSWER = 'Héllo "wörld" \\ 🤔\n\t\x7f\u2028</script>'


def joined(events: list[Any], kind: str) -> dict[int, dict[str, Any]]:
    """What the events say about each choice."""
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        for choice in event["choices"]:
            known = choices.setdefault(
                choice["index"], {"text": "", "logprobs": [], "finish_reason": None}
            )
            assert known["finish_reason"] is None, "an event behind the end of a choice"
            text = choice["delta"].get("content") if kind == "chat" else choice["text"]
            known["text"] += text or ""
            known["finish_reason"] = choice["finish_reason"]
            if choice["logprobs"] is not None:
                known["logprobs"].append(choice["logprobs"])
    return choices


def test_the_events_of_a_chat(serve: Any) -> None:
    server = serve(answer=ANSWER)
    response = server.post(CHAT, {"messages": USER, "stream": True})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    events = events_of(response.text)
    first = events[0]["choices"][0]
    assert first["delta"] == {"role": "assistant", "content": ""}
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events}) == 1
    assert {event["model"] for event in events} == {"fake"}
    assert all(event["usage"] is None for event in events)  # which MLC-LLM's programs read
    assert all(event["choices"][0]["delta"].keys() <= {"role", "content"} for event in events)
    assert joined(events, "chat")[0]["text"] == ANSWER
    assert [event["choices"][0]["finish_reason"] for event in events[:-1]] == [None] * (
        len(events) - 1
    )
    assert events[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_include_usage(serve: Any, path: str) -> None:
    server = serve(answer=ANSWER)
    prompt = {"messages": USER} if path == CHAT else {"prompt": "hi"}
    body = {**prompt, "max_tokens": 20}
    events = server.stream(path, {**body, "stream_options": {"include_usage": True}})
    *others, last = events
    assert all(event["usage"] is None for event in others)
    assert last["choices"] == []
    assert last["usage"] == server.post(path, body).json()["usage"] | {
        "prompt_tokens_details": last["usage"]["prompt_tokens_details"]
    }


@pytest.mark.parametrize("kind", ["chat", "completion"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 3},
        {"max_tokens": 5},
        {"logprobs": 2},
        {"stop": ["wör"]},
        {"max_tokens": 0},
    ],
    ids=str,
)
def test_a_stream_says_what_a_plain_answer_says(
    demo_server: LiveServer, kind: str, fields: dict[str, Any]
) -> None:
    body: dict[str, Any] = {"seed": 7, "temperature": 0.7, "max_tokens": 24, **fields}
    if kind == "chat":
        path = CHAT
        body["messages"] = [{"role": "user", "content": "What is the capital of France?"}]
        if "logprobs" in body:
            body |= {"logprobs": True, "top_logprobs": body["logprobs"]}
    else:
        path = COMPLETIONS
        body["prompt"] = ["The capital of France", "2 + 2 ="]
    plain = demo_server.post(path, body).json()
    events = demo_server.stream(path, {**body, "stream_options": {"include_usage": True}})
    choices = joined(events, kind)
    assert sorted(choices) == [choice["index"] for choice in plain["choices"]]
    for choice in plain["choices"]:
        said = choices[choice["index"]]
        text = choice["message"]["content"] if kind == "chat" else choice["text"]
        assert said["text"] == text
        assert said["finish_reason"] == choice["finish_reason"]
        assert _merged(said["logprobs"]) == choice["logprobs"]
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [events[-1]["usage"][k] for k in counts] == [plain["usage"][k] for k in counts]


def _merged(logprobs: list[dict[str, Any]]) -> dict[str, Any] | None:
    if not logprobs:
        return None
    merged: dict[str, Any] = {}
    for part in logprobs:
        for name, values in part.items():
            merged[name] = merged.get(name, []) + values
    return merged


def test_a_silent_stream_gets_comments(serve: Any) -> None:
    # The first token takes long; the comments come at once, and they come first.
    config = ServerConfig(keep_alive_interval_s=0.02)
    server = serve(config, answer="ab", us_per_step=500_000, cost="sleep")
    response = server.post(CHAT, {"messages": USER, "stream": True})
    before, _, _ = response.text.partition('"content":"a')
    assert before.count(": keep-alive\n\n") >= 3
    assert joined(events_of(response.text), "chat")[0]["text"] == "ab"


def test_an_error_behind_the_first_byte(serve: Any) -> None:
    server = serve(answer="abcdef", fail_at_forward=[4])
    response = server.post(CHAT, {"messages": USER, "stream": True})
    assert response.status_code == 200
    events = events_of(response.text)
    error = events[-1]["error"]
    assert error["code"] == "engine_error"
    assert error.keys() == {"message", "type", "param", "code"}
    assert "forward" not in json.dumps(error)  # nothing about the inside
    plain = serve(answer="abcdef", fail_at_forward=[4]).post(CHAT, {"messages": USER})
    assert plain.status_code == 500
    assert plain.json()["error"] == error


def test_an_aborted_request_is_an_error(serve: Any) -> None:
    server = serve(us_per_step=1000, cost="sleep")
    body = {"messages": USER, "stream": True, "max_tokens": 4000}
    with server.client.stream("POST", CHAT, json=body) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        server.on_loop(server.state.end_requests)
        text = "".join(line + "\n" for line in lines)
    events = events_of(text.lstrip("\n"))
    assert events[-1]["error"]["code"] == "request_aborted"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 2])
def test_the_log_has_the_error_behind_a_text(
    serve: Any, caplog: pytest.LogCaptureFixture, stream: bool, n: int
) -> None:
    """Also if a text that a stop string has withheld comes together with it."""
    server = serve(answer="abX", nan_token=ord("X"))
    body = {"messages": USER, "stop": ["Xy"], "n": n, "stream": stream}
    with caplog.at_level(logging.ERROR, logger="mlc_native.server"):
        response = server.post(CHAT, body)
    error = events_of(response.text)[-1]["error"] if stream else response.json()["error"]
    assert error["code"] == "engine_error"
    assert response.status_code == (200 if stream else 500)
    logged = [record.getMessage() for record in caplog.records]
    assert any("NaN" in line for line in logged), logged
    assert server.chat(max_tokens=1)["choices"][0]["message"]["content"] == "a"


def test_time_limits(serve: Any) -> None:
    server = serve(us_per_step=20_000, cost="sleep")
    body = {"messages": USER, "max_tokens": 4000}
    answer = server.post(CHAT, {**body, "timeout_s": 0.3}).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["stop_reason"] == "timeout"
    assert answer["choices"][0]["message"]["content"]
    response = server.post(CHAT, {**body, "timeout_s": 1e-6})
    assert response.status_code == 504
    assert response.json()["error"]["code"] == "timeout"
