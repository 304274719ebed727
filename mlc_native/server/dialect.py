"""Dialect: what the interfaces of different vendors make of one kind of request to an engine.

An endpoint has a dialect of its own for each request. It says what to ask of the engine, and turns
what comes back into the bytes that the vendor's clients read. It belongs to the task that answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from mlc_native.errors import MLCNativeError
from mlc_native.serve.streams import AddedText
from mlc_native.server.fields import Fields


class Dialect(Protocol):
    """A request in the words of its client.

    Attributes:
        kind: "chat" or "completion": the ``create`` of the engine that answers.
        request_id: the id of the answer.
        fields: arguments of ``create``. With ``stream``, a whole answer is built from chunks, too.
        ignored: names of fields that have no effect.
        is_stream: the client wishes a stream.
        client_names: the client's names of fields of ``create`` that have others.
    """

    kind: str
    request_id: str
    fields: Fields
    ignored: list[str]
    is_stream: bool
    client_names: Mapping[str, str]

    def response(self, response: Any) -> dict[str, Any]:
        """The JSON object of a whole answer. Raises HttpError if there is none.

        ``response`` is the engine's, or None after ``events`` has had all chunks.
        """

    def opening(self) -> bytes:
        """The events before the first chunk."""

    def text_events(self, added: AddedText) -> bytes:
        """The events of a text that was added: the same as those of its chunk."""

    def events(self, chunk: Any) -> bytes:
        """The events of a chunk, which may be the one with the usage. Raises HttpError."""

    def closing(self) -> bytes:
        """The events behind the last chunk."""

    def error_events(self, error: MLCNativeError) -> bytes:
        """The events with which a stream ends that has failed."""
