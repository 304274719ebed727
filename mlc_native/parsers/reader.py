"""Reader: the text of an answer, read by generators while it arrives.

A reading function is a generator that yields wherever it needs more text, so a format is written
down as if the whole text were there. Each character is looked at a bounded number of times: a
function takes what it has understood, and waits only while the text may still be the beginning of
what it looks for. What a function does depends on the text alone, never on how it was cut.

One Reader per sequence; not for several threads at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
Put = Callable[[str], object]

SPACE = re.compile(r"[ \t\r\n]*")


class NotACall(Exception):
    """The text that was taken is no call of a tool: it is ordinary text."""


class EndOfAnswer(NotACall):
    """The answer ended where more text was needed."""


class Markers:
    """Finds the first of several texts in an answer that is still arriving."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._whole = re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))
        self._beginning = re.compile("(?:" + "|".join(map(_beginnings, texts)) + r")\Z")
        self._longest = max(map(len, texts))

    def find(self, text: str, start: int) -> re.Match[str] | None:
        """The first marker at or behind ``start``."""
        return self._whole.search(text, start)

    def held_from(self, text: str, start: int) -> int:
        """Where the end of ``text`` may begin a marker; its length if it does not."""
        found = self._beginning.search(text, max(start, len(text) - self._longest + 1))
        return len(text) if found is None else found.start()


def _beginnings(text: str) -> str:
    """A pattern of all beginnings of a text except the empty one: ``a(?:b(?:c)?)?``."""
    letters = [re.escape(letter) for letter in text]
    return "(?:".join(letters) + ")?" * (len(letters) - 1)


@lru_cache(maxsize=256)
def markers(texts: tuple[str, ...]) -> Markers:
    """The Markers of these texts. Formats have few, so they are kept."""
    return Markers(texts)


class Reader:
    """The text that has arrived and has not been taken.

    Attributes:
        taken: what was taken since the last ``forget()``: the text to fall back to when it turns
            out not to be a call.
        is_certain: a grammar forces calls. It lets strings have control characters, which are then
            written as escapes instead of making a call malformed.
        ended: no more text follows.
    """

    def __init__(self, is_certain: bool = False) -> None:
        self.is_certain = is_certain
        self._text = ""
        self._at = 0
        self._dropped = 0  # characters in front of _text
        self.ended = False
        self.taken: list[str] = []

    @property
    def position(self) -> int:
        """The number of characters that were taken."""
        return self._dropped + self._at

    def add(self, text: str) -> None:
        """Adds the next piece of the answer."""
        self._dropped += self._at
        self._text = self._text[self._at :] + text
        self._at = 0

    def forget(self) -> None:
        """What was taken so far is settled."""
        self.taken.clear()

    def is_empty(self) -> bool:
        """Whether everything that has arrived was taken."""
        return self._at == len(self._text)

    def take_all(self) -> str:
        """Takes what has arrived."""
        return self._take_to(len(self._text))

    def _take_to(self, end: int) -> str:
        text = self._text[self._at : end]
        self._at = end
        self.taken.append(text)
        return text

    def more(self) -> Steps[None]:
        """Waits for a character. Raises EndOfAnswer if none follows."""
        while self._at == len(self._text):
            if self.ended:
                raise EndOfAnswer
            yield

    def peek(self) -> Steps[str]:
        """Waits for the next character and returns it without taking it."""
        if self._at == len(self._text):
            yield from self.more()
        return self._text[self._at]

    def take(self) -> Steps[str]:
        """Waits for the next character and takes it."""
        if self._at == len(self._text):
            yield from self.more()
        return self._take_to(self._at + 1)

    def run(self, pattern: re.Pattern[str], put: Put | None = None) -> Steps[None]:
        """Takes all characters of a class, whose pattern ends with ``*``. May take none."""
        while True:
            if self._at == len(self._text):
                if self.ended:
                    return
                yield
                continue
            match = pattern.match(self._text, self._at)
            assert match is not None
            if match.end() > self._at:
                text = self._take_to(match.end())
                if put is not None:
                    put(text)
            if self._at < len(self._text):
                return

    def space(self) -> Steps[None]:
        """Takes white space."""
        yield from self.run(SPACE)

    def literal(self, *texts: str) -> Steps[str | None]:
        """Takes the longest of ``texts`` that the answer goes on with; None if with none."""
        longest = max(map(len, texts))
        while True:
            rest = self._text[self._at : self._at + longest]
            if self.ended or not any(len(t) > len(rest) and t.startswith(rest) for t in texts):
                found = [text for text in texts if rest.startswith(text)]
                if not found:
                    return None
                return self._take_to(self._at + max(map(len, found)))
            yield

    def expect(self, *texts: str) -> Steps[str]:
        """Takes one of ``texts``. Raises NotACall if the answer goes on with something else."""
        found = yield from self.literal(*texts)
        if found is None:
            raise NotACall
        return found

    def before(self, texts: tuple[str, ...], put: Put) -> Steps[None]:
        """Takes what comes before the first of ``texts``, or everything up to the end.

        Text that cannot be a part of them is put as soon as it has arrived.
        """
        found = markers(texts)
        while True:
            match = found.find(self._text, self._at)
            if match is not None:
                end = match.start()
            elif self.ended:
                end = len(self._text)
            else:
                end = found.held_from(self._text, self._at)
            if end > self._at:
                put(self._take_to(end))
            if match is not None or self.ended:
                return
            yield

    def close(self, end: str) -> Steps[None]:
        """Takes the text that ends a call, if there is one, and white space in front of it.

        The end of the answer ends a call, too: many models stop in front of the closing text.
        """
        if not end:
            return
        yield from self.space()
        if (yield from self.literal(end)) is not None:
            return
        if not self.ended or not end.startswith(self._text[self._at :]):
            raise NotACall
        self.take_all()

    def expect_or_end(self, text: str, end: str) -> Steps[str]:
        """Takes ``text`` or ``end``, or returns ``end`` at the end of the answer."""
        found = yield from self.literal(text, end)
        if found is not None:
            return found
        yield from self.close(end)
        return end

    def space_between(self, text: str) -> Steps[None]:
        """Takes white space and ``text``."""
        yield from self.space()
        yield from self.expect(text)
