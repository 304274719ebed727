"""OpenAI's format of batches: one JSON request per line, one JSON answer per line.

The answers may come in any order. Each carries the ``custom_id`` of its request, and its ``id``
ends with the number of the request's line, so a file of answers says which lines are done.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from array import array
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

from mlc_native.errors import invalid_config

CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"
URLS = (CHAT, COMPLETION, EMBEDDINGS)
READ_BYTES = 1 << 16  # at once, of a pipe
_ID = re.compile(r"batch_req_(\d+)")
_BEGINNING = b'{"id": "batch_req_'  # of each line of answers


@dataclass(frozen=True)
class BatchRequest:
    """A line of the input."""

    line: int  # from 1
    custom_id: str
    url: str
    body: dict[str, Any]


class BadLine(Exception):
    """A line that is no request. ``code`` is OpenAI's."""

    def __init__(self, code: str, message: str, custom_id: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.custom_id = custom_id


def parse_request(line: int, text: bytes) -> BatchRequest:
    """The request of a line. Raises BadLine."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadLine("invalid_json_line", f"line {line} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadLine("invalid_json_line", f"line {line} is not a JSON object")
    custom_id = fields.get("custom_id")
    if not isinstance(custom_id, str):
        raise BadLine("missing_required_parameter", f'line {line}: "custom_id" must be a text')
    if fields.get("method", "POST") != "POST":
        raise BadLine("invalid_method", f'line {line}: "method" must be "POST"', custom_id)
    url = fields.get("url")
    if url not in URLS:
        allowed = ", ".join(f'"{each}"' for each in URLS)
        message = f'line {line}: "url" must be one of {allowed}, got {url!r}'
        raise BadLine("invalid_url", message, custom_id)
    body = fields.get("body")
    if not isinstance(body, dict):
        raise BadLine("invalid_request", f'line {line}: "body" must be a JSON object', custom_id)
    if body.get("stream"):
        message = f'line {line}: "stream" must be false in a batch'
        raise BadLine("invalid_request", message, custom_id)
    return BatchRequest(line, custom_id, url, body)


def answer_line(
    request: BatchRequest, status: int, request_id: str | None, body: Any
) -> dict[str, Any]:
    """The line of an answer; ``status`` is that of HTTP, and ``body`` may be an error's."""
    response = {"status_code": status, "request_id": request_id, "body": body}
    return _line(request.line, request.custom_id, response, None)


def bad_line(line: int, error: BadLine) -> dict[str, Any]:
    """The line about a line that is no request."""
    described = {"code": error.code, "message": str(error), "param": None, "line": line}
    return _line(line, error.custom_id, None, described)


def _line(line: int, custom_id: str | None, response: Any, error: Any) -> dict[str, Any]:
    return {"id": f"batch_req_{line}", "custom_id": custom_id, "response": response, "error": error}


class DoneLines:
    """The lines of the input that have an answer, with a checksum of each custom_id."""

    def __init__(self) -> None:
        self._checksums = array("q")  # by line; -1: not done
        self.count = 0
        self.num_failed = 0  # of those whose answer is an error

    def add(self, line: int, custom_id: str | None) -> None:
        """Notes an answer."""
        missing = line + 1 - len(self._checksums)
        self._checksums.extend([-1] * max(missing, 0))
        self.count += self._checksums[line] < 0
        self._checksums[line] = _checksum(custom_id)

    def __contains__(self, line: int) -> bool:
        return line < len(self._checksums) and self._checksums[line] >= 0

    def agrees(self, line: int, custom_id: str | None) -> bool:
        """Whether the answer to a line was to this custom_id."""
        return self._checksums[line] == _checksum(custom_id)


def _checksum(custom_id: str | None) -> int:
    return crc32((custom_id or "").encode("utf-8", "surrogatepass"))


class AnswerFile:
    """A file of answers that grows by whole lines. Owned by one process at a time.

    Args:
        path: an unfinished file is continued: what a kill has left of a line is cut off.
        overwrite: begin anew with ``empty``; what the file holds does not matter.

    Raises:
        InvalidConfig: the file is something else, or another process writes it.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, overwrite: bool = False) -> None:
        self.done = DoneLines()
        self._path = path
        # Without a buffer: what a full disk has no room for would be written again by the close.
        self._file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            self._lock()
            if not overwrite:
                self._file.truncate(self._read())
            self._file.seek(0, os.SEEK_END)
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise invalid_config("output", f"another process writes {self._path}") from None

    def _read(self) -> int:
        """Notes the lines that are there and returns the end of the last complete one."""
        end = 0
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            for text in lines:
                try:
                    if not text.endswith(b"\n"):
                        _check_beginning(text)
                        break
                    fields = json.loads(text)
                    line = int(_ID.fullmatch(fields["id"])[1])  # type: ignore[index]
                    self.done.add(line, fields["custom_id"])
                    self.done.num_failed += not _is_answered(fields)
                except (ValueError, TypeError, KeyError):
                    raise invalid_config(
                        "output",
                        f"{self._path} is not a file of answers of this command; --overwrite "
                        "replaces it",
                    ) from None
                end += len(text)
        return end

    def empty(self) -> None:
        """Drops all answers."""
        self._file.seek(0)
        self._file.truncate()
        self.done = DoneLines()

    def write(self, line: dict[str, Any]) -> None:
        """Adds a line. It is in the file when this returns."""
        left = memoryview(json.dumps(line).encode("ascii") + b"\n")
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            error.filename = str(self._path)
            raise

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _is_answered(fields: dict[str, Any]) -> bool:
    """Whether a line of answers has one, and no error."""
    response = fields.get("response")
    return isinstance(response, dict) and response.get("status_code") == 200


def _check_beginning(text: bytes) -> None:
    """Raises ValueError if no line of answers begins like this."""
    if text[: len(_BEGINNING)] != _BEGINNING[: len(text)]:
        raise ValueError


def numbered_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, with their numbers from 1."""
    for number, text in enumerate(file, 1):
        if text.strip():
            yield number, text


async def piped_lines(file: BinaryIO) -> AsyncIterator[tuple[int, bytes]]:
    """``numbered_lines`` of a pipe that may not have them yet: the event loop does not wait."""
    number = 0
    pieces: list[bytes] = []  # of the line that has no end yet
    while chunk := await _read_when_there(file.fileno()):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            number += 1
            text = b"".join([*pieces, end])
            pieces.clear()
            if text.strip():
                yield number, text
        pieces.append(rest)
    text = b"".join(pieces)
    if text.strip():
        yield number + 1, text


async def _read_when_there(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    there = asyncio.Event()
    loop.add_reader(descriptor, there.set)
    try:
        await there.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, READ_BYTES)
