"""Pieces of the JSON of answers that several dialects share."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from mlc_native._text_event import TextEvent
from mlc_native.server.errors import HttpError

_WIRE_REASONS = ("stop", "length", "tool_calls")


def json_bytes(value: object) -> bytes:
    """JSON without spaces. A lone surrogate, which UTF-8 cannot have, becomes its escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def named_event(kind: str, **fields: Any) -> bytes:
    """A server-sent event that has its type as a name and in its JSON."""
    return b"event: " + kind.encode() + b"\ndata: " + json_bytes({"type": kind, **fields}) + b"\n\n"


def text_event(write: Callable[[str], bytes]) -> TextEvent:
    """An event for any text. ``write`` makes it for one text."""
    mark = uuid.uuid4().hex
    return TextEvent(*write(mark).split(mark.encode()))


def wire_finish(choice: dict[str, Any], has_output: bool) -> None:
    """Replaces finish reasons that clients do not know. ``choice`` is changed.

    Args:
        has_output: whether the request has got anything, in this choice or another.

    Raises:
        HttpError: the answer was aborted, or its time ended before its first token.
    """
    reason = choice.get("finish_reason")
    if reason is None or reason in _WIRE_REASONS:
        return
    if reason == "timeout" and has_output:
        choice["finish_reason"] = "length"
        choice["stop_reason"] = "timeout"
    elif reason == "timeout":
        raise HttpError(504, "the time of the request ended before its answer", code="timeout")
    elif reason == "abort":
        raise HttpError(500, "the request was aborted", code="request_aborted")
    else:
        raise HttpError(500, "the engine ended the request with an error", code="engine_error")


def both_reasoning_names(part: dict[str, Any]) -> None:
    """Gives a message or delta its reasoning under both names that clients use."""
    text = part.get("reasoning_content", part.get("reasoning"))
    if text is not None:
        part["reasoning"] = part["reasoning_content"] = text
