"""Shows the answers and notices of a chat. In a pipe they are plain; see terminal_display.py.

Nothing that a model or a file says reaches a terminal as a control sequence.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO


class Answer(Protocol):
    """Receives an answer piece by piece."""

    def add(self, text: str) -> None:
        """The next piece."""

    def close(self) -> None:
        """The end of the answer."""


class Display(Protocol):
    """Where a chat shows what it has to say.

    Attributes:
        markdown: whether answers are shown as Markdown.
    """

    markdown: bool

    def answer(self) -> Answer:
        """A new answer."""

    def reasoning(self) -> Answer:
        """The text that leads to an answer."""

    def notice(self, text: str) -> None:
        """What is no answer."""

    def error(self, text: str) -> None:
        """What went wrong."""


class PipeDisplay:
    """Answers on ``out`` as the model writes them, everything else on ``err``."""

    markdown = False

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self.failed = False  # an error was shown

    def answer(self) -> Answer:
        """Ends with a newline."""
        return _PlainAnswer(self._out)

    def reasoning(self) -> Answer:
        """On ``err``."""
        return _PlainAnswer(self._err)

    def notice(self, text: str) -> None:
        """On ``err``."""
        print(text, file=self._err, flush=True)

    def error(self, text: str) -> None:
        """On ``err``."""
        self.failed = True
        print(f"error: {text}", file=self._err, flush=True)


class _PlainAnswer:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last = ""

    def add(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        self._last = text

    def close(self) -> None:
        if self._last[-1:] != "\n":
            self._out.write("\n")
        self._out.flush()


@contextmanager
def showing(answer: Answer) -> Iterator[Answer]:
    """Closes an answer at the end, also after Ctrl-C."""
    try:
        yield answer
    finally:
        answer.close()
