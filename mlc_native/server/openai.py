"""OpenAIDialect: chat completions and completions in OpenAI's JSON.

Almost every event of a stream adds a text to one choice, and differs from the one before only in
this text: a TextEvent writes it. All other chunks are dumped and completed. Both ways give the
same bytes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel

from mlc_native._text_event import TextEvent
from mlc_native.errors import MLCNativeError
from mlc_native.serve.streams import AddedText
from mlc_native.server.config import ServerConfig
from mlc_native.server.errors import error_body
from mlc_native.server.fields import Fields, create_fields, integer
from mlc_native.server.wire import both_reasoning_names, json_bytes, text_event, wire_finish

# kind -> prefix of ids, object of a whole answer, object of a chunk
_NAMES = {
    "chat": ("chatcmpl", "chat.completion", "chat.completion.chunk"),
    "completion": ("cmpl", "text_completion", "text_completion"),
}
# The fields of a chunk that events have from elsewhere.
_KNOWN_FIELDS = {"id", "object", "created", "model", "system_fingerprint", "choices"}
DONE = b"data: [DONE]\n\n"


class OpenAIDialect:
    """A Dialect. ``kind`` is "chat" or "completion"."""

    client_names: Mapping[str, str] = {}

    def __init__(self, kind: str, body: Fields, model_name: str, config: ServerConfig) -> None:
        """Raises InvalidRequest for a field that is not served."""
        self.kind = kind
        self.fields, self.ignored = create_fields(kind, body, config)
        self.is_stream = self.fields.get("stream") is True
        prefix, whole, chunk = _NAMES[kind]
        self.request_id = f"{prefix}-{uuid.uuid4().hex}"
        self._head = {
            "id": self.request_id,
            "object": chunk if self.is_stream else whole,
            "created": int(time.time()),
            "model": model_name,
        }
        self._is_chat = kind == "chat"
        self._hides_reasoning = self._is_chat and body.get("include_reasoning") is False
        self._keeps_extra = config.enable_debug
        self._includes_usage = self._ask_for_usage() if self.is_stream else False
        self._text_events: dict[tuple[int, str], TextEvent] = {}  # by choice and kind
        self._has_output = False  # whether any choice has a text, a call, ..., or its end

    def _ask_for_usage(self) -> bool:
        """Whether the client wishes the usage, which the server asks for in any case."""
        options = self.fields.get("stream_options", {})
        if not isinstance(options, dict):
            return False  # the engine refuses it
        self.fields["stream_options"] = {**options, "include_usage": True}
        return options.get("include_usage") is True

    # --------------------------------------------------------------------------- whole answers

    def response(self, response: Any) -> dict[str, Any]:
        """See Dialect."""
        plain = response.model_dump(mode="json", exclude_none=True)
        plain.update(self._head)
        has_output = any(map(self._has_something, plain["choices"]))
        for choice in plain["choices"]:
            if self._is_chat:
                message = choice["message"]
                both_reasoning_names(message)
                self._hide_reasoning(message)
                message["content"] = message.get("content", "")
                if message.get("tool_calls") and not message["content"]:
                    message["content"] = None
                message.setdefault("refusal", None)
            wire_finish(choice, has_output)
            choice.setdefault("logprobs", None)
        if "usage" in plain:
            plain["usage"] = self._wire_usage(plain["usage"])
        return dict(plain)

    def _has_something(self, choice: dict[str, Any]) -> bool:
        """Whether a whole answer has a text, a call, ..., or came to its end."""
        if choice.get("finish_reason") != "timeout":
            return True
        if not self._is_chat:
            return bool(choice.get("text"))
        parts = ("content", "tool_calls", "reasoning", "reasoning_content")
        return any(choice["message"].get(part) for part in parts)

    def _wire_usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The counts. ``extra`` has the engine's times, or its metrics if they were asked for."""
        return {k: v for k, v in usage.items() if k != "extra" or self._keeps_extra}

    # --------------------------------------------------------------------------------- streams

    def opening(self) -> bytes:
        """See Dialect: the role of each answer of a chat."""
        if not self._is_chat:
            return b""
        delta = {"role": "assistant", "content": ""}
        choices = range(integer(self.fields, "n") or 1)
        return b"".join(self._event({"index": index, "delta": delta}) for index in choices)

    def text_events(self, added: AddedText) -> bytes:
        """See Dialect: one event, or none for reasoning that is not shown."""
        key = added.choice, added.kind
        self._has_output = True
        if added.kind == "reasoning" and self._hides_reasoning:
            return b""
        event = self._text_events.get(key)
        if event is None:
            event = self._text_events[key] = text_event(partial(self._text_event, *key))
        return event.write(added.text)

    def events(self, chunk: Any) -> bytes:
        """See Dialect: one event for each choice that has something new."""
        if chunk.usage is not None and not chunk.choices:
            return self._usage_event(chunk.usage)
        return b"".join(self._dumped(chunk))

    def closing(self) -> bytes:
        """See Dialect."""
        return DONE

    def error_events(self, error: MLCNativeError) -> bytes:
        """See Dialect."""
        return b"data: " + error_body(error) + b"\n\n" + DONE

    def _text_event(self, index: int, kind: str, text: str) -> bytes:
        if not self._is_chat:
            return self._event({"index": index, "text": text})
        delta = {"reasoning_content" if kind == "reasoning" else "content": text}
        both_reasoning_names(delta)
        return self._event({"index": index, "delta": delta})

    def _usage_event(self, usage: BaseModel) -> bytes:
        if not self._includes_usage:
            return b""
        counts = self._wire_usage(usage.model_dump(mode="json", exclude_none=True))
        return _sse({**self._head, "choices": [], "usage": counts})

    def _dumped(self, chunk: BaseModel) -> Iterator[bytes]:
        plain = chunk.model_dump(mode="json", exclude_none=True)
        more = {name: plain[name] for name in plain if name not in _KNOWN_FIELDS}
        if "usage" in more:  # the counts so far
            more["usage"] = self._wire_usage(more["usage"])
        for choice in plain["choices"]:
            has_new = self._complete(choice)
            reason = choice.get("finish_reason")
            if has_new or reason not in (None, "timeout"):
                self._has_output = True
            wire_finish(choice, self._has_output)
            if not has_new and not more and reason is None and "logprobs" not in choice:
                continue  # a role, which the opening has said
            yield self._event(choice, **more)
            more = {}

    def _complete(self, choice: dict[str, Any]) -> bool:
        """Prepares a choice of a chunk. Returns whether it adds something to the answer."""
        if not self._is_chat:
            return bool(choice["text"])
        delta = choice["delta"]
        del delta["role"]
        if delta.get("content") == "":
            del delta["content"]
        if self._hide_reasoning(delta):
            self._has_output = True
        both_reasoning_names(delta)
        for call in delta.get("tool_calls", ()):
            call["function"].setdefault("arguments", "")  # clients add to it
        return bool(delta)

    def _hide_reasoning(self, part: dict[str, Any]) -> bool:
        """Takes the reasoning out of a message or delta that is not to show any."""
        if not self._hides_reasoning:
            return False
        found = [part.pop(name, None) for name in ("reasoning_content", "reasoning")]
        return any(found)

    def _event(self, choice: dict[str, Any], **more: Any) -> bytes:
        part = "delta" if self._is_chat else "text"
        first = {"index": choice["index"], part: choice[part]}
        full = {**first, "logprobs": None, "finish_reason": None, **choice}
        return _sse({**self._head, "choices": [full], "usage": None, **more})


def _sse(value: object) -> bytes:
    return b"data: " + json_bytes(value) + b"\n\n"
