"""Anthropic's ``/v1/messages`` on the engine's chat completions: its Dialect, errors and count."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

from mlc_native._text_event import TextEvent
from mlc_native.errors import MLCNativeError
from mlc_native.serve.streams import AddedText
from mlc_native.server.body import read_json
from mlc_native.server.config import ServerConfig
from mlc_native.server.fields import Fields, create_fields
from mlc_native.server.gate import send_json
from mlc_native.server.messages_request import chat_body
from mlc_native.server.state import ServerState
from mlc_native.server.tokens import chat_tokens
from mlc_native.server.wire import named_event, text_event, wire_finish

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def anthropic_error(error: MLCNativeError) -> bytes:
    """The JSON of an error."""
    default = "invalid_request_error" if error.status < 500 else "api_error"
    kind = _ERROR_TYPES.get(error.status, default)
    return json.dumps({"type": "error", "error": {"type": kind, "message": str(error)}}).encode()


class CountTokens:
    """POST /v1/messages/count_tokens: the tokens of the prompt, as the usage counts them."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = self._state
        body = await read_json(scope, receive, state.config, state.pool)
        engine = state.models.find(body.get("model")).model.loaded()
        chat, _ = chat_body({"max_tokens": 1, **body})
        tokens = await chat_tokens(engine, chat)
        await send_json(send, 200, {"input_tokens": len(tokens)})


class MessagesDialect:
    """A Dialect."""

    kind = "chat"
    client_names: Mapping[str, str] = {}

    def __init__(self, body: Fields, model_name: str, config: ServerConfig) -> None:
        """Raises InvalidRequest for a field that is not served."""
        chat, ignored = chat_body(body)
        self.fields, more = create_fields("chat", chat, config)
        self.ignored = [*ignored, *more]
        self.is_stream = self.fields.get("stream") is True
        self.request_id = f"msg_{uuid.uuid4().hex}"
        self._model_name = model_name
        stop = self.fields.get("stop")
        self._stops = _StopSequences(stop if isinstance(stop, list) else [])
        if self._stops:
            self.fields["include_stop_str_in_output"] = True  # to know which one ended the answer
        if self.is_stream:
            self.fields["stream_options"] = {"include_usage": True}
        self._names_tool = isinstance(self.fields.get("tool_choice"), dict)
        self._blocks = _Blocks()
        self._stop_reason: str | None = None

    def response(self, response: Any) -> dict[str, Any]:
        """See Dialect."""
        (choice,) = response.model_dump(mode="json", exclude_none=True)["choices"]
        message = choice["message"]
        calls = message.get("tool_calls") or []
        text = self._stops.cut(message.get("content") or "")
        reasoning = message.get("reasoning_content")
        wire_finish(choice, bool(text or calls or reasoning))
        content: list[dict[str, Any]] = []
        if reasoning:
            content.append({"type": "thinking", "thinking": reasoning, "signature": ""})
        if text or not calls:
            content.append({"type": "text", "text": text})
        content += [_tool_use(call) for call in calls]
        return {
            **self._message(content),
            "stop_reason": self._reason(choice["finish_reason"], bool(calls)),
            "stop_sequence": self._stops.found,
            "usage": _usage(response.usage),
        }

    def opening(self) -> bytes:
        """See Dialect."""
        usage = {"input_tokens": 0, "output_tokens": 0}  # the last event has the counts
        message = {**self._message([]), "stop_reason": None, "stop_sequence": None, "usage": usage}
        return named_event("message_start", message=message)

    def text_events(self, added: AddedText) -> bytes:
        """See Dialect."""
        if added.kind == "reasoning":
            return self._thinking(added.text)
        text = self._stops.add(added.text)
        return self._blocks.text(text) if text else b""

    def events(self, chunk: Any) -> bytes:
        """See Dialect."""
        if chunk.usage is not None:
            delta = {"stop_reason": self._stop_reason, "stop_sequence": self._stops.found}
            return named_event("message_delta", delta=delta, usage=_usage(chunk.usage))
        return b"".join(self._choice_events(choice) for choice in chunk.choices)

    def closing(self) -> bytes:
        """See Dialect."""
        return named_event("message_stop")

    def error_events(self, error: MLCNativeError) -> bytes:
        """See Dialect."""
        return b"event: error\ndata: " + anthropic_error(error) + b"\n\n"

    def _choice_events(self, choice: Any) -> bytes:
        delta = choice.delta.model_dump(mode="json", exclude_none=True)
        events = b""
        if delta.get("reasoning_content"):
            events += self._thinking(delta["reasoning_content"])
        calls = delta.get("tool_calls") or ()
        text = self._stops.add(delta.get("content") or "")
        if calls:
            text += self._stops.release()
        if choice.finish_reason is not None:
            text += self._stops.rest()
        if text:
            events += self._blocks.text(text)
        for call in calls:
            events += self._blocks.call(call)
        if choice.finish_reason is not None:
            end = {"finish_reason": choice.finish_reason}
            wire_finish(end, self._blocks.count > 0)
            self._stop_reason = self._reason(end["finish_reason"], self._blocks.has_calls)
            events += self._blocks.stop()
        return events

    def _message(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.request_id,
            "type": "message",
            "role": "assistant",
            "model": self._model_name,
            "content": content,
        }

    def _thinking(self, text: str) -> bytes:
        held = self._stops.release()
        return (self._blocks.text(held) if held else b"") + self._blocks.thinking(text)

    def _reason(self, finish_reason: str, has_calls: bool) -> str:
        if self._stops.found is not None:
            return "stop_sequence"
        if finish_reason == "stop" and self._names_tool and has_calls:
            return "tool_use"  # OpenAI has "stop" for a call that the request names
        return _STOP_REASONS[finish_reason]


class _StopSequences:
    """Finds and removes the stop sequence at the end of an answer.

    Of a stream it withholds as many characters as the longest one has.
    """

    def __init__(self, stops: list[str]) -> None:
        self._stops = stops
        self._length = max(map(len, stops), default=0)
        self._held = ""
        self.found: str | None = None

    def __bool__(self) -> bool:
        return bool(self._stops)

    def cut(self, text: str) -> str:
        """A whole answer without it."""
        for stop in sorted(self._stops, key=len, reverse=True):
            if text.endswith(stop):
                self.found = stop
                return text[: -len(stop)]
        return text

    def add(self, text: str) -> str:
        """What can be passed on."""
        text = self._held + text
        keep = max(0, len(text) - self._length)
        self._held = text[keep:]
        return text[:keep]

    def release(self) -> str:
        """What was withheld, in front of what is no text: no sequence ends there."""
        text, self._held = self._held, ""
        return text

    def rest(self) -> str:
        """What was withheld, at the end of the answer."""
        text, self._held = self.cut(self._held), ""
        return text


class _Blocks:
    """The content blocks of a stream; one is open at a time."""

    def __init__(self) -> None:
        self.count = 0
        self.has_calls = False
        self._kind: tuple[str, int] | None = None  # of the open block; the index of a call
        self._event = TextEvent()  # that adds to the open block, if that is text or reasoning

    def text(self, text: str) -> bytes:
        """Events that add text."""
        opened = self._open(("text", 0), {"type": "text", "text": ""})
        if opened:
            self._event = text_event(lambda text: self._delta({"type": "text_delta", "text": text}))
        return opened + self._event.write(text)

    def thinking(self, text: str) -> bytes:
        """Events that add reasoning."""
        block = {"type": "thinking", "thinking": "", "signature": ""}
        opened = self._open(("thinking", 0), block)
        if opened:
            self._event = text_event(
                lambda text: self._delta({"type": "thinking_delta", "thinking": text})
            )
        return opened + self._event.write(text)

    def call(self, call: dict[str, Any]) -> bytes:
        """Events that add to a call."""
        self.has_calls = True
        function = call["function"]
        block = {
            "type": "tool_use",
            "id": call.get("id"),
            "name": function.get("name"),
            "input": {},
        }
        opened = self._open(("tool_use", call["index"]), block)
        arguments = function.get("arguments")
        if not arguments:
            return opened
        return opened + self._delta({"type": "input_json_delta", "partial_json": arguments})

    def stop(self) -> bytes:
        """The event that closes the open block."""
        if self._kind is None:
            return b""
        self._kind = None
        return named_event("content_block_stop", index=self.count - 1)

    def _open(self, kind: tuple[str, int], block: dict[str, Any]) -> bytes:
        if kind == self._kind:
            return b""
        closed = self.stop()
        self._kind = kind
        self.count += 1
        return closed + named_event(
            "content_block_start", index=self.count - 1, content_block=block
        )

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return named_event("content_block_delta", index=self.count - 1, delta=delta)


def _usage(usage: Any) -> dict[str, int]:
    cached = usage.prompt_tokens_details.cached_tokens
    return {
        "input_tokens": usage.prompt_tokens - cached,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.completion_tokens,
    }


def _tool_use(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"], parse_float=_finite)
    except ValueError:  # the limit of tokens cut it
        arguments = {}
    return {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}


def _finite(text: str) -> float:
    """A number; the nearest one that a float can be, as JSON has no infinity."""
    return max(-sys.float_info.max, min(sys.float_info.max, float(text)))
