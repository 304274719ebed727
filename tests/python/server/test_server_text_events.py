"""Events of texts: the direct way and the way over chunks write the same, and one message has all
events of a step.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_server_dialects import output

from mlc_native.protocol.openai_api_protocol import ChatCompletionRequest, CompletionRequest
from mlc_native.serve.responses import ChatResponder, CompletionResponder
from mlc_native.serve.streams import AddedText
from mlc_native.server.config import ServerConfig
from mlc_native.server.errors import HttpError
from mlc_native.server.generation import Generation
from mlc_native.server.messages import MessagesDialect
from mlc_native.server.openai import OpenAIDialect
from mlc_native.server.responses import ResponsesDialect

MESSAGES = [{"role": "user", "content": "hi"}]
CONFIG = ServerConfig()
CHAT = ChatResponder(ChatCompletionRequest(messages=MESSAGES), "id", "m")
COMPLETION = CompletionResponder(CompletionRequest(prompt="hi"), "id", "m", echo="")
EXAMPLES = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
ANY_TEXT = st.text(st.characters(exclude_categories=()), min_size=1)
KINDS = st.sampled_from(["content", "reasoning"])


@EXAMPLES
@given(ANY_TEXT, st.integers(0, 3), KINDS, st.booleans())
def test_both_ways_write_the_same_for_chats(
    text: str, index: int, kind: Any, has_usage: bool
) -> None:
    options = {"stream_options": {"include_usage": True}} if has_usage else {}
    body = {"messages": MESSAGES, "stream": True, **options}
    dialect = OpenAIDialect("chat", body, 'a "model"', CONFIG)
    added = AddedText(index, kind, text)
    assert dialect.text_events(added) == dialect.events(CHAT.chunk(added))


@EXAMPLES
@given(ANY_TEXT, st.integers(0, 3), st.booleans())
def test_both_ways_write_the_same_for_completions(text: str, index: int, has_usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if has_usage else {}
    dialect = OpenAIDialect("completion", {"prompt": "hi", "stream": True, **options}, "m", CONFIG)
    added = AddedText(index, "content", text)
    assert dialect.text_events(added) == dialect.events(COMPLETION.chunk(added))


@EXAMPLES
@given(st.lists(st.tuples(KINDS, ANY_TEXT)))
def test_both_ways_write_the_same_messages(texts: list[tuple[Any, str]]) -> None:
    body = {"messages": MESSAGES, "max_tokens": 9, "stream": True, "stop_sequences": ["<end>"]}
    direct, over_chunks = (MessagesDialect(body, "m", CONFIG) for _ in range(2))
    for kind, text in texts:
        added = AddedText(0, kind, text)
        assert direct.text_events(added) == over_chunks.events(CHAT.chunk(added))


@EXAMPLES
@given(st.lists(st.tuples(KINDS, ANY_TEXT)))
def test_both_ways_write_the_same_responses(texts: list[tuple[Any, str]]) -> None:
    body = {"input": "hi", "stream": True}
    direct, over_chunks = (ResponsesDialect(body, "m", CONFIG) for _ in range(2))
    for kind, text in texts:
        added = AddedText(0, kind, text)
        written = direct.text_events(added), over_chunks.events(CHAT.chunk(added))
        assert _without_ids(written[0]) == _without_ids(written[1])


def _without_ids(events: bytes) -> list[Any]:
    """The data of events without the random ids of their items."""
    found = [json.loads(line[6:]) for line in events.split(b"\n") if line.startswith(b"data: ")]
    for event in found:
        event.pop("item_id", None)
        event.get("item", {}).pop("id", None)
    return found


class _Sent:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    async def send(self, data: bytes) -> None:
        self.messages.append(data)


def _send(pieces: list[Any]) -> tuple[list[bytes], OpenAIDialect, Exception | None]:
    dialect = OpenAIDialect("chat", {"messages": MESSAGES, "stream": True, "n": 3}, "m", CONFIG)
    nothing: Any = None
    sent: Any = _Sent()
    error = None
    try:
        asyncio.run(Generation(nothing, nothing)._send_pieces(pieces, dialect, nothing, sent))
    except HttpError as raised:
        error = raised
    return sent.messages, dialect, error


def test_one_message_has_all_events_of_a_step() -> None:
    pieces = [AddedText(index, "content", f"text {index}") for index in range(3)]
    messages, dialect, error = _send(pieces)
    assert error is None
    assert messages == [b"".join(map(dialect.text_events, pieces))]


def test_the_events_in_front_of_an_error_are_sent() -> None:
    added = AddedText(0, "content", "x")
    aborted = CHAT.chunk(added)
    aborted.choices[0].finish_reason = "abort"
    messages, dialect, error = _send([added, aborted])
    assert messages == [dialect.text_events(added)]
    assert isinstance(error, HttpError)
    assert error.code == "request_aborted"


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_a_timeout_behind_a_text_is_a_cut(kind: str) -> None:
    body = {"messages": MESSAGES} if kind == "chat" else {"prompt": "hi"}
    dialect = OpenAIDialect(kind, {**body, "stream": True}, "m", CONFIG)
    responder: Any = CHAT if kind == "chat" else COMPLETION
    dialect.text_events(AddedText(0, "content", "x"))
    end = responder.chunk(AddedText(0, "content", ""))
    end.choices[0].finish_reason = "timeout"
    (choice,) = json.loads(dialect.events(end)[6:])["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("length", "timeout")


def _cut(kind: str, index: int, text: str = "") -> Any:
    """A chunk that ends a choice because the time of its request has passed."""
    responder: Any = CHAT if kind == "chat" else COMPLETION
    end = responder.chunk(AddedText(index, "content", text))
    end.choices[0].finish_reason = "timeout"
    return end


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_one_of_several_choices_has_nothing_when_the_time_ends(kind: str) -> None:
    """The others keep what they have, whole or in a stream."""
    body = {"messages": MESSAGES} if kind == "chat" else {"prompt": "hi"}
    dialect = OpenAIDialect(kind, {**body, "n": 2, "stream": True}, "m", CONFIG)
    dialect.text_events(AddedText(1, "content", "x"))
    for index in range(2):
        (choice,) = json.loads(dialect.events(_cut(kind, index))[6:])["choices"]
        assert (choice["index"], choice["finish_reason"]) == (index, "length")
        assert choice["stop_reason"] == "timeout"

    outputs = [[output("", "timeout"), output("x", "timeout")], [_usage()]]
    responder: Any = CHAT if kind == "chat" else COMPLETION
    dialect = OpenAIDialect(kind, {**body, "n": 2}, "m", CONFIG)
    choices = dialect.response(responder.response(outputs))["choices"]
    assert [choice["finish_reason"] for choice in choices] == ["length", "length"]

    outputs = [[output("", "timeout"), output("", "timeout")], [_usage()]]
    with pytest.raises(HttpError, match="the time of the request ended") as error:
        dialect.response(responder.response(outputs))
    assert error.value.status == 504


def _usage() -> Any:
    counts = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return output("", usage=json.dumps(counts))
