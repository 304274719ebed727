"""The streams of a request, for threads and for event loops: raw outputs, and OpenAI's chunks.

A stream belongs to its consumer and keeps its engine alive.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any, Self

from mlc_native._stream_bridge import AsyncChannel, CallbackStreamOutput, SyncChannel
from mlc_native.serve.engine_base import MLCEngineBase
from mlc_native.serve.responses import Responder


class RequestStream:
    """Iterates over the outputs of a request: lists with one item per sequence, then the usage.

    Closing or dropping it before the end aborts the request. One thread at a time.
    """

    def __init__(self, engine: MLCEngineBase, channel: SyncChannel) -> None:
        self._engine = engine
        self._channel = channel

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[CallbackStreamOutput]:
        self._engine._check_not_forked()
        outputs: list[CallbackStreamOutput] | None = self._channel.next()
        if outputs is None:
            raise StopIteration
        return outputs

    def close(self) -> None:
        """Aborts the request if it has not ended."""
        self._engine._close_request(self._channel)

    __del__ = close


class AsyncRequestStream:
    """A RequestStream for the event loop that it was made on. One task at a time."""

    def __init__(self, engine: MLCEngineBase, channel: AsyncChannel) -> None:
        self._engine = engine
        self._channel = channel

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[CallbackStreamOutput]:
        self._engine._check_not_forked()
        outputs: list[CallbackStreamOutput] | None = await self._channel.next()
        if outputs is None:
            raise StopAsyncIteration
        return outputs

    def close(self) -> None:
        """Aborts the request if it has not ended."""
        self._engine._close_request(self._channel)

    __del__ = close


def chunks_of(stream: RequestStream, responder: Responder) -> Generator[Any]:
    try:
        yield from responder.opening()
        for outputs in stream:
            yield from responder.chunks(outputs)
    finally:
        stream.close()


async def async_chunks_of(stream: AsyncRequestStream, responder: Responder) -> AsyncGenerator[Any]:
    try:
        for chunk in responder.opening():
            yield chunk
        async for outputs in stream:
            for chunk in responder.chunks(outputs):
                yield chunk
    finally:
        stream.close()
