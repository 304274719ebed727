"""AnswerParser: splits an answer into reasoning, content and calls of tools while it arrives.

The deltas of an answer, joined, are the same for every way of cutting its text: the parser reads
the text character by character, as far as that matters, and never looks at where a piece ended.
A delta is never taken back. Text is withheld only while it may still be part of a marker, of the
white space around a call, or of a call that is not known to be well formed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from mlc_native.parsers.harmony import HarmonyCalls, read_messages
from mlc_native.parsers.reader import EndOfAnswer, NotACall, Reader, Steps
from mlc_native.parsers.reasoning import ReasoningFormat
from mlc_native.parsers.tool_format import Tool, ToolFormat


@dataclass
class TextDelta:
    """More text of the content or of the reasoning."""

    kind: Literal["content", "reasoning"]
    text: str


@dataclass
class CallDelta:
    """The beginning of a call, with its id and name, or more text of its arguments.

    ``index`` counts the calls of an answer from 0.
    """

    index: int
    call_id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass
class Span:
    """Characters of an answer that are reasoning with its marks. The end may not be known yet."""

    begin: int
    end: int | None = None


Delta = TextDelta | CallDelta
_WHITE_SPACE = " \t\r\n"


@dataclass(frozen=True)
class AnswerSyntax:
    """What the answers of one request look like. Immutable; its answers share it.

    Attributes:
        tools: how calls are written; None if calls are ordinary text.
        reasoning: how reasoning is marked; None if it is ordinary text.
        is_reasoning: the prompt opens the reasoning.
        is_certain: a grammar forces calls to be well formed, so their arguments are passed on as
            they arrive. Otherwise a call is passed on when it is complete.
        parallel: an answer may have several calls. Otherwise those behind the first are dropped.
        offered: the tools of the request by name.
    """

    tools: ToolFormat | None = None
    reasoning: ReasoningFormat | None = None
    is_reasoning: bool = False
    is_certain: bool = False
    parallel: bool = True
    offered: Mapping[str, Tool] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether an answer is nothing but content."""
        return self.tools is None and self.reasoning is None


class AnswerParser:
    """Parses one answer. ``feed`` takes its text piece by piece, ``finish`` its end.

    Attributes:
        reasoning_spans: which characters of the answer are reasoning with its marks.
        reasoning_is_known: whether no more reasoning can follow, so that the spans are complete.
    """

    def __init__(self, syntax: AnswerSyntax) -> None:
        self._syntax = syntax
        self._reader = Reader(syntax.is_certain)
        self._deltas: list[Delta] = []
        self._calls = _Calls(syntax, self._reader, self._add)
        self._steps = self._read()
        self._done = False
        self.reasoning_spans: list[Span] = []
        self.reasoning_is_known = syntax.reasoning is None

    @property
    def has_complete_calls(self) -> bool:
        """Whether there are calls, and none of them was cut."""
        return self._calls.num_calls > 0 and not self._calls.is_open

    def feed(self, text: str) -> list[Delta]:
        """The deltas that the next piece of the answer makes certain."""
        if not text:
            return []
        self._reader.add(text)
        return self._go_on()

    def finish(self) -> list[Delta]:
        """The deltas that were withheld. Nothing follows."""
        self._reader.ended = True
        deltas = self._go_on()
        self.reasoning_is_known = True
        return deltas

    def _go_on(self) -> list[Delta]:
        if not self._done:
            self._done = next(self._steps, self) is self
        deltas, self._deltas = self._deltas, []
        if len(deltas) < 2:
            return deltas
        return [_joined(list(group)) for _, group in groupby(deltas, _part)]

    def _add(self, delta: Delta) -> None:
        self._deltas.append(delta)

    def _content(self, text: str) -> None:
        if text:
            self._add(TextDelta("content", text))

    # ------------------------------------------------------------------ the parts of an answer

    def _read(self) -> Steps[None]:
        reader = self._reader
        reasoning, tools = self._syntax.reasoning, self._syntax.tools
        try:
            if reasoning is not None and reasoning.in_messages:
                calls = self._calls if isinstance(tools, HarmonyCalls) else None
                parts = _Parts(self, calls)
                yield from read_messages(reader, parts, is_reasoning=self._syntax.is_reasoning)
            if reasoning is not None:
                yield from self._read_reasoning(reasoning)
                self.reasoning_is_known = True
            if tools is not None:
                yield from self._read_text_and_calls(tools)
            while True:
                yield from reader.more()
                reader.take_all()
                self._settle_as_content()
        except EndOfAnswer:
            # White space alone is content only if there is nothing else.
            if self._calls.num_calls == 0 or not "".join(reader.taken).isspace():
                self._settle_as_content()

    def _read_reasoning(self, reasoning: ReasoningFormat) -> Steps[None]:
        """Takes the reasoning, if there is any, and the white space around it."""
        reader = self._reader
        yield from reader.space()
        opened = (yield from reader.literal(*reasoning.opens)) is not None
        if not opened and not self._syntax.is_reasoning:
            return
        self._begin_span(0)
        yield from reader.space()
        yield from reader.before(reasoning.closes, _Reasoning(self._add).put)
        yield from reader.literal(*reasoning.closes)
        self._end_span()
        yield from reader.space()
        reader.forget()

    def _begin_span(self, begin: int) -> None:
        self.reasoning_spans.append(Span(begin))

    def _end_span(self) -> None:
        self.reasoning_spans[-1].end = self._reader.position

    def _read_text_and_calls(self, tools: ToolFormat) -> Steps[None]:
        """Takes everything, or what comes before the place where no call can follow any more."""
        reader = self._reader
        at_start = True
        while True:
            # White space at the beginning or behind a call belongs to a call that follows.
            yield from reader.space()
            yield from reader.more()
            is_bare = at_start and (yield from reader.peek()) in tools.bare
            at_start = False
            begin = "" if is_bare else (yield from self._read_begin(tools))
            while begin is None or not (yield from self._read_calls(tools, begin)):
                self._settle_as_content()
                if not tools.begins:
                    return
                yield from reader.before(tools.begins, self._content)
                reader.forget()
                yield from reader.more()
                begin = yield from self._read_begin(tools)

    def _read_begin(self, tools: ToolFormat) -> Steps[str | None]:
        if not tools.begins:
            return None
        return (yield from self._reader.literal(*tools.begins))

    def _read_calls(self, tools: ToolFormat, begin: str) -> Steps[bool]:
        """Returns whether calls were read; if not, the text that was taken is content."""
        self._calls.must_be_offered = not begin
        try:
            yield from tools.read(self._reader, self._calls, begin)
        except NotACall:
            is_cut = self._reader.ended and self._syntax.is_certain and self._calls.is_open
            if not is_cut:
                return False
            self._reader.take_all()  # of the call, and no part of its arguments
        self._reader.forget()
        return True

    def _settle_as_content(self) -> None:
        self._content("".join(self._reader.taken))
        self._reader.forget()


def _part(delta: Delta) -> object:
    """What is the same of deltas that become one: the kind of a text, the call of arguments."""
    if isinstance(delta, TextDelta):
        return delta.kind
    return delta.index if delta.name is None else delta


def _joined(deltas: list[Delta]) -> Delta:
    """Deltas of the same part as one, in time that is linear in their length."""
    first = deltas[0]
    if len(deltas) == 1:
        return first
    if isinstance(first, TextDelta):
        texts = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
        return TextDelta(first.kind, "".join(texts))
    pieces = [delta.arguments for delta in deltas if isinstance(delta, CallDelta)]
    return CallDelta(first.index, arguments="".join(pieces))


class _Parts:
    """Where the messages of an answer go."""

    def __init__(self, parser: AnswerParser, calls: _Calls | None) -> None:
        self._parser = parser
        self._reasoning = _Reasoning(parser._add)
        self.calls = calls

    def content(self, text: str) -> None:
        self._parser._content(text)

    def reasoning(self, text: str) -> None:
        self._reasoning.put(text)

    def begin_reasoning(self) -> None:
        self._parser._begin_span(self._parser._reader.position)

    def end_reasoning(self) -> None:
        self._parser._end_span()

    def settle(self) -> None:
        self._parser._settle_as_content()


class _Reasoning:
    """Passes on reasoning without the white space at its end."""

    def __init__(self, add: Callable[[Delta], None]) -> None:
        self._add = add
        self._held: list[str] = []

    def put(self, text: str) -> None:
        rest = text.rstrip(_WHITE_SPACE)
        if rest:
            self._add(TextDelta("reasoning", "".join([*self._held, rest])))
            self._held.clear()
        self._held.append(text[len(rest) :])


class _Calls:
    """The calls of an answer. A call that is not certain is kept back until it ends."""

    def __init__(self, syntax: AnswerSyntax, reader: Reader, add: Callable[[Delta], None]) -> None:
        self.num_calls = 0
        self.is_open = False  # the last one has begun and not ended
        self.must_be_offered = False
        self._syntax = syntax
        self._reader = reader
        self._add = add
        self._kept: list[Delta] = []
        self._has_arguments = False

    @property
    def tools(self) -> Mapping[str, Tool]:
        return self._syntax.offered

    def begin(self, name: str, call_id: str | None = None) -> None:
        if not name or (self.must_be_offered and name not in self._syntax.offered):
            raise NotACall
        assert self._syntax.tools is not None
        self._kept.clear()
        self._has_arguments = False
        self._put(CallDelta(self.num_calls, call_id or self._syntax.tools.new_id(), name))

    def arguments(self, text: str) -> None:
        """More of the arguments; of a text that is kept back, nothing yet."""
        self._has_arguments = True
        if text:
            self._put(CallDelta(self._index(), arguments=text))
        elif self._syntax.is_certain:
            self._reader.forget()

    def end(self) -> None:
        if not self._has_arguments:
            self.arguments("{}")
        for delta in self._kept:
            self._send(delta)
        self._kept.clear()
        self.is_open = False
        self._reader.forget()

    def _index(self) -> int:
        return self.num_calls - 1 if self._syntax.is_certain else self.num_calls

    def _put(self, delta: CallDelta) -> None:
        if self._syntax.is_certain:
            self._send(delta)
            self._reader.forget()
        else:
            self._kept.append(delta)

    def _send(self, delta: Delta) -> None:
        assert isinstance(delta, CallDelta)
        if delta.name is not None:
            self.num_calls += 1
            self.is_open = True
        if self._syntax.parallel or delta.index == 0:
            self._add(delta)
