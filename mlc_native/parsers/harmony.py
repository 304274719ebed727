"""Harmony, the format of gpt-oss: an answer is a list of messages on channels.

A message is ``<|start|>assistant<|channel|>final<|message|>text<|end|>``; the prompt ends with the
first two words. The channel ``analysis`` is reasoning, others are content. A message with
``to=functions.f`` in front of the text is a call, and the text the JSON of its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mlc_native.parsers.json_value import read_json
from mlc_native.parsers.reader import EndOfAnswer, NotACall, Put, Reader, Steps
from mlc_native.parsers.tool_format import (
    Calls,
    Format,
    Tool,
    ToolFormat,
    arguments_of,
    const,
    either,
    sequence,
)

START = "<|start|>"
CHANNEL = "<|channel|>"
CONSTRAIN = "<|constrain|>"
MESSAGE = "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
ANALYSIS = "analysis"
_TO = "to="
_FUNCTIONS = "functions."
_WORD = re.compile(r"[\w.:/-]*")


@dataclass(frozen=True)
class _Header:
    """What is in front of the text of a message; empty if it is not said."""

    channel: str
    recipient: str


def _read_word(reader: Reader) -> Steps[str]:
    word: list[str] = []
    yield from reader.run(_WORD, word.append)
    yield from reader.space()
    return "".join(word)


def _read_header(reader: Reader, begin: str | None) -> Steps[_Header]:
    """Takes a header up to its end. Raises NotACall for anything else.

    Args:
        begin: START or CHANNEL if that was taken, else None.
    """
    channel = recipient = ""
    yield from reader.space()
    if begin is None:
        begin = yield from reader.literal(START)
    if begin == START:
        yield from _read_word(reader)  # the role
    if begin != CHANNEL:
        if (yield from reader.literal(_TO)) is not None:
            recipient = yield from _read_word(reader)
        begin = yield from reader.expect(CHANNEL, MESSAGE)
    if begin == CHANNEL:
        channel = yield from _read_word(reader)
        if not recipient and (yield from reader.literal(_TO)) is not None:
            recipient = yield from _read_word(reader)
        yield from reader.literal(CONSTRAIN)
        yield from _read_word(reader)  # the kind of the text
        yield from reader.expect(MESSAGE)
    return _Header(channel, recipient)


def _read_call(reader: Reader, calls: Calls, header: _Header) -> Steps[None]:
    """Takes the text of a message that is a call."""
    name = header.recipient.removeprefix(_FUNCTIONS)
    yield from reader.space()
    if name == header.recipient or (yield from reader.peek()) != "{":
        raise NotACall
    calls.begin(name)
    yield from read_json(reader, calls.arguments)
    yield from reader.space()
    yield from reader.literal(*ENDS)
    calls.end()


@dataclass(frozen=True)
class HarmonyCalls(ToolFormat):
    """Messages to functions."""

    @property
    def texts(self) -> list[str]:
        """All texts that a call is written with."""
        return [*super().texts, CONSTRAIN, MESSAGE, *ENDS]

    def read(self, reader: Reader, calls: Calls, begin: str) -> Steps[None]:
        """Reads one message."""
        header = yield from _read_header(reader, begin or None)
        yield from _read_call(reader, calls, header)

    def grammar(self, tools: Sequence[Tool], many: bool) -> tuple[str, Format]:
        """One message. The model ends its answer behind it."""
        front = f" {CONSTRAIN}json{MESSAGE}"
        return f"{CHANNEL}commentary {_TO}{_FUNCTIONS}", _calls_grammar(tools, front)

    def other_grammars(self, tools: Sequence[Tool]) -> list[tuple[str, Format]]:
        """The recipient in front of the channel."""
        front = f"{CHANNEL}commentary {CONSTRAIN}json{MESSAGE}"
        return [(f" {_TO}{_FUNCTIONS}", _calls_grammar(tools, front))]


def _calls_grammar(tools: Sequence[Tool], front: str) -> Format:
    return either([sequence(const(tool.name + front), arguments_of(tool)) for tool in tools])


class Parts(Protocol):
    """Where the parts of an answer go."""

    def content(self, text: str) -> None:
        """More content."""

    def reasoning(self, text: str) -> None:
        """More reasoning."""

    def begin_reasoning(self) -> None:
        """Reasoning begins behind what was taken."""

    def end_reasoning(self) -> None:
        """Reasoning ends with what was taken."""

    def settle(self) -> None:
        """What was taken since the last time is content."""

    @property
    def calls(self) -> Calls | None:
        """Where calls go; None if calls are content."""


def read_messages(reader: Reader, parts: Parts, *, is_reasoning: bool) -> Steps[None]:
    """Reads a whole answer, until EndOfAnswer is raised.

    Args:
        is_reasoning: the answer begins within a message of the channel ``analysis``.
    """
    content, reasoning = _Messages(parts.content), _Messages(parts.reasoning)
    if is_reasoning:
        yield from _read_reasoning(reader, parts, reasoning)
    while True:
        yield from reader.more()
        try:
            header = yield from _read_header(reader, None)
            if header.recipient and parts.calls is not None:
                yield from _read_call(reader, parts.calls, header)
                continue
        except EndOfAnswer:
            raise
        except NotACall:
            # What is no message, and a call that is malformed, is content up to the next message.
            parts.settle()
            yield from reader.before((START, CHANNEL), content.put)
            reader.forget()
            continue
        reader.forget()
        if header.channel == ANALYSIS:
            yield from _read_reasoning(reader, parts, reasoning)
        else:
            yield from _read_text(reader, content)


def _read_reasoning(reader: Reader, parts: Parts, reasoning: _Messages) -> Steps[None]:
    parts.begin_reasoning()
    yield from reader.space()
    yield from _read_text(reader, reasoning)
    parts.end_reasoning()


def _read_text(reader: Reader, messages: _Messages) -> Steps[None]:
    """Takes the text of a message, its end, and white space."""
    messages.begin()
    yield from reader.before((*ENDS, START), messages.put)
    yield from reader.literal(*ENDS)
    yield from reader.space()
    reader.forget()


class _Messages:
    """Puts the texts of several messages, each on a line of its own."""

    def __init__(self, put: Put) -> None:
        self._put = put
        self._has_text = False
        self._separator = ""

    def begin(self) -> None:
        """Another message begins."""
        self._separator = "\n" if self._has_text else ""

    def put(self, text: str) -> None:
        """More text of the message."""
        if text:
            self._has_text = True
            self._put(self._separator + text)
            self._separator = ""
