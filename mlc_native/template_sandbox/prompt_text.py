"""PromptText: a text that knows which of its characters the chat template wrote.

A chat template mixes texts of its own, such as ``<|im_start|>``, with texts of a request. Only its
own may become control tokens. In a rendering, a ``str`` is the template's own, and a PromptText is
of the request as far as ``own`` does not say otherwise. What is not known to be the template's
counts as the request's.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex

Ranges = tuple[tuple[int, int], ...]


class PromptText(str):
    """A text of a request.

    Attributes:
        own: the ranges that are the template's own: pairs of begin and end, ascending and not
            adjacent.
    """

    __slots__ = ()
    own: Ranges = ()

    def __str__(self) -> str:
        return self

    def __getitem__(self, key: SupportsIndex | slice) -> PromptText:
        return PromptText(str.__getitem__(self, key))

    def __iter__(self) -> Iterator[str]:
        return map(PromptText, str.__iter__(self))


class MixedText(PromptText):
    """A text of which some ranges are the template's own."""

    __slots__ = ("own",)

    def __new__(cls, text: str, own: Ranges) -> MixedText:
        self = str.__new__(cls, text)
        self.own = own
        return self

    def __getitem__(self, key: SupportsIndex | slice) -> PromptText:
        if not isinstance(key, slice):
            index = operator.index(key)  # TypeError for a name
            key = slice(index, index + 1 or None)
        begin, end, step = key.indices(len(self))
        return _text(str.__getitem__(self, key), _cut(self.own, begin, end) if step == 1 else ())

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))

    def __reduce__(self) -> Any:
        return MixedText, (str.__str__(self), self.own)


def _text(text: str, own: Ranges) -> PromptText:
    return MixedText(text, own) if own else PromptText(text)


def _cut(own: Ranges, begin: int, end: int) -> Ranges:
    cut = ((max(first, begin) - begin, min(last, end) - begin) for first, last in own)
    return tuple((first, last) for first, last in cut if first < last)


def plain(text: str) -> str:
    """The text as a ``str`` and nothing else."""
    return text if type(text) is str else str.__str__(text)


def joined(pieces: Iterable[str]) -> str:
    """``"".join(pieces)``, which knows what each piece knows."""
    pieces = list(pieces)
    text = "".join(pieces)
    for piece in pieces:
        if type(piece) is not str:
            break
    else:
        return text
    own: list[tuple[int, int]] = []
    at = 0
    for piece in pieces:
        if type(piece) is str:
            _add(own, at, at + len(piece))
        elif type(piece) is MixedText:
            for begin, end in piece.own:
                _add(own, at + begin, at + end)
        at += len(piece)
    return _text(text, tuple(own))


def _add(own: list[tuple[int, int]], begin: int, end: int) -> None:
    if own and own[-1][1] == begin:
        own[-1] = (own[-1][0], end)
    elif begin < end:
        own.append((begin, end))


def joined_by(separator: str, pieces: Iterable[str]) -> str:
    """``separator.join(pieces)``."""
    mixed: list[str] = []
    for piece in pieces:
        mixed += (separator, piece)
    return joined(mixed[1:])


def stripped(text: str, name: str, *args: Any) -> str:
    """``text.strip(...)``, ``lstrip``, ``rstrip``, ``removeprefix`` or ``removesuffix``."""
    shorter = getattr(plain(text), name)(*args)
    if name in ("rstrip", "removesuffix"):
        return text[: len(shorter)]
    if name == "strip":
        begin = len(text) - len(plain(text).lstrip(*args)) if shorter else 0
        return text[begin : begin + len(shorter)]
    return text[len(text) - len(shorter) :]


def replaced(text: str, old: str, new: str, count: int = -1) -> str:
    """``text.replace(old, new, count)``."""
    if not old:
        return PromptText(plain(text).replace(old, new, count))
    return joined_by(new, split(text, old, count))


def split(text: str, separator: str, count: int = -1) -> list[str]:
    """``text.split(separator, count)`` for a separator that is not empty."""
    pieces: list[str] = []
    at = 0
    for piece in plain(text).split(separator, count):
        pieces.append(text[at : at + len(piece)])
        at += len(piece) + len(separator)
    return pieces
