"""OpenAI's ``/v1/responses`` on the engine's chat completions: its Dialect."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from mlc_native.errors import MLCNativeError
from mlc_native.serve.streams import AddedText
from mlc_native.server.config import ServerConfig
from mlc_native.server.fields import Fields, create_fields
from mlc_native.server.responses_output import Events, ResponseOutput
from mlc_native.server.responses_request import chat_body
from mlc_native.server.wire import wire_finish

# Settings that a response repeats, and what they are if the request does not have them.
_SETTINGS: Fields = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}


class ResponsesDialect:
    """A Dialect. The engine streams the answer in any case: it is built from its chunks."""

    kind = "chat"
    client_names: Mapping[str, str] = {"messages": "input", "max_tokens": "max_output_tokens"}

    def __init__(self, body: Fields, model_name: str, config: ServerConfig) -> None:
        """Raises InvalidRequest for a field that is not served."""
        chat, ignored = chat_body(body)
        self.fields, more = create_fields("chat", chat, config)
        self.ignored = [*ignored, *more]
        self.is_stream = self.fields.get("stream") is True
        self.request_id = f"resp_{uuid.uuid4().hex}"
        self.fields |= {"stream": True, "stream_options": {"include_usage": True}}
        given = {name: body[name] for name in _SETTINGS if body.get(name) is not None}
        self._head: Fields = {
            "id": self.request_id,
            "object": "response",
            "created_at": int(time.time()),
            "model": model_name,
            "background": False,
            "previous_response_id": None,
            "service_tier": "default",
            "store": False,
            **_SETTINGS,
            **given,
        }
        self._events = Events()
        self._output = ResponseOutput(self._events)
        self._is_cut = False
        self._usage: Fields | None = None

    def response(self, _response: Any = None) -> Fields:
        """See Dialect."""
        return self._response("incomplete" if self._is_cut else "completed")

    def opening(self) -> bytes:
        """See Dialect."""
        begun = self._response("in_progress")
        return self._events.event("created", response=begun) + self._events.event(
            "in_progress", response=begun
        )

    def text_events(self, added: AddedText) -> bytes:
        """See Dialect."""
        name = "reasoning_content" if added.kind == "reasoning" else "content"
        return self._output.add({name: added.text}, [])

    def events(self, chunk: Any) -> bytes:
        """See Dialect."""
        if chunk.usage is not None:
            self._usage = _usage(chunk.usage)
        return b"".join(self._choice_events(choice) for choice in chunk.choices)

    def closing(self) -> bytes:
        """See Dialect."""
        kind = "incomplete" if self._is_cut else "completed"
        return self._events.event(kind, response=self.response())

    def error_events(self, error: MLCNativeError) -> bytes:
        """See Dialect."""
        told = error.to_openai()["error"]
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        failure = {"code": code, "message": told["message"]}
        closed = self._output.end(is_cut=True)
        return closed + self._events.event("failed", response=self._response("failed", failure))

    def _choice_events(self, choice: Any) -> bytes:
        delta = choice.delta.model_dump(mode="json", exclude_none=True, exclude={"role"})
        delta = {name: value for name, value in delta.items() if value}
        logprobs = choice.logprobs.model_dump(mode="json")["content"] if choice.logprobs else []
        end = {"finish_reason": choice.finish_reason}
        wire_finish(end, bool(self._output.items or delta))  # before an event has a number
        events = self._output.add(delta, logprobs)
        if choice.finish_reason is not None:
            self._is_cut = end["finish_reason"] == "length"
            events += self._output.end(self._is_cut)
        return events

    def _response(self, status: str, error: Fields | None = None) -> Fields:
        is_incomplete = status == "incomplete"
        return {
            **self._head,
            "status": status,
            "completed_at": int(time.time()) if status == "completed" else None,
            "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if is_incomplete else None,
            "output": self._output.items,
            "usage": self._usage,
        }


def _usage(usage: Any) -> Fields:
    reasoning = usage.completion_tokens_details
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.prompt_tokens_details.cached_tokens,
            "cache_write_tokens": 0,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {
            "reasoning_tokens": reasoning.reasoning_tokens if reasoning is not None else 0
        },
        "total_tokens": usage.total_tokens,
    }
