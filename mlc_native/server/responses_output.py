"""ResponseOutput: the items of a response, built from the chunks of a chat completion.

Each addition returns the events that tell a client about it. The items are what the events say, so
a plain answer is built in the same way and only leaves the events out. Belongs to one request.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from mlc_native.server.wire import named_event, text_event

_FIRST = b'"sequence_number":0'


class Events:
    """Numbers the events of one response."""

    def __init__(self) -> None:
        self._number = 0

    def event(self, kind: str, **fields: Any) -> bytes:
        """The next event."""
        return named_event(f"response.{kind}", sequence_number=self._next(), **fields)

    def writer(self, kind: str, **fields: Any) -> Callable[[str], bytes]:
        """A function that makes the next event of a text, which is the field "delta".

        Only the number and the text differ from event to event, so the bytes around them are made
        once.
        """

        def first(text: str) -> list[bytes]:
            event = named_event(f"response.{kind}", sequence_number=0, **{**fields, "delta": text})
            return event.split(_FIRST, 1)

        head = first("")[0] + _FIRST[:-1]
        rest = text_event(lambda text: first(text)[1])
        return lambda text: b"%b%d%b" % (head, self._next(), rest.write(text))

    def _next(self) -> int:
        number, self._number = self._number, self._number + 1
        return number


class ResponseOutput:
    """One item is open at a time: reasoning, a message or a call."""

    def __init__(self, events: Events) -> None:
        self.items: list[dict[str, Any]] = []
        self._events = events
        self._kind: tuple[str, int] | None = None  # of the open item; the index of a call
        self._texts: list[str] = []  # of the open item
        self._writer: Callable[[str], bytes] | None = None  # of events that add to it
        self._logprobs = _Logprobs()

    def add(self, delta: dict[str, Any], logprobs: list[dict[str, Any]]) -> bytes:
        """Adds what a chunk adds to the message of a chat.

        Log probabilities belong to a text with which the answer begins: of tokens behind
        reasoning or a call, it is not known which ones are the text.
        """
        events = b""
        self._logprobs.arrived += logprobs
        if delta.get("reasoning_content"):
            events += self._reasoning(delta["reasoning_content"])
        if delta.get("content"):
            events += self._text(delta["content"])
        for call in delta.get("tool_calls") or ():
            events += self._call(call)
        return events

    def end(self, is_cut: bool) -> bytes:
        """Closes the last item. An answer that was cut may leave it incomplete."""
        if not self.items and not is_cut:
            return self._text("") + self._close(is_cut=False)
        return self._close(is_cut)

    # ------------------------------------------------------------------------------------ parts

    def _reasoning(self, text: str) -> bytes:
        item = {"id": _id("rs"), "type": "reasoning", "summary": [], "content": []}
        part = {"type": "reasoning_text", "text": ""}
        opened = self._open(("reasoning", 0), item, part)
        return opened + self._added("reasoning_text.delta", text, content_index=0, delta="")

    def _text(self, text: str) -> bytes:
        item = {"id": _id("msg"), "type": "message", "role": "assistant", "content": []}
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        opened = self._open(("message", 0), item, part)
        if not text:
            return opened
        logprobs = self._logprobs.of(text) if len(self.items) == 1 else []
        if not logprobs:
            fields = {"content_index": 0, "delta": "", "logprobs": []}
            return opened + self._added("output_text.delta", text, **fields)
        self._texts.append(text)
        return opened + self._part_event("output_text.delta", delta=text, logprobs=logprobs)

    def _call(self, call: dict[str, Any]) -> bytes:
        function = call["function"]
        item = {
            "id": _id("fc"),
            "type": "function_call",
            "call_id": call.get("id"),
            "name": function.get("name"),
            "arguments": "",
        }
        opened = self._open(("function_call", call["index"]), item, None)
        arguments = function.get("arguments")
        if not arguments:
            return opened
        return opened + self._added("function_call_arguments.delta", arguments, delta="")

    def _added(self, kind: str, text: str, **fields: Any) -> bytes:
        """The event of a text that is added to the open item."""
        self._texts.append(text)
        if self._writer is None:
            self._writer = self._events.writer(kind, **self._place(), **fields)
        return self._writer(text)

    # ------------------------------------------------------------------------------------ items

    def _open(
        self, kind: tuple[str, int], item: dict[str, Any], part: dict[str, Any] | None
    ) -> bytes:
        if kind == self._kind:
            return b""
        closed = self._close(is_cut=False)
        self._kind = kind
        self.items.append({**item, "status": "in_progress"})
        opened = self._events.event(
            "output_item.added", output_index=len(self.items) - 1, item=self.items[-1]
        )
        if part is not None:
            opened += self._part_event("content_part.added", part=part)
            self.items[-1]["content"] = [part]
        return closed + opened

    def _close(self, is_cut: bool) -> bytes:
        if self._kind is None:
            return b""
        kind, self._kind = self._kind[0], None
        item = self.items[-1]
        text = "".join(self._texts)
        item["status"] = "incomplete" if is_cut else "completed"
        if kind == "function_call":
            item["arguments"] = text
            item["status"] = "completed" if _is_json(text) else "incomplete"
            events = self._item_event("function_call_arguments.done", arguments=text)
        else:
            events = self._close_part(kind, text)
        self._texts, self._writer = [], None
        index = len(self.items) - 1
        return events + self._events.event("output_item.done", output_index=index, item=item)

    def _close_part(self, kind: str, text: str) -> bytes:
        (part,) = self.items[-1]["content"]
        part["text"] = text
        if kind == "message":
            part["logprobs"] = self._logprobs.given if len(self.items) == 1 else []
            done = self._part_event("output_text.done", text=text, logprobs=part["logprobs"])
        else:
            done = self._part_event("reasoning_text.done", text=text)
        return done + self._part_event("content_part.done", part=part)

    def _item_event(self, kind: str, **fields: Any) -> bytes:
        return self._events.event(kind, **self._place(), **fields)

    def _place(self) -> dict[str, Any]:
        """Where the open item is."""
        return {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}

    def _part_event(self, kind: str, **fields: Any) -> bytes:
        return self._item_event(kind, content_index=0, **fields)


class _Logprobs:
    """Log probabilities of tokens, given out with the text that they begin in."""

    def __init__(self) -> None:
        self.arrived: list[dict[str, Any]] = []
        self.given: list[dict[str, Any]] = []
        self._num_text_bytes = 0
        self._num_token_bytes = 0

    def of(self, text: str) -> list[dict[str, Any]]:
        """Those of the next text."""
        begin = len(self.given)
        self._num_text_bytes += len(text.encode())
        while len(self.given) < len(self.arrived) and self._num_token_bytes < self._num_text_bytes:
            token = self.arrived[len(self.given)]
            self._num_token_bytes += len(token["bytes"])
            self.given.append(token)
        return self.given[begin:]


def _id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
