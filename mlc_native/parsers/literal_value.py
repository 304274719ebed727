"""Reads literals of other languages than JSON while they arrive, and writes them as JSON.

The languages are Python (``{'a': [True, None]}``) and that of Gemma 4 (``{a:[true,<|"|>x<|"|>]}``).
JSON is a part of both. Reading takes time that is linear in the length, and does not recurse.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

from mlc_native.parsers.json_value import MAX_DEPTH, is_scalar
from mlc_native.parsers.reader import NotACall, Put, Reader, Steps

_WORD = re.compile(r"[-+.\w]*")
_KEY = re.compile(r"[^\s\"'<>{}\[\],:]*")
_PLAIN = {"'": re.compile(r"[^'\\\n]*"), '"': re.compile(r'[^"\\\n]*')}
_PLAIN_LINES = {"'": re.compile(r"[^'\\]*"), '"': re.compile(r'[^"\\]*')}
_CLOSERS = {"[": "]", "(": ")", "{": "}"}
_WORDS = {"True": "true", "False": "false", "None": "null"}
# What Python's escapes stand for. JSON's are among them.
_ESCAPES = {
    **{"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"},
    **{"\\": "\\", "'": "'", '"': '"', "/": "/", "\n": ""},
}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_HEX = frozenset("0123456789abcdefABCDEF")
_OCTAL = frozenset("01234567")
GEMMA_QUOTE = '<|"|>'


@dataclass(frozen=True)
class Literals:
    """A language of literals.

    Attributes:
        quotes: the texts around a string. What is between quotes of one character has escapes.
        opens: the characters that begin a list or an object.
        is_python: strings in a row are one string, three quotes begin a string of several lines,
            and the keys of an object are strings. Otherwise keys may stand without quotes.
    """

    quotes: tuple[str, ...]
    opens: str
    is_python: bool


PYTHON = Literals(('"', "'"), "[({", is_python=True)
GEMMA = Literals((GEMMA_QUOTE, '"'), "[{", is_python=False)


@dataclass
class _Group:
    """A list or an object that is open."""

    closer: str
    num_members: int = 0
    has_comma: bool = False


def read_literal(reader: Reader, put: Put, language: Literals) -> Steps[None]:
    """Takes one literal and puts it as JSON. Raises NotACall for anything else."""
    groups: list[_Group] = []
    while True:
        yield from reader.space()
        begin = yield from reader.literal(*language.quotes, *language.opens)
        if begin is None:
            yield from _read_word(reader, put)
        elif begin in language.quotes:
            yield from _read_string(reader, put, begin, language)
        elif len(groups) == MAX_DEPTH:
            raise NotACall
        else:
            groups.append(_Group(_CLOSERS[begin]))
            put("{" if begin == "{" else "[")
        while groups:
            if (yield from _begins_member(reader, groups[-1])):
                yield from _read_member_begin(reader, put, groups[-1], language)
                break
            put("}" if groups.pop().closer == "}" else "]")
        else:
            return


def _begins_member(reader: Reader, group: _Group) -> Steps[bool]:
    """Takes what comes before the next member, or the closer. Returns whether a member follows."""
    yield from reader.space()
    if group.num_members > 0:
        if (yield from reader.expect(",", group.closer)) == group.closer:
            if group.closer == ")" and group.num_members == 1 and not group.has_comma:
                raise NotACall  # an expression in parentheses
            return False
        group.has_comma = True
        yield from reader.space()
    return (yield from reader.literal(group.closer)) is None


def _read_member_begin(reader: Reader, put: Put, group: _Group, language: Literals) -> Steps[None]:
    if group.num_members > 0:
        put(", ")
    group.num_members += 1
    if group.closer != "}":
        return
    yield from reader.space()
    quote = yield from reader.literal(*language.quotes)
    if quote is not None:
        yield from _read_string(reader, put, quote, language)
    else:
        key: list[str] = []
        yield from reader.run(_KEY, key.append)
        if language.is_python or not key:
            raise NotACall
        put(json.dumps("".join(key), ensure_ascii=False))
    yield from reader.space()
    yield from reader.expect(":")
    put(": ")


def _read_word(reader: Reader, put: Put) -> Steps[None]:
    """Takes a number, or a name of a truth value or of nothing."""
    pieces: list[str] = []
    yield from reader.run(_WORD, pieces.append)
    text = "".join(pieces)
    text = _WORDS.get(text, text)
    put(text if is_scalar(text) else _number(text))


def _number(text: str) -> str:
    """The JSON of a number that Python can read: ``1_000``, ``.5``, ``0x1F``."""
    try:
        return json.dumps(int(text, 0))
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        raise NotACall from None
    if text.lstrip("+-")[:1].isalpha() or not math.isfinite(value):
        raise NotACall
    return json.dumps(value)


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _read_string(reader: Reader, put: Put, quote: str, language: Literals) -> Steps[None]:
    """Takes a string whose opening quote was taken."""

    def put_text(text: str) -> object:
        return put(_escaped(text))

    put('"')
    following: str | None = quote
    while following is not None:
        quote = following
        if len(quote) > 1:
            yield from reader.before((quote,), put_text)
            yield from reader.expect(quote)
            break
        mark = (yield from reader.literal(quote * 2, quote)) if language.is_python else None
        if mark != quote:
            yield from _read_quoted(reader, put, quote, is_long=mark is not None)
        if not language.is_python:
            break
        yield from reader.space()
        following = yield from reader.literal(*language.quotes)
    put('"')


def _read_quoted(reader: Reader, put: Put, quote: str, *, is_long: bool) -> Steps[None]:
    plain = (_PLAIN_LINES if is_long else _PLAIN)[quote]
    while True:
        yield from reader.run(plain, lambda text: put(_escaped(text)))
        char = yield from reader.take()
        if char == "\\":
            put((yield from _read_escape(reader)))
        elif char != quote:  # the end of a line
            if not reader.is_certain:
                raise NotACall
            put(_escaped(char))
        elif not is_long or (yield from reader.literal(quote * 2)) is not None:
            return
        else:
            put(_escaped(quote))


def _read_escape(reader: Reader) -> Steps[str]:
    """Takes what is behind a backslash and returns the JSON of what it stands for."""
    char = yield from reader.take()
    if char in _ESCAPES:
        return _escaped(_ESCAPES[char])
    if char in _HEX_DIGITS:
        digits = ""
        for _ in range(_HEX_DIGITS[char]):
            digits += yield from reader.take()
        code = int(digits, 16) if _HEX.issuperset(digits) else -1
        if not 0 <= code <= 0x10FFFF:
            raise NotACall
        # Two of JSON's escapes may be the halves of one character.
        return f"\\u{digits}" if char == "u" else json.dumps(chr(code))[1:-1]
    if char in _OCTAL:
        digits = char
        while len(digits) < 3 and (yield from reader.peek()) in _OCTAL:
            digits += yield from reader.take()
        return _escaped(chr(int(digits, 8)))
    if char == "N":  # the name of a character
        raise NotACall
    return _escaped("\\" + char)
