"""Clients that go away, do not read, and send garbage. Seeded."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from grammar_workers import GrammarWorkers, slow_grammar
from live_server import CHAT, COMPLETIONS, USER, WAIT_S, LiveServer, raw_request

from mlc_native import EngineConfig
from mlc_native.server import ServerConfig
from mlc_native.server.http_protocol import HttpLimits

NUM_DISCONNECTS = 300
NUM_MUTATIONS = 2000
QUESTION = [{"role": "user", "content": "hi " * 20}]


def reset(connection: socket.socket) -> None:
    """Closes a connection at once, without the rest of its data."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def check_nothing_is_left(server: LiveServer) -> None:
    """No request runs, waits or holds pages."""
    server.wait_until_idle(timeout_s=10)
    metrics = server.metrics()
    assert metrics["num_running_requests"] == 0
    assert metrics["num_waiting_requests"] == 0
    assert metrics["kv_pages_used"] == 0
    json.loads(server.engine._debug_call_func_on_all_worker("audit_pages"))


@pytest.mark.both_step_kinds
@pytest.mark.parametrize("where", ["stream", "plain", "queued stream", "queued plain"])
def test_a_disconnect_ends_the_request(serve: Any, run_ahead: bool, where: str) -> None:
    engine_config = EngineConfig(max_num_sequence=1)
    server = serve(engine_config=engine_config, us_per_step=2000, cost="sleep")
    body = {"messages": USER, "max_tokens": 3000, "stream": where.endswith("stream")}
    request = raw_request(CHAT, json.dumps(body).encode())
    busy = server.connect() if where.startswith("queued") else None
    if busy is not None:
        busy.sendall(raw_request(CHAT, json.dumps({**body, "stream": True}).encode()))
        busy.recv(1)
    connection = server.connect()
    connection.sendall(request)

    async def wait_for_requests() -> None:
        while server.state.running.count < 1 + (busy is not None):
            await server.state.on_thread(server.metrics)

    server.on_loop(wait_for_requests)
    reset(connection)
    if busy is not None:
        reset(busy)
    check_nothing_is_left(server)
    assert server.metrics()["completion_tokens_sum"] < 2 * 3000


@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "plain"])
def test_a_disconnect_ends_a_compilation(serve: Any, is_stream: bool) -> None:
    pytest.importorskip("xgrammar")
    workers = GrammarWorkers()
    server = serve(engine_config=EngineConfig(grammar_compile_timeout_s=3600))
    body = {"messages": USER, "response_format": slow_grammar(), "stream": is_stream}
    connection = server.connect()
    connection.sendall(raw_request(CHAT, json.dumps(body).encode()))
    workers.await_some()
    reset(connection)
    workers.await_none()
    check_nothing_is_left(server)


def test_random_disconnects(serve: Any) -> None:
    rng = random.Random(11)
    engine_config = EngineConfig(max_num_sequence=8)
    server = serve(engine_config=engine_config, us_per_step=300, cost="sleep")
    neighbour = {"messages": QUESTION, "max_tokens": 40, "temperature": 0}
    expected = server.chat(**neighbour)["choices"][0]["message"]["content"]
    for i in range(NUM_DISCONNECTS):
        body = {"messages": USER, "max_tokens": 2000, "stream": rng.random() < 0.6, "seed": i}
        path = CHAT
        if rng.random() < 0.2:
            body["n"] = 3
        elif rng.random() < 0.3:
            path = "/v1/responses"
            body = {"input": "hi", "max_output_tokens": 2000, "stream": body["stream"]}
        request = raw_request(path, json.dumps(body).encode())
        connection = server.connect()
        connection.sendall(request[: rng.choice([1, len(request) // 2, *[len(request)] * 4])])
        if body["stream"] and rng.random() < 0.5:
            connection.settimeout(0.02)
            with contextlib.suppress(TimeoutError):
                connection.recv(rng.choice([1, 500, 5000]))
        reset(connection) if rng.random() < 0.5 else connection.close()
        if i % 30 == 0:
            answer = server.chat(**neighbour)["choices"][0]["message"]["content"]
            assert answer == expected
    check_nothing_is_left(server)
    assert server.chat(**neighbour)["choices"][0]["message"]["content"] == expected


def test_readers_that_stall_are_cut_off(serve: Any) -> None:
    config = ServerConfig(stalled_reader_timeout_s=0.5)
    server = serve(config, answer="a" * 3000)
    server.limit_send_buffers(8192)
    # Each stream has some MB, more than the buffers of both sides.
    body = {"messages": USER, "stream": True, "max_tokens": 1500, "logprobs": True}
    request = raw_request(CHAT, json.dumps({**body, "top_logprobs": 20}).encode())
    stalled = []
    for _ in range(4):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        connection.connect(server.address)
        connection.sendall(request)
        stalled.append(connection)
    events = server.stream(CHAT, {"messages": USER, "max_tokens": 100})
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == "a" * 100
    check_nothing_is_left(server)
    for connection in stalled:
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while data := connection.recv(1 << 20):
                received += data
        assert received.startswith(b"HTTP/1.1 200")
        assert b"[DONE]" not in received
        connection.close()


def test_slow_senders_do_not_hold_up_others(serve: Any) -> None:
    """200 sockets that never finish a request, while streams and plain requests are served."""
    limits = HttpLimits(header_timeout_s=WAIT_S)
    server = serve(ServerConfig(body_timeout_s=WAIT_S), limits, answer="a" * 50)
    request = raw_request(CHAT, json.dumps({"messages": USER}).encode())
    slow = [server.connect() for _ in range(200)]
    with ThreadPoolExecutor(4) as threads:
        answers = threads.map(
            lambda i: server.stream(CHAT, {"messages": USER, "seed": i}), range(32)
        )
        for i in range(0, len(request) - 1, 20):
            for connection in slow:
                connection.sendall(request[i : min(i + 20, len(request) - 1)])
        for events in answers:
            text = "".join(e["choices"][0]["delta"].get("content", "") for e in events)
            assert text == "a" * 50
    server.wait_until_idle()  # a request without its last byte is none yet
    slow[0].sendall(request[-1:])
    assert slow[0].recv(12) == b"HTTP/1.1 200"
    for connection in slow:
        connection.close()
    check_nothing_is_left(server)


# ------------------------------------------------------------------------------------- mutations


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def mutated(rng: random.Random, body: bytes) -> bytes:
    """A body with one to three changes."""
    data = bytearray(body)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(data)) if data else 0
        kind = rng.randrange(8)
        if kind == 0 and data:
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[place : place + rng.randint(1, 30)]
        elif kind == 2:
            data[place:place] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 8)))
        elif kind == 3:
            data[place:place] = rng.choice(
                [b"NaN", b"1e999", b"-0", b"9" * 400, b"null", b"\\ud800"]
            )
        elif kind == 4:
            data[place:place] = rng.choice([b"[", b"{", b"]", b"}", b'"', b","]) * rng.randint(
                1, 100
            )
        elif kind == 5:
            data[place:place] = data[: rng.randint(0, 200)]
        elif kind == 6:
            data = bytearray(
                rng.choice([b"", b"[", b"[" * 100_000, b'{"a":' * 100_000]) + data[:20]
            )
        else:
            data = data.replace(
                rng.choice([b"1", b"true", b'"hi"', b"0.5"]),
                rng.choice([b"-1", b"1e400", b"[]", b"{}", b'"\\u0000"', b"99999999999999999999"]),
            )
    return bytes(data)


def test_mutated_bodies(serve: Any) -> None:
    rng = random.Random(5)
    server = serve(answer="ok", chat_template="{{ messages[0].content }}{{ tools }}")
    chat = {
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 10,
        "temperature": 0.5,
        "n": 1,
        "stop": ["hi"],
        "logit_bias": {"1": 1},
        "stream": True,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    }
    completion = {"prompt": ["hi", "1"], "max_tokens": 1, "echo": True, "logprobs": 1}
    tokens = {"tokens": [1, 1, 1]}
    requests = [
        (CHAT, json.dumps(chat).encode()),
        (COMPLETIONS, json.dumps(completion).encode()),
        ("/detokenize", json.dumps(tokens).encode()),
        ("/v1/messages", json.dumps({"messages": chat["messages"], "max_tokens": 1}).encode()),
        ("/v1/responses", json.dumps({"input": chat["messages"], "stream": True}).encode()),
        ("/tokenize", json.dumps({"messages": chat["messages"]}).encode()),
    ]
    headers = {"content-type": "application/json"}
    statuses: dict[int, int] = {}
    early_rss = 0
    for i in range(NUM_MUTATIONS):
        if i == NUM_MUTATIONS // 2:
            early_rss = resident_bytes()
        path, body = rng.choice(requests)
        sent = mutated(rng, body)
        response = server.client.post(path, content=sent, headers=headers)
        assert response.status_code < 500, (i, path, sent[:500], response.text)
        if response.status_code >= 400:
            assert response.json()["error"]["message"]
        statuses[response.status_code] = statuses.get(response.status_code, 0) + 1
    assert statuses[400] > NUM_MUTATIONS / 2
    assert resident_bytes() < 1.1 * early_rss
    check_nothing_is_left(server)


def test_garbage_instead_of_http(serve: Any) -> None:
    rng = random.Random(3)
    server = serve(answer="ok")
    request = raw_request(CHAT, json.dumps({"messages": USER}).encode())
    for _ in range(200):
        data = bytearray(request)
        for _ in range(rng.randint(1, 5)):
            data[rng.randrange(60)] = rng.randrange(256)
        with server.connect() as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(4096)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
        assert not answer.startswith(b"HTTP/1.1 5"), data
    check_nothing_is_left(server)
