"""Opens the files of a model folder, which may be anything.

They are regular files: a FIFO, a socket, a device or a folder of that name is an error, so neither
opening nor reading ever waits for another process.

A GGUF file is like a folder: ``x.gguf/config.json`` is a text that is made of its metadata. So is
``tokenizer.json`` of a folder that has a tokenizer in another form.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from mlc_native import _core
from mlc_native.errors import LoadError, load_error

# Of a JSON file. The largest that are known have 34 MB (tokenizer.json).
MAX_JSON_BYTES = 64 << 20
MAX_TEMPLATE_BYTES = 1 << 20

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}


@contextmanager
def open_regular(path: Path) -> Iterator[FileIO]:
    """The file, open for reading. Raises LoadError; so does a failing read of the caller."""
    try:
        _require_regular(path, os.stat(path))  # a device may act on being opened
        with FileIO(path, opener=_open) as file:
            _require_regular(path, os.fstat(file.fileno()))
            yield file
    except OSError as error:
        raise damaged(path, error) from error


def has_file(path: Path) -> bool:
    """Whether ``read_bytes`` finds this file of a model."""
    return path.exists() or _core.has_model_file(str(path))


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """The content of a file. Raises LoadError, also for a file of more than ``max_bytes``."""
    text = _core.made_text(str(path))
    if text is not None:
        return text.encode("utf-8")
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise damaged(path, f"it has {size} bytes, allowed are {max_bytes}")
        content = file.read(max_bytes + 1)
        while content and (more := file.read(max_bytes + 1 - len(content))):
            content += more
    if len(content) > max_bytes:  # it grows
        raise damaged(path, f"it has more than the allowed {max_bytes} bytes")
    return content


def damaged(path: Path, what: object) -> LoadError:
    """The LoadError about a file."""
    return load_error(str(path), f"{path} is damaged: {what}")


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _require_regular(path: Path, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        kind = _KINDS.get(stat.S_IFMT(info.st_mode), "a device")
        raise damaged(path, f"it is {kind}, must be a regular file")
