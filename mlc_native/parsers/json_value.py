"""Reads JSON while it arrives: in time that is linear in its length, and without recursion."""

from __future__ import annotations

import json
import re
from typing import Any

from mlc_native.parsers.reader import SPACE, NotACall, Put, Reader, Steps

MAX_DEPTH = 128
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_SCALAR = re.compile(r"[-+.0-9A-Za-z]*")
_VALID_SCALAR = re.compile(
    r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null", re.ASCII
)
_HEX = frozenset("0123456789abcdefABCDEF")


def is_scalar(text: str) -> bool:
    """Whether a text is a JSON number, true, false or null."""
    return _VALID_SCALAR.fullmatch(text) is not None


def read_json(reader: Reader, put: Put) -> Steps[None]:
    """Takes one JSON value and puts its text. Raises NotACall if it is not valid JSON."""
    closers: list[str] = []  # of the objects and arrays that are open
    while True:
        yield from reader.run(SPACE, put)
        opened = yield from _read_scalar_or_opening(reader, put, closers)
        if opened:
            continue
        while closers:
            yield from reader.run(SPACE, put)
            char = yield from reader.take()
            put(char)
            if char == closers[-1]:
                closers.pop()
            elif char == ",":
                if closers[-1] == "}":
                    yield from _read_key(reader, put)
                break
            else:
                raise NotACall
        else:
            return


def _read_scalar_or_opening(reader: Reader, put: Put, closers: list[str]) -> Steps[bool]:
    """Takes a value that has no members, or what comes before the first member of another one.

    Returns whether a member follows.
    """
    char = yield from reader.peek()
    if char == '"':
        yield from read_string(reader, put)
        return False
    if char not in "{[":
        yield from _read_number_or_word(reader, put)
        return False
    put((yield from reader.take()))
    yield from reader.run(SPACE, put)
    closer = "}" if char == "{" else "]"
    if (yield from reader.peek()) == closer:
        put((yield from reader.take()))
        return False
    if len(closers) == MAX_DEPTH:
        raise NotACall
    closers.append(closer)
    if closer == "}":
        yield from _read_key(reader, put)
    return True


def _read_key(reader: Reader, put: Put) -> Steps[None]:
    yield from reader.run(SPACE, put)
    yield from read_string(reader, put)
    yield from reader.run(SPACE, put)
    put((yield from reader.expect(":")))


def _read_number_or_word(reader: Reader, put: Put) -> Steps[None]:
    pieces: list[str] = []
    yield from reader.run(_SCALAR, pieces.append)
    text = "".join(pieces)
    if not is_scalar(text):
        raise NotACall
    put(text)


def read_string(reader: Reader, put: Put) -> Steps[None]:
    """Takes a JSON string and puts its text, with the quotes."""
    put((yield from reader.expect('"')))
    while True:
        yield from reader.run(_PLAIN, put)
        char = yield from reader.take()
        if char == '"':
            put(char)
            return
        if char != "\\":  # a control character
            if not reader.is_certain:
                raise NotACall
            put(json.dumps(char)[1:-1])
            continue
        escape = yield from reader.take()
        if escape == "u":
            for _ in range(4):
                escape += yield from reader.take()
            if not _HEX.issuperset(escape[1:]):
                raise NotACall
        elif escape not in '"\\/bfnrt':
            raise NotACall
        put(char + escape)


def read_string_value(reader: Reader) -> Steps[str]:
    """Takes a JSON string and returns what it spells."""
    pieces: list[str] = []
    yield from read_string(reader, pieces.append)
    value: str = json.loads("".join(pieces))
    return value


def parse_strict(text: str) -> Any:
    """The value of a JSON text. Raises ValueError for anything else, also NaN and great depth."""
    reader = Reader()
    reader.add(text.strip(" \t\r\n"))
    reader.ended = True
    try:
        for _ in read_json(reader, _ignore):
            pass
    except NotACall:
        raise ValueError("no JSON") from None
    if not reader.is_empty():
        raise ValueError("there is text behind the JSON")
    return json.loads(text)


def _ignore(_text: str) -> None:
    pass
