"""Generation: the endpoints that generate, for every dialect.

A request is read, admitted, handed to the engine and answered in one task. Alongside it, another
one waits for the client to go away, and cancels it then: the engine drops the request at its next
step, whether it waits, compiles its grammar, generates or is being sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any

from starlette.types import Receive, Scope, Send

from mlc_native.errors import InvalidRequest
from mlc_native.serve.streams import AddedText
from mlc_native.server.body import read_json
from mlc_native.server.config import ServerConfig
from mlc_native.server.dialect import Dialect
from mlc_native.server.errors import ClientGone, public_error
from mlc_native.server.events import EventStream
from mlc_native.server.fields import Fields, integer
from mlc_native.server.gate import request_id_of, send_json
from mlc_native.server.models import ServedModel
from mlc_native.server.request_log import log_request
from mlc_native.server.state import ServerState
from mlc_native.server.wire import json_bytes

LONG_ANSWER_VALUES = 1000  # a few milliseconds of work, which is done on a thread above that

Headers = list[tuple[bytes, bytes]]
MakeDialect = Callable[[Fields, str, ServerConfig], Dialect]


async def until_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Does the work unless the client goes away first.

    Requires: the body of the request has been received.

    Raises:
        ClientGone: it went away, and the work has been cancelled.
    """
    doing = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_wait_until_gone(receive))
    try:
        await asyncio.wait((doing, gone), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ClientGone
        await doing
    finally:
        gone.cancel()
        if not doing.done():
            doing.cancel()
            await asyncio.wait((doing,))


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _num_values(fields: Fields, usage: Any) -> int:
    """About the number of JSON values of an answer: those of a token and its alternatives."""
    num_tokens: int = 0 if usage is None else usage.completion_tokens + usage.prompt_tokens
    if not fields.get("logprobs") and not fields.get("prompt_logprobs"):
        return num_tokens if fields.get("return_token_ids") else 0
    alternatives = integer(fields, "top_logprobs") or integer(fields, "logprobs") or 0
    return num_tokens * (1 + alternatives + (integer(fields, "prompt_logprobs") or 0))


def _num_scores(chunk: Any) -> int:
    """About the number of JSON values of the log-probabilities of a prompt in a chunk."""
    pieces = [chunk, *chunk.choices]
    scores = [getattr(piece, "prompt_logprobs", None) or () for piece in pieces]
    scores += [getattr(getattr(piece, "logprobs", None), "top_logprobs", ()) for piece in pieces]
    return sum(len(each) * (1 + len(each[-1] or ())) for each in scores if each)


class Generation:
    """An endpoint, as an ASGI app.

    ``make_dialect`` reads a request: it takes its JSON, the name that answers carry, and the
    settings of the server.
    """

    def __init__(self, state: ServerState, make_dialect: MakeDialect) -> None:
        self._state = state
        self._make_dialect = make_dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = self._state
        body = await read_json(scope, receive, state.config, state.pool)
        found = state.models.find(body.get("model"))
        model = found.model
        dialect = self._make_dialect(body, found.name, state.config)
        if found.adapter is not None:
            dialect.fields.setdefault("adapter", found.adapter)
        log_request(
            state.config, request_id_of(scope), found.name, dialect.request_id, dialect.fields
        )
        headers = state.ignored_fields.header(dialect.ignored)
        with state.running.admit(model.name):
            answer = self._stream if dialect.is_stream else self._whole
            await until_gone(receive, answer(dialect, model, scope, send, headers))

    async def _create(self, dialect: Dialect, model: ServedModel) -> Any:
        engine = model.loaded()
        interface: Any = engine.chat.completions if dialect.kind == "chat" else engine.completions
        try:
            return await interface.create(request_id=dialect.request_id, **dialect.fields)
        except InvalidRequest as error:
            error.field = dialect.client_names.get(error.field or "", error.field)
            raise

    async def _whole(
        self, dialect: Dialect, model: ServedModel, scope: Scope, send: Send, headers: Headers
    ) -> None:
        created = await self._create(dialect, model)
        response, usage = created, None
        if dialect.fields.get("stream") is True:
            response = None
            async with aclosing(created):
                while (pieces := await created.next_pieces()) is not None:
                    for piece in pieces:
                        if isinstance(piece, AddedText):
                            dialect.text_events(piece)
                        else:
                            usage = piece.usage or usage
                            dialect.events(piece)
        else:
            usage = created.usage
        self._state.metrics[model.name].observe(dialect.fields, usage)

        def write() -> bytes:
            return json_bytes(dialect.response(response))

        is_long = _num_values(dialect.fields, usage) > LONG_ANSWER_VALUES
        await send_json(
            send, 200, await self._state.on_thread(write) if is_long else write(), headers
        )

    async def _stream(
        self, dialect: Dialect, model: ServedModel, scope: Scope, send: Send, headers: Headers
    ) -> None:
        chunks = await self._create(dialect, model)
        stream = EventStream(scope, send, self._state.config, headers)
        async with aclosing(chunks), stream:
            try:
                await stream.send(dialect.opening())
                while (pieces := await chunks.next_pieces()) is not None:
                    await self._send_pieces(pieces, dialect, model, stream)
                await stream.send(dialect.closing())
            except ClientGone:
                raise
            except Exception as error:
                told = public_error(error, request_id_of(scope))
                await stream.send(dialect.error_events(told))

    async def _send_pieces(
        self, pieces: list[Any], dialect: Dialect, model: ServedModel, stream: EventStream
    ) -> None:
        """Sends the events of all pieces at once; those in front of an error, too."""
        events: list[bytes] = []
        try:
            for piece in pieces:
                if isinstance(piece, AddedText):
                    events.append(dialect.text_events(piece))
                    continue
                if piece.usage is not None and not piece.choices:
                    self._state.metrics[model.name].observe(dialect.fields, piece.usage)
                write = partial(dialect.events, piece)
                is_long = _num_scores(piece) > LONG_ANSWER_VALUES
                events.append(await self._state.on_thread(write) if is_long else write())
        except Exception:
            await stream.send(b"".join(events))
            raise
        await stream.send(events[0] if len(events) == 1 else b"".join(events))
