"""The error body of MLC-LLM's server; OpenAI's is ``MLCNativeError.to_openai``."""

from __future__ import annotations

from pydantic import BaseModel

from mlc_native.errors import InvalidRequest

# MLC-LLM's name for an error of the caller; here it is the engine's own type.
BadRequestError = InvalidRequest


class ErrorResponse(BaseModel):
    """The answer of a server instead of a completion. ``code`` is the HTTP status."""

    object: str = "error"
    message: str
    code: int | None = None


def create_error_response(status_code: int, message: str) -> ErrorResponse:
    """The error body for an HTTP status."""
    return ErrorResponse(message=message, code=status_code)
