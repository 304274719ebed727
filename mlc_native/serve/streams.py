"""The streams of requests, for threads and for event loops: raw outputs, and OpenAI's chunks.

A stream belongs to its consumer and keeps its engine alive. It carries the outputs of one request,
or of the several requests that one call became.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

from mlc_native._stream_bridge import AsyncChannel, CallbackStreamOutput, SyncChannel
from mlc_native.serve.engine_requests import EngineRequests

ChunkT = TypeVar("ChunkT")
Outputs = list[CallbackStreamOutput]


class AddedText(NamedTuple):
    """What almost every output is: more text of a choice, given by its index, and nothing else."""

    choice: int
    kind: Literal["content", "reasoning"]
    text: str


class Responder(Protocol):
    """Makes what a caller gets from the outputs of its requests."""

    def opening(self) -> list[Any]:
        """Chunks before the first output."""

    def pieces(self, outputs: Outputs) -> list[Any]:
        """What one batch of outputs adds: chunks, and an AddedText for each chunk that would have
        nothing but a text.
        """

    def chunk(self, added: AddedText) -> Any:
        """The chunk of an AddedText."""

    def response(self, outputs: list[Outputs]) -> Any:
        """The response, from all batches of outputs."""


def _pieces(responder: Responder, outputs: Outputs) -> list[Any]:
    return responder.pieces(outputs)


def made_chunks(responder: Responder, outputs: Outputs) -> list[Any]:
    """The chunks of one batch of outputs; none if nothing is new."""
    return [
        responder.chunk(piece) if isinstance(piece, AddedText) else piece
        for piece in responder.pieces(outputs)
    ]


class RequestStream:
    """Iterates over the outputs of a request: lists with one item per sequence, then the usage.

    Closing or dropping it before the end, and an error, abort its requests. One thread at a time.
    """

    def __init__(self, engine: EngineRequests, channel: SyncChannel) -> None:
        self._engine = engine
        self._channel = channel

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Outputs:
        self._engine._check_not_forked()
        try:
            outputs = self._channel.next()
        except BaseException:
            self.close()
            raise
        if outputs is None:
            raise StopIteration
        return outputs

    def close(self) -> None:
        """Aborts the request if it has not ended."""
        self._engine._close_request(self._channel)

    __del__ = close


class AsyncRequestStream:
    """A RequestStream for the event loop that it was made on. One task at a time."""

    def __init__(self, engine: EngineRequests, channel: AsyncChannel) -> None:
        self._engine = engine
        self._channel = channel

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Outputs:
        self._engine._check_not_forked()
        if self._channel.has_waiter:
            raise RuntimeError("another task waits for this stream: one task at a time")
        try:
            outputs = await self._channel.next()
        except BaseException:
            self.close()
            raise
        if outputs is None:
            raise StopAsyncIteration
        return outputs

    def close(self) -> None:
        """Aborts the request if it has not ended."""
        self._engine._close_request(self._channel)

    __del__ = close


class ChunkStream(Generic[ChunkT]):
    """The chunks of a streamed answer, once; a context manager that closes the stream.

    Closing or dropping it before the end aborts the request. One thread at a time.
    """

    def __init__(self, stream: RequestStream, responder: Responder) -> None:
        self._stream = stream
        self._responder = responder
        self._ready: deque[ChunkT] = deque(responder.opening())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ChunkT:
        while not self._ready:
            self._ready.extend(made_chunks(self._responder, next(self._stream)))
        return self._ready.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the stream, and aborts the request if it has not ended."""
        self._ready.clear()
        self._stream.close()


class AsyncChunkStream(Generic[ChunkT]):
    """The chunks of a streamed answer, once; an asynchronous context manager that closes it.

    Closing or dropping it before the end aborts the request. One task at a time.
    """

    def __init__(
        self,
        stream: AsyncRequestStream,
        responder: Responder,
        work: Callable[..., Awaitable[Any]],  # runs a function on a thread
    ) -> None:
        self._stream = stream
        self._responder = responder
        self._work = work
        self._ready: deque[ChunkT] = deque(responder.opening())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChunkT:
        while not self._ready:
            self._ready.extend(await self._made(made_chunks))
        return self._ready.popleft()

    async def next_pieces(self) -> list[ChunkT | AddedText] | None:
        """All that has arrived; None at the end. A caller uses either this or the iteration.

        A chunk that would have nothing but a text is an ``AddedText(choice, kind, text)`` instead,
        which takes much less time. The kind is "content" or "reasoning".
        """
        if self._ready:
            opening, self._ready = self._ready, deque()
            return [*opening]
        try:
            return await self._made(_pieces)
        except StopAsyncIteration:
            return None

    async def _made(self, make: Callable[[Responder, Outputs], list[Any]]) -> list[Any]:
        """What a function makes of the next outputs. Raises StopAsyncIteration at the end."""
        outputs = await anext(self._stream)
        if not outputs[0].has_scored_prompt:
            return make(self._responder, outputs)
        # The scores of a long prompt are too much for the event loop.
        try:
            made: list[Any] = await self._work(make, self._responder, outputs)
        except BaseException:
            self._stream.close()
            raise
        return made

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the stream, and aborts the request if it has not ended."""
        self._ready.clear()
        self._stream.close()

    close = aclose  # the name of OpenAI's client
