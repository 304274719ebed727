"""HttpError, and the answer to every error: OpenAI's body, and nothing about the inside."""

from __future__ import annotations

import json
import logging
from typing import Any

from mlc_native.errors import (
    EngineRequestError,
    EngineTerminatedError,
    MLCNativeError,
    ModelNotLoaded,
    QueueFull,
)

logger = logging.getLogger(__name__)

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "unavailable_error",
    504: "timeout_error",
}
RETRY_AFTER_S = 1


class HttpError(MLCNativeError):
    """An error with a status of its own.

    Args:
        headers: for the answer, besides those of every answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message, param, code)
        self.status = status  # type: ignore[misc]  # of this error alone
        self.headers = headers or {}

    def to_openai(self) -> dict[str, Any]:
        """See MLCNativeError."""
        kind = "server_error" if self.status == 500 else "invalid_request_error"
        return {
            "error": {
                "message": str(self),
                "type": TYPES.get(self.status, kind),
                "param": self.field,
                "code": self.code,
            }
        }


class ClientGone(Exception):
    """The client has closed the connection, or was cut off. There is nothing to answer."""


def public_error(error: BaseException, request_id: str) -> MLCNativeError:
    """What the caller is told. An error that is not the caller's is logged and loses its text."""
    if isinstance(error, MLCNativeError) and error.status < 500:
        return error
    if isinstance(error, (HttpError, ModelNotLoaded)):
        return error
    if isinstance(error, EngineTerminatedError):
        return HttpError(503, "the engine is not running", code="engine_not_running")
    if isinstance(error, EngineRequestError):
        logger.error("request %s: %s", request_id, error)
        return HttpError(500, "the engine ended the request with an error", code="engine_error")
    logger.error("request %s failed", request_id, exc_info=error)
    return HttpError(500, "internal error of the server", code="internal_error")


def error_headers(error: MLCNativeError) -> dict[str, str]:
    """Headers that go with an error."""
    if isinstance(error, HttpError):
        return error.headers
    if isinstance(error, (QueueFull, ModelNotLoaded)):
        return {"retry-after": str(RETRY_AFTER_S)}
    return {}


def error_body(error: MLCNativeError) -> bytes:
    """The JSON of an error; also of one whose text is no valid Unicode."""
    return json.dumps(error.to_openai()).encode()
