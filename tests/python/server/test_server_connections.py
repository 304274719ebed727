"""What a connection may send and how long it may take; request ids, keys and CORS."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from live_server import CHAT, USER, error_of, events_of, raw_request

from mlc_native import InvalidConfig
from mlc_native.server import ServerConfig, create_app
from mlc_native.server.http_protocol import HttpLimits

ANSWER = "an answer"
BODY = json.dumps({"messages": USER}).encode()


def test_headers_that_are_too_long(serve: Any) -> None:
    limits = HttpLimits(max_header_bytes=4096, max_headers=20)
    server = serve(limits=limits, answer=ANSWER)
    body = json.dumps({"messages": USER}).encode()
    for headers, status in (
        ([], b"200"),
        (["X-A: " + "a" * 3000], b"200"),
        (["X-A: " + "a" * 5000], b"431"),
        (["X-A: " + "a" * 500_000], b"431"),
        ([f"X-{i}: a" for i in range(10)], b"200"),
        ([f"X-{i}: a" for i in range(20)], b"431"),
    ):
        with server.connect() as connection:
            connection.sendall(raw_request(CHAT, body, *headers, "Connection: close"))
            assert connection.recv(12) == b"HTTP/1.1 " + status


def test_headers_without_an_end_are_bounded(serve: Any) -> None:
    server = serve(limits=HttpLimits(max_header_bytes=4096), answer=ANSWER)
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX-A: ")
        answer = b""
        try:
            for _ in range(10_000):
                connection.sendall(b"a" * 4096)
        except OSError:
            pass  # closed, as it must be long before 40 MB
        else:
            pytest.fail("the server has taken 40 MB of a header")
        del answer


def test_a_web_socket_is_answered_in_http(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    """And nobody is told to install a library for it."""
    server = serve(answer=ANSWER)
    with caplog.at_level(logging.DEBUG), server.connect() as connection:
        connection.sendall(
            b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert [each for each in caplog.messages if "install" in each or "upgrade" in each] == []


@pytest.mark.parametrize("header", [b"X-A: " + b"a" * 4000 + b"\r\n", b"a" * 4000])
def test_headers_behind_a_body_are_bounded(serve: Any, header: bytes) -> None:
    """Of a request without a key, too: nobody reads its body."""
    server = serve(ServerConfig(api_keys=["k"]), HttpLimits(max_header_bytes=4096), answer=ANSWER)
    start = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with server.connect() as connection:
        connection.sendall(start + b"2\r\n{}\r\n0\r\nX-B: ")
        try:
            for _ in range(10_000):
                connection.sendall(header)
        except OSError:
            pass  # closed, as it must be long before 40 MB
        else:
            pytest.fail("the server has taken 40 MB of headers behind a body")


def test_headers_behind_a_body_say_nothing(serve: Any) -> None:
    server = serve(ServerConfig(api_keys=["k"]), answer=ANSWER)
    start = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (BODY[:7], BODY[7:]))
    for key, trailer, status in (("", "Authorization: Bearer k\r\n", b"401"), ("k", "", b"200")):
        head = f"{start}X-Api-Key: {key}\r\n\r\n".encode()
        with server.connect() as connection:
            connection.sendall(head + chunks + f"0\r\n{trailer}\r\n".encode())
            assert connection.recv(12) == b"HTTP/1.1 " + status


def test_a_body_that_nobody_reads_does_not_keep_its_connection(serve: Any) -> None:
    server = serve(ServerConfig(api_keys=["k"]), HttpLimits(header_timeout_s=0.5), answer=ANSWER)
    with server.connect() as connection:
        connection.sendall(raw_request(CHAT, BODY)[:-1])
        assert connection.recv(65536).startswith(b"HTTP/1.1 401")
        assert connection.recv(65536) == b""
    with server.connect() as connection:  # and one that has been sent keeps it
        for _ in range(2):
            connection.sendall(raw_request(CHAT, BODY))
            assert connection.recv(65536).startswith(b"HTTP/1.1 401")


H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAAB")


@pytest.mark.parametrize("headers", [H2C, ("Connection: Upgrade", "Upgrade: websocket")])
@pytest.mark.parametrize("piece", [1, 1 << 20])
def test_a_wish_for_another_protocol_is_ignored(serve: Any, headers: Any, piece: int) -> None:
    """Java's client and curl --http2 have it in their first request, which may have a body."""
    server = serve(answer=ANSWER)
    data = raw_request(CHAT, BODY, *headers) * 2 + raw_request(CHAT, BODY, "Connection: close")
    with server.connect() as connection:
        for begin in range(0, len(data), piece):
            connection.sendall(data[begin : begin + piece])
        answer = b""
        while received := connection.recv(65536):
            answer += received
    assert answer.count(b"HTTP/1.1 200 OK") == answer.count(b'"finish_reason":"stop"') == 3
    with server.connect() as connection:
        connection.sendall(b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 400"


def test_a_stream_to_http_1_0_has_no_chunks(serve: Any) -> None:
    """A client of HTTP/1.0 takes the lengths of chunks for a part of the answer."""
    server = serve(answer=ANSWER)
    for stream in (False, True):
        body = json.dumps({"messages": USER, "stream": stream}).encode()
        with server.connect() as connection:
            request = raw_request(CHAT, body, "Connection: keep-alive")
            connection.sendall(request.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1))
            answer = b""
            while received := connection.recv(65536):
                answer += received
        head, _, text = answer.decode().partition("\r\n\r\n")
        assert "transfer-encoding" not in head
        if stream:
            events = events_of(text)
            told = [event["choices"][0]["delta"].get("content", "") for event in events]
            assert "".join(told) == ANSWER
        else:
            assert json.loads(text)["choices"][0]["message"]["content"] == ANSWER


def test_headers_that_do_not_come(serve: Any) -> None:
    server = serve(limits=HttpLimits(header_timeout_s=0.1), answer=ANSWER)
    for start in (b"", b"POST ", b"POST / HTTP/1.1\r\nHost: x\r\n"):
        with server.connect() as connection:
            connection.sendall(start)
            assert connection.recv(4096).startswith(b"HTTP/1.1 408")
            assert connection.recv(4096) == b""


def test_a_body_that_does_not_come(serve: Any) -> None:
    server = serve(ServerConfig(body_timeout_s=0.1), answer=ANSWER)
    with server.connect() as connection:
        connection.sendall(raw_request(CHAT, b"{}")[:-1])
        answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"body_timeout" in answer


def test_the_number_of_connections(serve: Any) -> None:
    server = serve(limits=HttpLimits(max_connections=3), answer=ANSWER)
    assert server.client.get("/ping").status_code == 200  # keeps its connection
    with server.connect() as one, server.connect() as two:
        for connection in (one, two):
            connection.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        with server.connect() as three:
            assert three.recv(4096).startswith(b"HTTP/1.1 503")
    assert server.client.get("/ping").status_code == 200


def test_request_ids(serve: Any) -> None:
    server = serve(answer=ANSWER)
    ids = set()
    for path in ("/ping", "/nothing", "/v1/models"):
        given = server.client.get(path, headers={"x-request-id": "mine-1"})
        assert given.headers["x-request-id"] == "mine-1"
        ids.add(server.client.get(path).headers["x-request-id"])
        bad = server.client.get(path, headers={"x-request-id": "a" * 129})
        ids.add(bad.headers["x-request-id"])
    assert len(ids) == 6
    same = [server.post(CHAT, {"messages": USER}, headers={"x-request-id": "mine"}) for _ in "ab"]
    assert len({response.json()["id"] for response in same}) == 2


# --------------------------------------------------------------------------------- keys and CORS


def test_keys(serve: Any) -> None:
    server = serve(ServerConfig(api_keys=["first", "zweiter-schlüssel"]), answer=ANSWER)
    paths = ("/v1/models", "/models", "/metrics", "/version", "/nothing", "/openapi.json")
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Basic first"},
        {"authorization": "first"},
        {"x-api-key": "firs"},
        {"x-api-key": ""},
    ):
        for path in paths:
            response = server.client.get(path, headers=headers)
            assert response.status_code == 401, (path, headers)
            assert error_of(response)["code"] == "invalid_api_key"
        assert server.post(CHAT, {"messages": USER}, headers=headers).status_code == 401
    for path in ("/health", "/ready", "/ping"):
        assert server.client.get(path).status_code == 200
    for good in (
        {"authorization": "Bearer first"},
        {"authorization": "bearer first"},
        {"x-api-key": "first"},
        {"authorization": "Bearer zweiter-schlüssel".encode()},
    ):
        assert server.post(CHAT, {"messages": USER}, headers=good).status_code == 200


@pytest.mark.parametrize("path", ["/v1/messages", "/messages", "/v1/messages/count_tokens"])
def test_errors_of_anthropics_paths(serve: Any, path: str) -> None:
    """They have Anthropic's form, also where the endpoint is not reached."""
    server = serve(ServerConfig(api_keys=["k"]), answer=ANSWER)
    key = {"x-api-key": "k"}
    for response, kind in (
        (server.post(path, {}), "authentication_error"),
        (server.client.get(path, headers=key), "invalid_request_error"),
        (server.post(path, {}, headers=key), "invalid_request_error"),
    ):
        body = response.json()
        assert (body["type"], body["error"]["type"]) == ("error", kind)


def test_no_text_of_the_settings_has_the_keys(make_engine: Any) -> None:
    config = ServerConfig(api_keys=["secret"])
    engine = make_engine(answer="x")
    try:
        app = create_app(engine, config)
        assert "secret" not in f"{config!r} {app.user_middleware!r}"
    finally:
        engine.terminate()


def test_the_key_of_the_metrics(serve: Any) -> None:
    server = serve(ServerConfig(api_keys=["k"], metrics_key="none"), answer=ANSWER)
    assert server.client.get("/metrics").status_code == 200
    assert server.client.get("/version").status_code == 401


def test_cors(serve: Any) -> None:
    preflight = {"origin": "https://page.test", "access-control-request-method": "POST"}
    closed = serve(answer=ANSWER)
    response = closed.client.options(CHAT, headers=preflight)
    assert "access-control-allow-origin" not in response.headers
    config = ServerConfig(allow_origins=["https://page.test"], api_keys=["k"])
    server = serve(config, answer=ANSWER)
    response = server.client.options(CHAT, headers=preflight)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == "https://page.test"
    headers = {"origin": "https://page.test", "x-api-key": "k"}
    response = server.post(CHAT, {"messages": USER}, headers=headers)
    assert response.headers["access-control-allow-origin"] == "https://page.test"
    other = server.client.options(CHAT, headers={**preflight, "origin": "https://evil.test"})
    assert "access-control-allow-origin" not in other.headers


def test_pages_may_send_the_headers_of_the_usual_clients(serve: Any) -> None:
    server = serve(ServerConfig(allow_origins=["https://page.test"]), answer=ANSWER)
    names = "authorization,content-type,openai-organization,x-stainless-os,anthropic-version"
    preflight = {"origin": "https://page.test", "access-control-request-method": "POST"}
    preflight["access-control-request-headers"] = names
    response = server.client.options(CHAT, headers=preflight)
    assert response.status_code == 200, response.text
    assert response.headers["access-control-allow-headers"] == names


@pytest.mark.parametrize("name", ["allow_origins", "allow_methods", "allow_headers"])
def test_a_text_is_no_list_of_origins(name: str) -> None:
    with pytest.raises(InvalidConfig, match=f'"{name}" must be a list of texts'):
        ServerConfig(**{name: "https://page.test"})
