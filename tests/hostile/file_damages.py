"""Damages of the files of a folder, for the classes of hostile inputs that are folders."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

Damage = Callable[[Path], None]
Edit = Callable[[bytes], bytes]


# ------------------------------------------------------------------------ damages of any file


def file_kinds() -> dict[str, Damage]:
    """What may be there instead of a file; there is none yet."""

    def fifo(path: Path) -> None:
        os.mkfifo(path)

    def listener(path: Path) -> None:
        there = os.getcwd()
        os.chdir(path.parent)  # the path of a socket is short
        try:
            with socket.socket(socket.AF_UNIX) as unix:
                unix.bind(path.name)
        finally:
            os.chdir(there)

    def link(target: str) -> Damage:
        return lambda path: path.symlink_to(target)

    def text(content: bytes) -> Damage:
        return lambda path: write(path, content)

    def sparse(size: int) -> Damage:
        return lambda path: grow(path, size)

    return {
        "missing": lambda path: None,
        "FIFO": fifo,
        "folder": lambda path: path.mkdir(),
        "socket": listener,
        "link to a device without end": link("/dev/zero"),
        "link to a terminal": link("/dev/tty"),
        "link to a file without size": link("/proc/self/mem"),
        "link to nothing": link("nothing"),
        "link to itself": lambda path: path.symlink_to(path.name),
        "link to a file of the system": link("/etc/passwd"),
        "empty": text(b""),
        "one zero": text(b"\0"),
        "zeros": text(bytes(1 << 20)),
        "no text": text(b"\xff\xfe\xfd" * 1000),
        "a pointer of git-lfs": text(b"version https://git-lfs.github.com/spec/v1\nsize 9\n"),
        "too large": sparse((64 << 20) + 1),
        "a terabyte": sparse(1 << 40),
    }


def write(path: Path, content: bytes | str) -> None:
    """Writes a file."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def grow(path: Path, size: int) -> None:
    """Makes a file larger, without taking the space."""
    with path.open("ab") as file:
        file.truncate(size)


def edits() -> dict[str, Edit]:
    """Damages that change a content."""
    return {
        "half": lambda content: content[: len(content) // 2],
        "without the last byte": lambda content: content[:-1],
        "twice": lambda content: content * 2,
        "behind a mark": lambda content: b"\xef\xbb\xbf" + content,
        "as UTF-16": lambda content: content.decode("latin-1").encode("utf-16"),
        "a flipped bit": lambda content: (
            content[:99] + bytes([content[99] ^ 2]) + content[100:]
            if len(content) > 99
            else b"~" + content
        ),
        "reversed": lambda content: content[::-1],
    }


# ----------------------------------------------------------------------- damages of JSON files


def json_texts() -> dict[str, str]:
    """What may be written instead of an object of JSON."""
    many = "0," * 1_000_000 + "0"
    return {
        "lists in lists": '{"model_type": ' + "[" * 10**6 + "]" * 10**6 + "}",
        "objects in objects": '{"a":' * 10**6 + "0" + "}" * 10**6,
        "129 levels": '{"model_type":' + "[" * 128 + "]" * 128 + "}",
        "open lists": "[" * 10**6,
        "a million numbers": '{"a": [' + many + "]}",
        "too many values": '{"a": [' + ",".join([many] * 5) + "]}",
        "a number of a million digits": '{"vocab_size": ' + "9" * 10**6 + "}",
        "an infinite number": '{"vocab_size": 1e999, "rope_theta": 1e999}',
        "not a number": '{"vocab_size": NaN, "rope_theta": Infinity}',
        "a name of a megabyte": '{"' + "n" * 10**6 + '": 1}',
        "a lone surrogate": '{"chat_template": "\\ud800", "model_type": "\\udfff"}',
        "a zero in a text": '{"chat_template": "\\u0000", "model_type": "a\\u0000b"}',
        "a list": "[]",
        "null": "null",
        "a text": '"text"',
        "an empty object": "{}",
    }


JSON_VALUES: dict[str, Any] = {
    "null": None,
    "-1": -1,
    "2^62": 1 << 62,
    "1e300": 1e300,
    "a text": "x",
    "a text of a megabyte": "x" * 10**6,
    "a list": [],
    "an object": {},
    "true": True,
}
