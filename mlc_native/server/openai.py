"""OpenAIDialect: chat completions and completions in OpenAI's JSON.

Almost every chunk of a stream adds a piece of text to one choice. Its JSON is written by hand
around the escaped text; all other chunks are dumped and completed. Both forms have the same keys.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from functools import cache
from json.encoder import encode_basestring as quote
from typing import Any

from pydantic import BaseModel

from mlc_native.errors import MLCNativeError
from mlc_native.server.config import ServerConfig
from mlc_native.server.errors import error_body
from mlc_native.server.fields import Fields, create_fields, integer
from mlc_native.server.wire import both_reasoning_names, json_bytes, wire_finish

# kind -> prefix of ids, object of a whole answer, object of a chunk
_NAMES = {
    "chat": ("chatcmpl", "chat.completion", "chat.completion.chunk"),
    "completion": ("cmpl", "text_completion", "text_completion"),
}
# The fields of a chunk that only adds a text.
_PLAIN_FIELDS = {
    *("id", "object", "created", "model", "system_fingerprint", "choices"),
    *("index", "delta", "role", "content", "text"),
}
DONE = b"data: [DONE]\n\n"


class OpenAIDialect:
    """A Dialect. ``kind`` is "chat" or "completion"."""

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
        self._keeps_extra = config.enable_debug
        self._includes_usage = self._ask_for_usage() if self.is_stream else False
        self._null_usage: Fields = {"usage": None} if self._includes_usage else {}
        self._prefixes: dict[int, bytes] = {}  # of the event that adds a text to a choice
        self._suffix = self._text_suffix()
        self._started: set[int] = set()  # choices with a text, a call, ...

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
        for choice in plain["choices"]:
            has_output = bool(choice.get("text"))
            if self._is_chat:
                message = choice["message"]
                both_reasoning_names(message)
                has_output = any(message.get(k) for k in ("content", "tool_calls", "reasoning"))
                message["content"] = message.get("content", "")
                if message.get("tool_calls") and not message["content"]:
                    message["content"] = None
                message.setdefault("refusal", None)
            wire_finish(choice, has_output)
            choice.setdefault("logprobs", None)
        if "usage" in plain:
            plain["usage"] = self._wire_usage(plain["usage"])
        return dict(plain)

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

    def events(self, chunk: Any) -> bytes:
        """See Dialect: one event for each choice that has something new."""
        choices = chunk.choices
        if chunk.usage is not None and not choices:
            return self._usage_event(chunk.usage)
        if len(choices) == 1:
            choice = choices[0]
            if self._is_chat:
                text, is_plain = choice.delta.content, _is_plain(chunk, choice, choice.delta)
            else:
                text, is_plain = choice.text, _is_plain(chunk, choice)
            if text and is_plain:
                return self._text_event(choice.index, text)
        return b"".join(self._dumped(chunk))

    def closing(self) -> bytes:
        """See Dialect."""
        return DONE

    def error_events(self, error: MLCNativeError) -> bytes:
        """See Dialect."""
        return b"data: " + error_body(error) + b"\n\n" + DONE

    def _text_event(self, index: int, text: str) -> bytes:
        prefix = self._prefixes.get(index)
        if prefix is None:
            self._started.add(index)
            opened = '"delta":{"content":' if self._is_chat else '"text":'
            choice = f',"choices":[{{"index":{index},{opened}'
            prefix = b"data: " + json_bytes(self._head)[:-1] + choice.encode()
            self._prefixes[index] = prefix
        return prefix + quote(text).encode() + self._suffix

    def _text_suffix(self) -> bytes:
        closing = "}" if self._is_chat else ""
        usage = ',"usage":null' if self._includes_usage else ""
        return f'{closing},"logprobs":null,"finish_reason":null}}]{usage}}}\n\n'.encode()

    def _usage_event(self, usage: BaseModel) -> bytes:
        if not self._includes_usage:
            return b""
        counts = self._wire_usage(usage.model_dump(mode="json", exclude_none=True))
        return _sse({**self._head, "choices": [], "usage": counts})

    def _dumped(self, chunk: BaseModel) -> Iterator[bytes]:
        plain = chunk.model_dump(mode="json", exclude_none=True)
        more = {name: plain[name] for name in plain if name not in _PLAIN_FIELDS}
        if "usage" in more:  # the counts so far
            more["usage"] = self._wire_usage(more["usage"])
        for choice in plain["choices"]:
            has_new = self._complete(choice)
            wire_finish(choice, has_new or choice["index"] in self._started)
            if has_new:
                self._started.add(choice["index"])
            elif not more and "finish_reason" not in choice and "logprobs" not in choice:
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
        both_reasoning_names(delta)
        for call in delta.get("tool_calls", ()):
            call["function"].setdefault("arguments", "")  # clients add to it
        return bool(delta)

    def _event(self, choice: dict[str, Any], **more: Any) -> bytes:
        part = "delta" if self._is_chat else "text"
        first = {"index": choice["index"], part: choice[part]}
        full = {**first, "logprobs": None, "finish_reason": None, **choice}
        return _sse({**self._head, "choices": [full], **self._null_usage, **more})


def _sse(value: object) -> bytes:
    return b"data: " + json_bytes(value) + b"\n\n"


@cache
def _other_fields(kind: type[BaseModel]) -> tuple[str, ...]:
    return tuple(name for name in kind.model_fields if name not in _PLAIN_FIELDS)


def _is_plain(*parts: BaseModel) -> bool:
    """Whether the parts of a chunk have nothing but a text."""
    for part in parts:
        for name in _other_fields(type(part)):
            if getattr(part, name) is not None:
                return False
    return True
