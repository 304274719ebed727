"""Whether there is a terminal to show something on."""

from __future__ import annotations

import sys


def stderr_is_terminal() -> bool:
    """Whether stderr is a terminal. A program may have none, or have closed or replaced it."""
    try:
        return bool(sys.stderr.isatty())
    except (AttributeError, ValueError):
        return False
