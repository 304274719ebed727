"""A program on a terminal of its own: what a person would type, and the screen that they would see.

The screen is that of pyte, an emulator of a VT100, which also answers the program's questions about
the cursor. Waiting is for a condition of the screen or for the program's end, never for time.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyte

WAIT_S = 60 * int(os.environ.get("MLC_NATIVE_PATIENCE", "1"))


class Screen(pyte.HistoryScreen):
    """A screen that keeps the lines that leave it at the top."""

    def __init__(self, columns: int, rows: int, reply: Callable[[bytes], None]) -> None:
        super().__init__(columns, rows, history=100_000, ratio=0.5)
        self._reply = reply

    def write_process_input(self, data: str) -> None:
        """The terminal's answer to a question of the program."""
        self._reply(data.encode())

    def report_device_status(self, mode: int, **_: Any) -> None:
        """Where the cursor is; a newer program asks with a private mark, too."""
        super().report_device_status(mode)

    def select_graphic_rendition(self, *attributes: int, **_: Any) -> None:
        """Colours; sequences with a private mark are about something else."""
        super().select_graphic_rendition(*attributes)

    def all_lines(self) -> list[str]:
        """All lines without trailing blanks, from the first one that was ever shown."""
        past = [
            "".join(line[x].data for x in range(self.columns)).rstrip() for line in self.history.top
        ]
        lines = [*past, *(line.rstrip() for line in self.display)]
        while lines and not lines[-1]:
            lines.pop()
        return lines


class Terminal:
    """A program on a pseudo-terminal. Use it as a context manager, which ends the program.

    Attributes:
        events: everything that the program wrote, as (seconds, text).
    """

    def __init__(
        self,
        command: list[str],
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        columns: int = 100,
        rows: int = 30,
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen = Screen(columns, rows, self._write)
        self._stream = pyte.ByteStream(self.screen)
        self._begin = time.monotonic()
        self.events: list[tuple[float, str]] = []
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm-256color", **(env or {})},
            cwd=cwd,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # Ctrl-C sends SIGINT
        )
        os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._master)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._master, data) :]

    def type(self, text: str) -> None:
        """Types keys: "\\r" is Enter, "\\x03" Ctrl-C, "\\x04" Ctrl-D, "\\t" Tab."""
        self._write(text.encode())

    def paste(self, text: str) -> None:
        """Pastes a text, as terminals mark it for programs that ask for that."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def text(self) -> str:
        """The whole screen with what has left it."""
        return "\n".join(self.screen.all_lines())

    def wait_for(self, condition: str | Callable[[str], bool]) -> str:
        """Waits until a text is on the screen, or a condition on its text holds."""
        holds = (lambda text: condition in text) if isinstance(condition, str) else condition
        deadline = time.monotonic() + WAIT_S
        while not holds(text := self.text()):
            assert self._read(deadline), f"the program has ended without {condition!r}:\n{text}"
        return text

    def wait_until_cooked(self) -> None:
        """Waits until the program does not read single keys, so that Ctrl-C is a signal."""
        deadline = time.monotonic() + WAIT_S
        while not termios.tcgetattr(self._master)[3] & termios.ISIG:
            assert time.monotonic() < deadline
            if select.select([self._master], [], [], 0.01)[0]:
                self._read(deadline)

    def wait(self) -> int:
        """Waits until the program has ended, and returns its exit status."""
        deadline = time.monotonic() + WAIT_S
        while self._read(deadline):
            pass
        return self.process.wait(WAIT_S)

    def _read(self, deadline: float) -> bool:
        """Shows what the program writes next. False when it has ended."""
        ready, _, _ = select.select([self._master], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"nothing more was written:\n{self.text()}"
        try:
            data = os.read(self._master, 65536)
        except OSError:  # all ends of the terminal that were open in the program are closed
            data = b""
        if data:
            self.events.append((time.monotonic() - self._begin, data.decode(errors="replace")))
            self._stream.feed(data)
        return bool(data)

    def recording(self, title: str) -> str:
        """The events as asciicast v2, which ``asciinema play`` shows."""
        header = {
            "version": 2,
            "width": self.screen.columns,
            "height": self.screen.lines,
            "title": title,
        }
        events = [[round(seconds, 3), "o", text] for seconds, text in self.events]
        return "\n".join(json.dumps(line, ensure_ascii=False) for line in [header, *events]) + "\n"
