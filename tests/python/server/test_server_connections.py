"""What a connection may send and how long it may take; request ids, keys and CORS."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from live_server import CHAT, USER, error_of, raw_request

from mlc_native.server import ServerConfig
from mlc_native.server.http_protocol import HttpLimits

ANSWER = "an answer"


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
