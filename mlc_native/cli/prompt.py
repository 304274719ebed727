"""Where a chat reads its turns: a pipe, a terminal, or a terminal with line editing.

A turn that begins with three quotes lasts until the next three, over any number of lines. Editing,
history and completion need prompt_toolkit (extra "chat"). Each reader raises EOFError at the end of
the input and KeyboardInterrupt when Ctrl-C is pressed on an empty line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Protocol, TextIO

from mlc_native.cli.commands import FILE_COMMANDS, QUOTES, completions

PROMPT = "> "
CONTINUATION = ". "
INSTALL = "for editing, history and completion: pip install 'mlc_native[chat]'"


class Reader(Protocol):
    """Reads turns."""

    def read(self) -> str:
        """The next turn as it was typed."""


def is_open(text: str) -> bool:
    """Whether a turn that begins with quotes lacks its end."""
    text = text.lstrip()
    return text.startswith(QUOTES) and QUOTES not in text[len(QUOTES) :]


def unquote(text: str) -> tuple[str, bool]:
    """The text of a turn, and whether it was quoted (and so is no command)."""
    text = text.strip()
    if not text.startswith(QUOTES):
        return text, False
    return text[len(QUOTES) :].partition(QUOTES)[0].strip("\n"), True


def _read_block(read_line: Callable[[str], str]) -> str:
    """Reads lines until the turn is complete. ``read_line(prompt)`` raises EOFError at the end."""
    text = read_line(PROMPT)
    while is_open(text):
        try:
            text += "\n" + read_line(CONTINUATION)
        except EOFError:
            break
    return text


class PipeReader:
    """One line is one turn. One that is no text is refused as a turn, and the others are read."""

    def __init__(self, lines: TextIO) -> None:
        self._lines = lines
        if isinstance(lines, TextIOWrapper):
            lines.reconfigure(errors="surrogateescape")

    def read(self) -> str:
        """The next turn."""
        return _read_block(self._line)

    def _line(self, _prompt: str) -> str:
        line = self._lines.readline()
        if not line:
            raise EOFError
        return line.removesuffix("\n")


class PlainReader:
    """A terminal, with the editing of readline where Python has it."""

    def __init__(self) -> None:
        with suppress(ImportError):
            import readline  # noqa: F401

    def read(self) -> str:
        """The next turn."""
        try:
            return _read_block(input)
        except KeyboardInterrupt:
            print()
            raise


def history_file() -> Path:
    """Where typed turns are kept: chat_history in mlc_native's folder of $XDG_STATE_HOME."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "mlc_native" / "chat_history"


def make_reader(notice: Callable[[str], None], history: Path | None) -> Reader:
    """The reader for a terminal: the one with line editing, if prompt_toolkit is installed.

    Args:
        notice: shows what the user should know.
        history: the file of typed turns; None: they are forgotten at the end.
    """
    if os.environ.get("TERM", "dumb") == "dumb":
        return PlainReader()
    try:
        import prompt_toolkit  # noqa: F401
    except ImportError:
        notice(INSTALL)
        return PlainReader()
    return EditingReader(_make_history(notice, history))


def _make_history(notice: Callable[[str], None], path: Path | None) -> Any:
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        with path.open("ab"):  # may it be written?
            pass
    except OSError as error:
        notice(f"the history is not kept: {error}")
        return InMemoryHistory()
    return FileHistory(str(path))


class _CtrlCKey(Exception):
    """Ctrl-C was pressed while a line was edited."""


class EditingReader:
    """A terminal with editing, history, completion, and pasted text as one turn."""

    def __init__(self, history: Any) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.filters import Condition

        self._session: Any = PromptSession(
            history=history,
            interrupt_exception=_CtrlCKey,
            completer=_completer(),
            complete_while_typing=True,
            key_bindings=_key_bindings(),
            multiline=Condition(self._is_open),
            prompt_continuation=lambda width, number, wrapped: "" if wrapped else CONTINUATION,
        )

    def _is_open(self) -> bool:
        return is_open(self._session.default_buffer.text)

    def read(self) -> str:
        """The next turn."""
        while True:
            try:
                # While a line is edited, Ctrl-C is a key. Afterwards it is a signal, which the
                # handler of prompt_toolkit would drop until its event loop has ended.
                text: str = self._session.prompt(PROMPT, handle_sigint=False)
                return text
            except _CtrlCKey:
                if not self._session.default_buffer.text:
                    raise KeyboardInterrupt from None


def _key_bindings() -> Any:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.key_binding import KeyBindings

    bindings = KeyBindings()

    @bindings.add("escape", "enter")  # as in MLC-LLM
    def _(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("tab")  # what is certain is inserted at once
    def _(event: Any) -> None:
        buffer = event.current_buffer
        asked = CompleteEvent(completion_requested=True)
        found = list(buffer.completer.get_completions(buffer.document, asked))
        if len(found) == 1:
            buffer.delete_before_cursor(-found[0].start_position)
            buffer.insert_text(found[0].text)
        elif buffer.complete_state is not None:
            buffer.complete_next()
        else:
            buffer.start_completion(insert_common_part=True)

    return bindings


def _completer() -> Any:
    from prompt_toolkit.completion import Completer, Completion, PathCompleter
    from prompt_toolkit.document import Document

    class ChatCompleter(Completer):
        """Completes commands, their settings and their files."""

        _files = PathCompleter(expanduser=True)

        def get_completions(self, document: Any, complete_event: Any) -> Iterable[Any]:
            text = document.text_before_cursor
            name, space, argument = text.partition(" ")
            if space and name in FILE_COMMANDS:
                yield from self._files.get_completions(Document(argument), complete_event)
            for insert, replaced, explanation in completions(text):
                yield Completion(insert, -replaced, display_meta=explanation)

    return ChatCompleter()


def is_terminal() -> bool:
    """Whether a person types the input and sees the output."""
    return sys.stdin.isatty() and sys.stdout.isatty()
