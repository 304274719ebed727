"""A server of your own: chat completions over HTTP, with nothing but asyncio.

python examples/async_server_of_your_own.py --port 8000
curl -N http://127.0.0.1:8000/v1/chat/completions -d \
    '{"messages": [{"role": "user", "content": "Hi!"}], "stream": true}'

It shows how an engine serves many clients on one event loop; it is no server for the open internet.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import aclosing, suppress
from typing import Any

from mlc_native import AsyncMLCEngine, InvalidRequest, MLCNativeError

PATH = "/v1/chat/completions"
MAX_BODY_BYTES = 1 << 20


async def read_request(reader: asyncio.StreamReader) -> tuple[str, str, bytes]:
    """Method, path and body of a request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    request_line, *header_lines = head.rstrip().split("\r\n")
    headers = {}
    for line in header_lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    length = int(headers.get("content-length", 0))
    if length > MAX_BODY_BYTES:
        raise ValueError(f"the body must have at most {MAX_BODY_BYTES} bytes, got {length}")
    method, path, _ = request_line.split(" ", 2)
    return method, path, await reader.readexactly(length)


def send_head(writer: asyncio.StreamWriter, status: int, content_type: str) -> None:
    """Status and headers; the body ends with the connection."""
    writer.write(
        f"HTTP/1.1 {status} \r\nContent-Type: {content_type}\r\nConnection: close\r\n\r\n".encode()
    )


def send_error(writer: asyncio.StreamWriter, status: int, error: MLCNativeError) -> None:
    """An error in the form of OpenAI's interface."""
    send_head(writer, status, "application/json")
    writer.write(json.dumps(error.to_openai()).encode())


async def complete(engine: AsyncMLCEngine, body: bytes, writer: asyncio.StreamWriter) -> None:
    """Answers a chat completion, as a whole or as server-sent events."""
    arguments = json.loads(body)
    if not isinstance(arguments, dict):
        raise ValueError("the body must be a JSON object")
    result: Any = await engine.chat.completions.create(**arguments)
    if not arguments.get("stream"):
        send_head(writer, 200, "application/json")
        writer.write(result.model_dump_json(exclude_none=True).encode())
        return
    send_head(writer, 200, "text/event-stream")
    # A client that goes away makes drain() raise; closing the chunks then aborts the request.
    async with aclosing(result) as chunks:
        async for chunk in chunks:
            writer.write(f"data: {chunk.model_dump_json(exclude_none=True)}\n\n".encode())
            await writer.drain()
    writer.write(b"data: [DONE]\n\n")


async def serve_client(
    engine: AsyncMLCEngine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """One request of one connection. Other connections go on meanwhile."""
    try:
        method, path, body = await read_request(reader)
        if (method, path) == ("POST", PATH):
            await complete(engine, body, writer)
        else:
            send_error(writer, 404, InvalidRequest(f"there is only POST {PATH}"))
    except MLCNativeError as error:  # a wrong value (400), a full queue (429), ...
        send_error(writer, error.status, error)
    except (TypeError, ValueError) as error:  # no JSON, an unknown argument
        send_error(writer, 400, InvalidRequest(str(error)))
    except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # the client has gone, or its headers are too long
    finally:
        writer.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description="Chat completions over HTTP.")
    parser.add_argument("model", nargs="?", default="demo", help="model folder or hub id")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    arguments = parser.parse_args()
    async with AsyncMLCEngine(arguments.model, mode="server") as engine:
        server = await asyncio.start_server(
            lambda reader, writer: serve_client(engine, reader, writer),
            "127.0.0.1",
            arguments.port,
        )
        port = server.sockets[0].getsockname()[1]
        print(f"http://127.0.0.1:{port}{PATH}", flush=True)
        async with server:
            await server.serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
