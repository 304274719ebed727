"""Shows the answers and notices of a chat on a terminal, answers as Markdown.

Imported for terminals only: rich takes longer to import than a short answer to compute.
"""

from __future__ import annotations

import time

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment

from mlc_native.cli.display import Answer
from mlc_native.errors import show_controls

REFRESH_S = 0.05


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
