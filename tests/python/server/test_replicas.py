"""Replicas without Ray: keys of prompts, the choice of a replica, and an ASGI app elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("starlette")

from mlc_native.server.ray.forwarding import Forwarded, Front, answers
from mlc_native.server.ray.prefixes import BLOCK_CHARS, PrefixTable, choose, prompt_keys, text_keys

SYSTEM = {"role": "system", "content": "s" * 5 * BLOCK_CHARS}
EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


# ---- prefixes ----


def test_a_longer_chat_begins_with_the_keys_of_the_shorter_one() -> None:
    first = [SYSTEM, {"role": "user", "content": "a" * 3 * BLOCK_CHARS}]
    more = [*first, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c" * 999}]
    short = prompt_keys(body(model="m", messages=first))
    long = prompt_keys(body(messages=more, temperature=1))
    assert len(short) >= 8
    assert long[: len(short)] == short
    other = prompt_keys(body(messages=[{**SYSTEM, "content": "t" + SYSTEM["content"]}]))
    assert not set(other) & set(short)
    salted = prompt_keys(body(messages=first, cache_salt="x"))
    assert not set(salted) & set(short)
    adapted = prompt_keys(body(messages=first, adapter="x"))
    assert not set(adapted) & {*short, *salted}


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"null", b'{"a": 1}', b"[" * 100_000, b"\xff"])
def test_bodies_without_a_prompt(data: bytes) -> None:
    assert prompt_keys(data) == ()


def test_prompts_of_all_kinds() -> None:
    for prompt in ("x" * 600, ["x" * 600, "y"], list(range(600))):
        assert len(prompt_keys(body(prompt=prompt))) >= 2
    assert text_keys("x" * (BLOCK_CHARS - 1)) == ()
    assert len(prompt_keys(body(prompt="\ud800" * 600))) >= 2


def test_a_table_of_prefixes() -> None:
    table = PrefixTable(max_keys=8)
    keys = text_keys("a" * 6 * BLOCK_CHARS)
    table.add(keys[:2], "A")
    table.add(keys[:4], "B")
    assert table.match(keys) == {"A": 2, "B": 4}
    assert table.match(text_keys("b" * 600)) == {}
    table.keep({"A"})
    assert table.match(keys) == {"A": 2}
    table.add(text_keys("c" * 7 * BLOCK_CHARS), "C")  # of 9 keys, the oldest is forgotten
    assert table.match(keys) == {"A": 1}


def test_the_choice_of_a_replica() -> None:
    loads = {"A": 3, "B": 0, "C": 9}
    assert choose({"A": 2, "B": 1}, loads, slack=4) == "A"
    assert choose({"A": 2, "B": 1}, loads, slack=2) == "B"
    assert choose({"C": 5}, loads, slack=4) is None  # too busy
    assert choose({"gone": 5}, loads, slack=4) is None
    assert choose({"A": 1, "B": 1}, loads, slack=9) == "B"
    assert choose({}, {}, slack=1) is None


# ---- an app elsewhere ----


class Client:
    """Sends one request to a Front, and is ASGI's ``receive`` and ``send``."""

    def __init__(self, data: bytes = b"{}") -> None:
        self.sent: list[Any] = []
        self.scope: dict[str, str] = {}
        self.left = asyncio.Event()
        self.got_body = asyncio.Event()
        self._parts = [data[:2], data[2:]]

    async def request(self, front: Front) -> None:
        scope = {
            **{"type": "http", "method": "POST", "path": "/x", "query_string": b"q=1"},
            **{"headers": [(b"a", b"b")], "client": ("1.2.3.4", 5)},
            **self.scope,
        }
        await front(scope, self._receive, self._send)

    async def _receive(self) -> Any:
        if self._parts:
            part = self._parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._parts)}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.got_body.set()

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def text(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


async def echo_app(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    headers = [*scope["headers"], (b"client", scope["client"][0].encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    text = scope["path"].encode() + b"?" + scope["query_string"] + message["body"]
    await send({"type": "http.response.body", "body": text, "more_body": True})
    await send({"type": "http.response.body", "body": b"."})


def front_of(app: Any, max_body_bytes: int = 100) -> Front:
    return Front(lambda request: answers(app, request), max_body_bytes)


async def test_a_request_and_its_answer_arrive() -> None:
    client = Client(b"hello")
    await client.request(front_of(echo_app))
    assert client.status == 200
    assert client.text == b"/x?q=1hello."
    assert (b"a", b"b") in client.sent[0]["headers"]
    assert (b"client", b"1.2.3.4") in client.sent[0]["headers"]


async def test_a_client_that_leaves_within_its_body_sends_no_request() -> None:
    async def call(_: Forwarded) -> AsyncIterator[Any]:
        pytest.fail("half of a body was passed on")
        yield

    messages = iter([{"type": "http.request", "body": b"{}", "more_body": True}])

    async def receive() -> Any:
        return next(messages, {"type": "http.disconnect"})

    client = Client()
    scope = {"type": "http", "method": "POST", "path": "/x", "headers": []}
    await Front(call, 100)(scope, receive, client._send)
    assert client.sent == []


async def test_a_route_prefix_is_no_part_of_the_path() -> None:
    client = Client(b"")
    client.scope = {"path": "/llm/v1/models", "root_path": "/llm"}
    await client.request(front_of(echo_app))
    assert client.text == b"/v1/models?q=1."


async def test_a_body_that_is_too_large() -> None:
    client = Client(b"x" * 101)
    await client.request(front_of(echo_app))
    assert client.status == 413
    assert json.loads(client.text)["error"]["message"] == "a request may have 100 bytes"


async def test_a_client_that_leaves_ends_the_request() -> None:
    seen: list[str] = []

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        seen.append((await receive())["type"])

    client = Client()
    task = asyncio.create_task(client.request(front_of(endless)))
    await client.got_body.wait()
    client.left.set()
    await task
    assert seen == ["http.disconnect"]


@pytest.mark.parametrize(
    ("headers", "status", "expected"),
    [
        (None, 503, "has ended"),  # nothing was sent
        (EVENTS, 200, "data: 1\n\ndata: {"),
    ],
)
async def test_a_replica_that_dies(headers: Any, status: int, expected: str) -> None:
    async def call(_: Forwarded) -> AsyncIterator[Any]:
        if headers is not None:
            yield [
                {"type": "http.response.start", "status": 200, "headers": headers},
                {"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True},
            ]
        raise RuntimeError("the actor died")

    client = Client()
    await client.request(Front(call, 100))
    assert client.status == status
    assert expected in client.text.decode()
    assert b"send the request again" in client.text
    assert not client.sent[-1].get("more_body")


async def test_a_replica_that_dies_within_a_plain_answer() -> None:
    """The body cannot be completed, so the connection ends within it."""

    async def call(_: Forwarded) -> AsyncIterator[Any]:
        yield [{"type": "http.response.start", "status": 200, "headers": []}]
        raise RuntimeError("the actor died")

    with pytest.raises(RuntimeError, match="actor died"):
        await Client().request(Front(call, 100))


async def test_an_app_that_fails_is_a_replica_that_fails() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("x")

    client = Client()
    await client.request(front_of(broken))
    assert client.status == 503
