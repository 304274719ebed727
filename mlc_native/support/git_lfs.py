"""Recognizes the small text that stands for a large file in a clone made without git-lfs."""

from __future__ import annotations

from pathlib import Path

from mlc_native.errors import LoadError, load_error
from mlc_native.support.regular_file import open_regular

_POINTER = b"version https://git-lfs.github.com/spec/"


def refuse_lfs_pointer(path: Path) -> None:
    """Raises LoadError if the file is a git-lfs pointer. A file that cannot be read is not one."""
    try:
        with open_regular(path) as file:
            is_pointer = file.read(len(_POINTER)) == _POINTER
    except LoadError:
        return
    if is_pointer:
        raise load_error(
            str(path),
            f'{path} is a git-lfs pointer instead of the file itself; run "git lfs pull" in the '
            "folder",
        )
