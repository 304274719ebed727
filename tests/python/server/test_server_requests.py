"""Requests: fields that are honoured, ignored and refused, bodies, and limits."""

from __future__ import annotations

import json
import logging
import math
from typing import Any

import pytest
from live_server import CHAT, COMPLETIONS, USER, error_of

from mlc_native import EngineConfig
from mlc_native.errors import InvalidConfig
from mlc_native.server import ServerConfig

ANSWER = "an answer"
YES_OR_NO = {"type": "structural_tag", "format": {"type": "regex", "pattern": "yes|no"}}


def test_fields_of_clients_are_accepted(serve: Any) -> None:
    server = serve(answer=ANSWER)
    body = {
        "model": "fake",
        "messages": [{"role": "developer", "content": "Be brief."}, *USER],
        "max_completion_tokens": 50,
        "temperature": 0.5,
        "top_p": 0.9,
        "n": None,
        "stream": False,
        "stream_options": None,
        "stop": ["###"],
        "seed": -9007199254740991,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.1,
        "logit_bias": {"5": -1},
        "tools": None,
        "tool_choice": None,
        "user": "u",
        "metadata": {"a": "b"},
        "store": False,
        "service_tier": "auto",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "modalities": ["text"],
        "top_k": 5,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "min_tokens": 1,
        "priority": 0,
        "skip_special_tokens": True,
    }
    response = server.post(CHAT, body)
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["message"]["content"] == ANSWER
    assert "x-ignored-fields" not in response.headers


def test_unknown_fields_are_ignored_and_reported(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(answer=ANSWER)
    body = {"messages": USER, "frobnicate": 1, "x\r\ny": [], "null_field": None}
    with caplog.at_level(logging.WARNING, "mlc_native.server"):
        for _ in range(2):
            response = server.post(CHAT, body)
            assert response.status_code == 200
            assert response.headers["x-ignored-fields"] == "frobnicate, x??y"
    logged = [
        record.getMessage() for record in caplog.records if "frobnicate" in record.getMessage()
    ]
    assert len(logged) == 1


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"messages": USER, "audio": {"voice": "x"}}, "audio"),
        (CHAT, {"messages": USER, "modalities": ["text", "audio"]}, "modalities"),
        (CHAT, {"messages": USER, "web_search_options": {}}, "web_search_options"),
        (CHAT, {"messages": USER, "functions": [{"name": "f"}]}, "functions"),
        (CHAT, {"messages": USER, "chat_template": "{{ messages }}"}, "chat_template"),
        (CHAT, {"messages": USER, "temperature": -1}, "temperature"),
        (CHAT, {"messages": USER, "n": "many"}, "n"),
        (CHAT, {"messages": USER, "n": 10**30}, "n"),
        (CHAT, {"messages": USER, "stop": ["a"] * 17}, "stop"),
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {}, "messages"),
        (CHAT, {"messages": USER, "structured_outputs": "regex"}, "structured_outputs"),
        (CHAT, {"messages": USER, "structured_outputs": {}}, "structured_outputs"),
        (CHAT, {"messages": USER, "structured_outputs": {"schema": {}}}, "structured_outputs"),
        (
            CHAT,
            {"messages": USER, "structured_outputs": {"json": {}, "regex": "a"}},
            "structured_outputs",
        ),
        (CHAT, {"messages": USER, "include_reasoning": "no"}, "include_reasoning"),
        (
            CHAT,
            {"messages": [{"role": "assistant", "function_call": {"name": "f"}}, *USER]},
            "messages",
        ),
        (CHAT, {"messages": USER, "top_logprobs": 3}, "top_logprobs"),
        (CHAT, {"messages": USER, "top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        (CHAT, {"messages": USER, "tool_choice": "required"}, "tool_choice"),
        (CHAT, {"messages": USER, "tool_choice": {"type": "x"}}, "tool_choice"),
        (
            CHAT,
            {"messages": USER, "max_tokens": 1, "max_completion_tokens": 2},
            "max_completion_tokens",
        ),
        (
            CHAT,
            {"messages": [{"role": "user"}], "continue_final_message": True},
            "continue_final_message",
        ),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages",
        ),
        (COMPLETIONS, {"prompt": "a", "suffix": "b"}, "suffix"),
        (COMPLETIONS, {"prompt": "a", "best_of": 3}, "best_of"),
        (COMPLETIONS, {"prompt": ["a"] * 2049}, "prompt"),
        (COMPLETIONS, {"prompt": [-5]}, None),
        (COMPLETIONS, {"prompt": "a", "logprobs": 77}, "logprobs"),
        (COMPLETIONS, {"model": 5, "prompt": "a"}, "model"),
    ],
    ids=str,
)
def test_wishes_that_are_refused(serve: Any, path: str, fields: Any, param: str | None) -> None:
    server = serve(answer=ANSWER)
    for stream in (False, True):
        response = server.post(path, {**fields, "stream": stream})
        assert response.status_code == 400, response.text
        error = error_of(response)
        assert error["type"] == "invalid_request_error"
        if param is not None:
            assert error["param"] == param
    assert server.chat()["choices"][0]["message"]["content"] == ANSWER


def test_a_template_of_the_request_is_served_where_it_is_trusted(serve: Any) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}:"
    fields = {"messages": USER, "chat_template": template}
    careful = serve(answer=ANSWER)
    for path in (CHAT, "/tokenize"):
        response = careful.post(path, fields)
        assert response.status_code == 400
        assert error_of(response)["param"] == "chat_template"
    trusting = serve(ServerConfig(trust_request_chat_template=True), answer=ANSWER)
    text = f"{USER[0]['content']}:"
    counted = trusting.post("/tokenize", fields).json()["count"]
    assert counted == trusting.post("/tokenize", {"prompt": text}).json()["count"]
    assert trusting.post(CHAT, fields).json()["usage"]["prompt_tokens"] == counted
    refused = trusting.post(CHAT, {**fields, "chat_template": "{% if %}"})
    assert refused.status_code == 400
    assert error_of(refused)["param"] == "chat_template"


@pytest.mark.parametrize("value", ["true", 1, [], 0.0], ids=str)
def test_stream_is_a_boolean(serve: Any, value: Any) -> None:
    response = serve(answer=ANSWER).post(CHAT, {"messages": USER, "stream": value})
    assert response.status_code == 400
    assert error_of(response)["param"] == "stream"


def test_numbers_as_texts(serve: Any) -> None:
    """What pydantic takes for a number is one for the server, too."""
    server = serve(answer=ANSWER)
    fields = {"n": "2", "max_tokens": "3", "temperature": "0"}
    for stream in (False, True):
        response = server.post(CHAT, {"messages": USER, "stream": stream, **fields})
        assert response.status_code == 200, response.text


def test_a_prompt_that_is_too_long(serve: Any) -> None:
    server = serve(answer=ANSWER)
    too_long = "a" * (server.engine.max_input_sequence_length + 1)
    chat = [{"role": "user", "content": too_long}]
    for path, field, value in (
        (COMPLETIONS, "prompt", too_long),
        (CHAT, "messages", chat),
        ("/v1/responses", "input", too_long),
    ):
        response = server.post(path, {field: value})
        assert response.status_code == 400
        error = error_of(response)
        assert (error["code"], error["param"]) == ("context_length_exceeded", field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("structured_outputs", {"choice": ["yes", "no"]}),
        ("structured_outputs", {"regex": "yes|no"}),
        ("structured_outputs", {"structural_tag": json.dumps(YES_OR_NO)}),
        ("structured_outputs", {"structural_tag": YES_OR_NO}),
        ("guided_choice", ["yes", "no"]),
        ("json_schema", {"enum": ["yes", "no"]}),
        ("grammar", 'root ::= "yes" | "no"'),
        ("structured_outputs", {"json": {"enum": ["yes", "no"]}}),
        ("response_format", {"type": "choice", "choice": ["yes", "no"]}),
    ],
    ids=str,
)
def test_forms_of_answers_by_other_names(serve: Any, field: str, value: Any) -> None:
    pytest.importorskip("xgrammar")
    server = serve()
    answer = server.chat(**{field: value, "max_tokens": 20})
    assert answer["choices"][0]["message"]["content"].strip('"') in ("yes", "no")


def test_numbers_of_llama_cpp(serve: Any) -> None:
    """Its names count where ours are missing. An empty grammar is none, as there."""
    server = serve(answer=ANSWER)
    for stream in (False, True):
        fields = {"n_predict": 2, "repeat_penalty": 1.1, "grammar": "", "stream": stream}
        response = server.post(COMPLETIONS, {"prompt": "a", **fields})
        assert response.status_code == 200
        assert "x-ignored-fields" not in response.headers
    answer = server.chat(n_predict=2)
    assert answer["usage"]["completion_tokens"] == 2
    assert server.chat(n_predict=2, max_tokens=3)["usage"]["completion_tokens"] == 3
    response = server.post(CHAT, {"messages": USER, "repeat_penalty": -1})
    assert (response.status_code, error_of(response)["param"]) == (400, "repetition_penalty")


def test_members_of_structured_outputs_without_an_effect_are_reported(serve: Any) -> None:
    pytest.importorskip("xgrammar")
    outputs = {
        "choice": ["yes"],
        "disable_fallback": False,
        "regex": None,
        "whitespace_pattern": "x",
    }
    body = {"messages": USER, "structured_outputs": outputs}
    response = serve().post(CHAT, body)
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == "yes"
    assert response.headers["x-ignored-fields"] == "structured_outputs.whitespace_pattern"


def test_two_forms_of_an_answer_are_refused(serve: Any) -> None:
    formats = {"response_format": {"type": "json_object"}, "guided_regex": "a"}
    response = serve(answer=ANSWER).post(CHAT, {"messages": USER, **formats})
    assert response.status_code == 400
    assert error_of(response)["param"] == "guided_regex"


# ------------------------------------------------------------------------------------- the body


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[]", "invalid_json"),
        (b'"text"', "invalid_json"),
        (b"\xff\xfe{}", "invalid_json"),
        (b'{"messages": NaN}', "invalid_json"),
        (b'{"n": -Infinity}', "invalid_json"),
        (b'{"n": ' + b"9" * 5000 + b"}", "invalid_json"),
        (b'{"user": "\\ud800"}', "invalid_json"),
        (b'{"temperature": 1e400}', "invalid_json"),
        (b'{"metadata": {"a": [-1e999]}}', "invalid_json"),
        (b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}", "invalid_json"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "invalid_json"),
        (b'{"a": ' * 100_000, "invalid_json"),
    ],
    ids=lambda body: repr(body[:30]),
)
def test_bodies_that_are_no_request(serve: Any, body: bytes, code: str) -> None:
    server = serve(answer=ANSWER)
    headers = {"content-type": "application/json"}
    response = server.client.post(CHAT, content=body, headers=headers)
    assert response.status_code == 400
    assert error_of(response)["code"] == code


def test_depth_up_to_the_limit_is_allowed(serve: Any) -> None:
    server = serve(ServerConfig(max_json_depth=10), answer=ANSWER)
    for depth, status in ((9, 200), (10, 400)):
        deep: Any = 1
        for _ in range(depth):
            deep = [deep]
        response = server.post(CHAT, {"messages": USER, "metadata": deep})
        assert response.status_code == status, (depth, response.text)


def test_size_of_the_body(serve: Any) -> None:
    server = serve(ServerConfig(max_body_bytes=200_000), answer=ANSWER)
    body = json.dumps({"messages": USER, "metadata": "a" * 150_000})
    for length, status in ((len(body), 200), (200_000, 200), (200_001, 413)):
        padded = body.ljust(length).encode()
        headers = {"content-type": "application/json"}
        response = server.client.post(CHAT, content=padded, headers=headers)
        assert response.status_code == status
        # Without a length, in pieces.
        pieces = (padded[i : i + 50_000] for i in range(0, len(padded), 50_000))
        chunked = server.client.post(CHAT, content=pieces, headers=headers)
        assert chunked.status_code == status
        if status == 413:
            assert error_of(chunked)["code"] == "request_too_large"


def test_content_types(serve: Any) -> None:
    server = serve(answer=ANSWER)
    body = json.dumps({"messages": USER})
    for kind, status in (
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("application/vnd.api+json", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
    ):
        response = server.client.post(CHAT, content=body, headers={"content-type": kind})
        assert response.status_code == status
    for encoding, status in (("identity", 200), ("gzip", 415)):
        headers = {"content-type": "application/json", "content-encoding": encoding}
        response = server.client.post(CHAT, content=body, headers=headers)
        assert response.status_code == status
        if status == 415:
            assert "gzip" in error_of(response)["message"]


# --------------------------------------------------------------------------- limits of requests


def test_the_number_of_requests(serve: Any) -> None:
    server = serve(ServerConfig(max_concurrent_requests=1), us_per_step=1000, cost="sleep")
    body = {"messages": USER, "max_tokens": 4000, "stream": True}
    with server.client.stream("POST", CHAT, json=body) as response:
        lines = response.iter_lines()  # dropping it would close the connection
        next(lines)
        refused = server.post(CHAT, {"messages": USER})
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert error_of(refused)["type"] == "rate_limit_error"
    server.wait_until_idle()
    assert server.post(CHAT, {"messages": USER, "max_tokens": 2}).status_code == 200


def test_a_full_queue(serve: Any) -> None:
    engine_config = EngineConfig(max_num_sequence=1, max_queue_length=1)
    server = serve(engine_config=engine_config, us_per_step=1000, cost="sleep")
    body = {"messages": USER, "max_tokens": 4000, "stream": True}
    with server.client.stream("POST", CHAT, json=body) as running:
        lines = running.iter_lines()
        while '"content":"' not in (line := next(lines)) or '"content":""' in line:
            pass  # it has started, and left the queue
        with server.client.stream("POST", CHAT, json=body) as waiting:
            waiting_lines = waiting.iter_lines()
            next(waiting_lines)
            refused = server.post(CHAT, {"messages": USER})
            assert refused.status_code == 429
            assert "retry-after" in refused.headers
    server.wait_until_idle()


def test_the_time_of_a_request(serve: Any) -> None:
    server = serve(ServerConfig(request_timeout_s=0.2), us_per_step=10_000, cost="sleep")
    for fields in ({}, {"timeout_s": 100}):
        answer = server.chat(max_tokens=4000, **fields)
        assert answer["choices"][0]["stop_reason"] == "timeout"


@pytest.mark.parametrize(
    "settings",
    [
        {"max_body_bytes": 0},
        {"keep_alive_interval_s": -1},
        {"request_timeout_s": 0},
        {"request_timeout_s": math.inf},  # no request could have it
        {"metrics_key": "open"},
        {"metrics_compat": "sglang"},
        {"api_keys": [""]},
        {"api_keys": "key"},
    ],
    ids=str,
)
def test_wrong_settings(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(InvalidConfig, match=name) as raised:
        ServerConfig(**settings)
    assert raised.value.field == name
