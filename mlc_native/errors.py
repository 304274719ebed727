"""Every error that mlc_native raises on purpose.

``InvalidRequest`` and ``InvalidConfig`` are ``ValueError``; ``LoadError`` and ``InternalError`` are
``RuntimeError``. The first three carry ``field``, the name of the offending field. ``QueueFull`` is
an ``InvalidRequest`` that may succeed later; it carries ``queue_length`` and ``max_queue_length``.
"""

from __future__ import annotations

from typing import TypeVar

from mlc_native._core import InternalError, InvalidConfig, InvalidRequest, LoadError, QueueFull

__all__ = [
    "EngineRequestError",
    "EngineTerminatedError",
    "InternalError",
    "InvalidConfig",
    "InvalidRequest",
    "LoadError",
    "QueueFull",
    "invalid_config",
    "invalid_request",
    "load_error",
]


ErrorT = TypeVar("ErrorT", bound=Exception)


class EngineRequestError(RuntimeError):
    """An accepted request ended with finish reason "error".

    Other requests are not affected, and the engine continues.
    """

    def __init__(self, request_id: str, message: str) -> None:
        super().__init__(f"request {request_id}: {message}")
        self.request_id = request_id
        self.message = message


class EngineTerminatedError(RuntimeError):
    """The engine was terminated, or this process is a fork of the one that owns it."""


def _about(error: ErrorT, field: str) -> ErrorT:
    error.__dict__["field"] = field
    return error


def invalid_request(field: str, message: str) -> InvalidRequest:
    """Makes an InvalidRequest about the named field."""
    return _about(InvalidRequest(message), field)


def invalid_config(field: str, message: str) -> InvalidConfig:
    """Makes an InvalidConfig about the named field."""
    return _about(InvalidConfig(message), field)


def load_error(field: str, message: str) -> LoadError:
    """Makes a LoadError about the named file or model."""
    return _about(LoadError(message), field)
