"""The body of a request: read within limits of size and time, parsed within a limit of depth."""

from __future__ import annotations

import asyncio
import json
import math
from concurrent.futures import Executor
from typing import Any, NoReturn

from starlette.types import Receive, Scope

from mlc_native.serve.work_threads import outcome_of
from mlc_native.server.config import ServerConfig
from mlc_native.server.errors import ClientGone, HttpError
from mlc_native.support.bounded_json import TooDeepError, check_depth

# About a millisecond of parsing, which is done on a thread above that. The parser keeps the GIL:
# other threads wait for about 10 ms per MB.
LONG_BODY_BYTES = 64 << 10
BYTES_PER_EXTRA_SECOND = 64 << 10


async def read_json(
    scope: Scope, receive: Receive, config: ServerConfig, pool: Executor
) -> dict[str, Any]:
    """The JSON object that a request consists of. A long one is parsed in the pool.

    Raises:
        HttpError: it is too large, too slow, of another type, or no JSON object.
        ClientGone: the client went away.
    """
    _check_content_type(scope)
    _check_content_encoding(scope)
    body = await _read(scope, receive, config)
    if len(body) <= LONG_BODY_BYTES:
        return parse_object(body, config.max_json_depth)
    return await outcome_of(pool.submit(parse_object, body, config.max_json_depth))


def header(scope: Scope, name: bytes) -> bytes | None:
    """The value of a header, by its name in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return None


def _check_content_type(scope: Scope) -> None:
    content_type = header(scope, b"content-type")
    if content_type is None:
        return
    kind = content_type.partition(b";")[0].strip().lower()
    # Anything else could be sent by a web page of a foreign origin without asking the server.
    if kind != b"application/json" and not kind.endswith(b"+json"):
        raise HttpError(
            415,
            f"the content type must be application/json, got {kind.decode('latin-1')[:100]}",
            code="unsupported_media_type",
        )


def _check_content_encoding(scope: Scope) -> None:
    encoding = (header(scope, b"content-encoding") or b"identity").strip().lower()
    if encoding != b"identity":
        raise HttpError(
            415,
            "the request must be sent as it is, without a content encoding, got "
            f"{encoding.decode('latin-1')[:100]}",
            code="unsupported_media_type",
            headers={"accept-encoding": "identity"},
        )


async def _read(scope: Scope, receive: Receive, config: ServerConfig) -> bytes:
    length = header(scope, b"content-length")
    if length is not None and length.isdigit() and int(length) > config.max_body_bytes:
        raise _too_large(config)
    loop = asyncio.get_running_loop()
    start = loop.time()
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(config.body_timeout_s) as deadline:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > config.max_body_bytes:
                    raise _too_large(config)
                if not message.get("more_body", False):
                    return b"".join(pieces)
                deadline.reschedule(start + config.body_timeout_s + size / BYTES_PER_EXTRA_SECOND)
    except TimeoutError:
        raise HttpError(
            408,
            "the body of the request did not arrive in time",
            code="body_timeout",
            headers={"connection": "close"},
        ) from None


def _too_large(config: ServerConfig) -> HttpError:
    return HttpError(
        413,
        f"the request must have at most {config.max_body_bytes} bytes",
        code="request_too_large",
        headers={"connection": "close"},  # the rest of the body is not read
    )


def _bad_json(message: str) -> HttpError:
    return HttpError(400, message, code="invalid_json")


def parse_object(body: bytes, max_depth: int) -> dict[str, Any]:
    """Parses a JSON object.

    Raises:
        HttpError: it is something else, nested deeper than ``max_depth``, or has numbers or texts
            that JSON does not know (NaN, lone surrogates) or no float can be (1e400).
    """
    try:
        value = json.loads(
            body.decode("utf-8-sig"), parse_constant=_refuse_constant, parse_float=_finite
        )
    except RecursionError:
        raise _too_deep(max_depth) from None
    except UnicodeDecodeError:
        raise _bad_json("the request is not valid UTF-8") from None
    except json.JSONDecodeError as error:
        raise _bad_json(
            f"the request is not valid JSON: {error.msg} (line {error.lineno}, "
            f"column {error.colno})"
        ) from None
    except ValueError:  # an integer of thousands of digits
        raise _bad_json("the request has a number with too many digits") from None
    if not isinstance(value, dict):
        raise _bad_json("the request must be a JSON object")
    if body.count(b"[") + body.count(b"{") > max_depth:
        try:
            check_depth((value,), max_depth)
        except TooDeepError:
            raise _too_deep(max_depth) from None
    if b"\\ud" in body or b"\\uD" in body:
        _check_unicode(value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise _bad_json(f"the request is not valid JSON: {name} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):  # an answer that repeats it would not be JSON
        raise _bad_json(f"the request has the number {text[:100]}, which is too large")
    return value


def _too_deep(max_depth: int) -> HttpError:
    return _bad_json(f"the request is nested deeper than {max_depth} levels")


def _check_unicode(value: dict[str, Any]) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _bad_json("the request has a lone surrogate, which is no valid Unicode") from None
