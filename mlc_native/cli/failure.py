"""print_error: what the commands write about the error that ends them."""

from __future__ import annotations

import sys


def print_error(error: BaseException) -> None:
    """Writes one line to stderr. An error of the operating system begins with the file's name."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    print(f"error: {text}", file=sys.stderr)
