"""What the commands write about errors and warnings, and the exit status that an error gives."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from mlc_native.errors import InvalidConfig

FAILED = 1
WRONG_ARGUMENTS = 2  # as argparse has it


def error_text(error: BaseException) -> str:
    """An error in one line; one of the operating system begins with the file's name."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error)


def print_error(error: BaseException) -> None:
    """Writes one line to stderr."""
    print(f"error: {error_text(error)}", file=sys.stderr)


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Within it, a warning of Python is one line on stderr, without the line of code it is from."""

    def show(message: Warning | str, *_: object) -> None:
        print(f"warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def exit_status(error: BaseException) -> int:
    """2 if a setting of the command line is wrong, and 1 if what it asks for has failed."""
    return WRONG_ARGUMENTS if isinstance(error, InvalidConfig) else FAILED
