"""What the C++ engine has to report goes to the logger ``mlc_native.engine``."""

from __future__ import annotations

import logging

from mlc_native.errors import one_line

logger = logging.getLogger("mlc_native.engine")

# Of LogLevel in include/mlc_native/detail/log.h.
_LEVELS = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO}


def write_log(level: int, message: str) -> None:
    """Logs a message of the engine; called on its threads."""
    logger.log(_LEVELS[level], "%s", one_line(message))
