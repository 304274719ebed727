"""Shows the answers and notices of a chat: plain in a pipe, Markdown on a terminal.

Nothing that a model or a file says reaches a terminal as a control sequence.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment

REFRESH_S = 0.05

# Control characters except tab and newline, and the marks that reorder text.
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def show_controls(text: str) -> str:
    """The text with its control characters made visible: ESC as ``^[``, U+009B as ``<9B>``."""
    return _HIDDEN.sub(_caret, text)


def _caret(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"^{chr(code ^ 0x40)}" if code < 0x80 else f"<{code:02X}>"


class Answer(Protocol):
    """Receives an answer piece by piece."""

    def add(self, text: str) -> None:
        """The next piece."""

    def close(self) -> None:
        """The end of the answer."""


class Display(Protocol):
    """Where a chat shows what it has to say."""

    def answer(self) -> Answer:
        """A new answer."""

    def reasoning(self) -> Answer:
        """The text that leads to an answer."""

    def notice(self, text: str) -> None:
        """What is no answer."""

    def error(self, text: str) -> None:
        """What went wrong."""


# --------------------------------------------------------------------------------------- in a pipe


class PipeDisplay:
    """Answers on ``out`` as the model writes them, everything else on ``err``."""

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


# ----------------------------------------------------------------------------------- on a terminal


class TerminalDisplay:
    """Everything on the terminal; answers as Markdown unless ``markdown`` is False."""

    def __init__(self, console: Console, markdown: bool = True) -> None:
        self._console = console
        self.markdown = markdown

    def answer(self) -> Answer:
        """Shown while it grows."""
        if self.markdown:
            return _MarkdownAnswer(self._console)
        return _VisibleAnswer(self._console, "")

    def reasoning(self) -> Answer:
        """Dim, and as it is."""
        return _VisibleAnswer(self._console, "dim")

    def notice(self, text: str) -> None:
        """Dim, and as it is."""
        self._print(text, "dim")

    def error(self, text: str) -> None:
        """Red, and as it is."""
        self._print(f"error: {text}", "red")

    def _print(self, text: str, style: str) -> None:
        self._console.print(
            show_controls(text), style=style, markup=False, highlight=False, soft_wrap=True
        )


class _VisibleAnswer:
    """Text as it is, with visible control characters."""

    def __init__(self, console: Console, style: str) -> None:
        self._console = console
        self._style = style
        self._last = "\n"

    def add(self, text: str) -> None:
        self._console.print(
            show_controls(text),
            end="",
            style=self._style,
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        self._console.file.flush()
        self._last = text

    def close(self) -> None:
        if self._last[-1:] != "\n":
            self._console.print()


class _Block:
    """A part of an answer as Markdown, in which line breaks are kept and HTML is text.

    Args:
        is_growing: only the last lines are shown, as many as fit on the screen.
    """

    _PARSER = MarkdownIt().enable(["strikethrough", "table"]).disable(["html_block", "html_inline"])

    def __init__(self, text: str, is_growing: bool = False) -> None:
        self._is_growing = is_growing
        # "ansi_dark" uses the terminal's own colours.
        self._markdown = Markdown(text, code_theme="ansi_dark", hyperlinks=False)
        self._markdown.parsed = self._PARSER.parse(text)
        for token in self._markdown.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._markdown, options.update(height=None), pad=False)
        if self._is_growing:
            lines = lines[-max(1, console.height - 2) :]
        for line in lines:
            yield from _without_padding(line)
            yield Segment.line()

    @classmethod
    def last(cls, text: str) -> int:
        """Where the last block of a text begins, the only one that more text may change."""
        lines = [t.map[0] for t in cls._PARSER.parse(text) if t.level == 0 and t.map]
        if not lines:
            return 0
        return sum(map(len, text.splitlines(keepends=True)[: lines[-1]]))


def _without_padding(line: list[Segment]) -> list[Segment]:
    """A line without the blanks that fill it up to the width of the screen."""
    line = list(line)
    while line:
        text, style, _ = line.pop()
        kept = text.rstrip(" ") if style is None or style.bgcolor is None else text
        if kept:
            return [*line, Segment(kept, style)]
    return line


class _MarkdownAnswer:
    """Prints each block of an answer when it is complete, and shows the unfinished one below."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rest = ""  # what is not printed yet
        self._shown_at = 0.0
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def add(self, text: str) -> None:
        self._rest += show_controls(text)
        now = time.monotonic()
        if now - self._shown_at < REFRESH_S:
            return
        self._shown_at = now
        end = _Block.last(self._rest)
        if end > 0:
            self._console.print(_Block(self._rest[:end]))
            self._rest = self._rest[end:]
        self._live.update(_Block(self._rest, is_growing=True), refresh=True)

    def close(self) -> None:
        self._live.stop()
        if self._rest.strip():
            self._console.print(_Block(self._rest))


@contextmanager
def showing(answer: Answer) -> Iterator[Answer]:
    """Closes an answer at the end, also after Ctrl-C."""
    try:
        yield answer
    finally:
        answer.close()
