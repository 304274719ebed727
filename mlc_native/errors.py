"""Every error that mlc_native raises on purpose: one family under ``MLCNativeError``.

=======================  ============  ======  =====================================================
error                    is also       status  meaning
=======================  ============  ======  =====================================================
InvalidRequest           ValueError    400     one request, or an argument of a call, is wrong
QueueFull                ValueError    429     an InvalidRequest that may succeed later
ModelNotLoaded           ValueError    503     an InvalidRequest that came while no model was there
InvalidConfig            ValueError    400     an engine setting is wrong
LoadError                RuntimeError  500     files of a model are missing, damaged or unsupported
EngineRequestError       RuntimeError  500     an accepted request ended with an error
AnswerParseError         ValueError    500     the answer of ``parse`` is no value of its type
LengthFinishReasonError  ValueError    500     an AnswerParseError: the answer was cut
EngineTerminatedError    RuntimeError  503     the engine is gone
InternalError            RuntimeError  500     a failed internal check: a bug of mlc_native
=======================  ============  ======  =====================================================

Each message is one line. ``field`` names what is wrong, ``status`` is the HTTP status of a server's
answer, and ``to_openai()`` its body. The classes are Python's; the C++ engine raises the same ones.
"""

from __future__ import annotations

import re
import reprlib
from typing import Any, ClassVar

__all__ = [
    "AnswerParseError",
    "EngineRequestError",
    "EngineTerminatedError",
    "InternalError",
    "InvalidConfig",
    "InvalidRequest",
    "LengthFinishReasonError",
    "LoadError",
    "MLCNativeError",
    "ModelLibraryNotFound",
    "ModelNotLoaded",
    "QueueFull",
    "UnknownFieldWarning",
    "invalid_config",
    "invalid_request",
    "load_error",
    "shown",
]


MAX_MESSAGE = 4000  # characters; a message may quote what a caller gave
# Control characters except tab and newline, and the marks that reorder text.
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def show_controls(text: str) -> str:
    """The text with its control characters made visible: ESC as ``^[``, U+009B as ``<9B>``."""
    return _HIDDEN.sub(_caret, text)


def _caret(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"^{chr(code ^ 0x40)}" if code < 0x80 else f"<{code:02X}>"


def one_line(text: str) -> str:
    """The text as one line for a log or a terminal, to which it says nothing by itself."""
    return show_controls(" ".join(line.strip() for line in text.splitlines()))


class MLCNativeError(Exception):
    """The base of the family.

    Attributes:
        field: the argument, setting, file or tensor that is wrong; None if there is none to name.
        status: the HTTP status of an answer that reports the error.
        code: OpenAI's code of the error, or None.
    """

    status: ClassVar[int] = 500
    _openai_type: ClassVar[str] = "server_error"

    def __init__(self, message: str, field: str | None = None, code: str | None = None) -> None:
        text = one_line(str(message))
        super().__init__(text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + " ...")
        self.field = field
        self.code = code

    def to_openai(self) -> dict[str, Any]:
        """Returns the body of an answer that reports the error, in the form of OpenAI's."""
        return {
            "error": {
                "message": str(self),
                "type": self._openai_type,
                "param": self.field,
                "code": self.code,
            }
        }

    def __reduce__(self) -> Any:  # the constructors of subclasses have arguments of their own
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(
    kind: type[MLCNativeError], args: tuple[Any, ...], attributes: dict[str, Any]
) -> MLCNativeError:
    error = kind.__base__.__new__(kind, *args)  # the base whose layout it has
    error.args = args
    error.__dict__.update(attributes)
    return error


class InvalidRequest(MLCNativeError, ValueError):
    """One request, or an argument of a call, is wrong. Others are not affected."""

    status = 400
    _openai_type = "invalid_request_error"


class QueueFull(InvalidRequest):
    """Too many requests wait already; the same request may be accepted later.

    ``field`` is the setting that limits them.

    Attributes:
        queue_length: the number of requests that wait.
        max_queue_length: the number of requests that may wait.
    """

    status = 429
    _openai_type = "rate_limit_error"

    def __init__(
        self,
        message: str,
        queue_length: int = 0,
        max_queue_length: int = 0,
        field: str = "max_queue_length",
    ) -> None:
        super().__init__(message, field, "queue_full")
        self.queue_length = queue_length
        self.max_queue_length = max_queue_length


class ModelNotLoaded(InvalidRequest):
    """No model is there, or another one than the request was prepared for.

    The same request may be accepted later.
    """

    status = 503
    _openai_type = "unavailable_error"

    def __init__(self, message: str = "No model is loaded") -> None:
        super().__init__(message, "engine", "model_not_loaded")


class InvalidConfig(MLCNativeError, ValueError):
    """An engine setting is wrong."""

    status = 400
    _openai_type = "invalid_request_error"


class LoadError(MLCNativeError, RuntimeError):
    """A model's files are missing, damaged or of an unsupported kind."""


class ModelLibraryNotFound(LoadError, FileNotFoundError):
    """The file that ``model_lib`` names does not exist."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "model_lib")


class InternalError(MLCNativeError, RuntimeError):
    """A failed internal check: a bug of mlc_native."""


class EngineRequestError(MLCNativeError, RuntimeError):
    """An accepted request ended with finish reason "error".

    Other requests are not affected, and the engine continues.

    Attributes:
        request_id: of the request.
        message: what the engine says.
        finish_reason: "error"; "timeout" or "abort" where there is no answer to carry it, as of
            embeddings.
    """

    def __init__(self, request_id: str, message: str, finish_reason: str = "error") -> None:
        super().__init__(f"request {request_id}: {message}")
        self.request_id = request_id
        self.message = message
        self.finish_reason = finish_reason


class AnswerParseError(MLCNativeError, ValueError):
    """The answer of ``parse`` is no value of its type.

    Attributes:
        completion: the whole response.
        index: the index of the choice that is wrong.
    """

    def __init__(self, message: str, completion: Any, index: int) -> None:
        super().__init__(message, "response_format", "invalid_answer")
        self.completion = completion
        self.index = index


class LengthFinishReasonError(AnswerParseError):
    """The answer of ``parse`` was cut before it was complete."""


class EngineTerminatedError(MLCNativeError, RuntimeError):
    """The engine was terminated, or this process is a fork of the one that owns it."""

    status = 503
    _openai_type = "unavailable_error"


class UnknownFieldWarning(UserWarning):
    """A field of a request body (``create_from``) is not known and was ignored."""


def invalid_request(field: str, message: str, code: str | None = None) -> InvalidRequest:
    """Makes an InvalidRequest about the named field."""
    return InvalidRequest(message, field, code)


def invalid_config(field: str, message: str) -> InvalidConfig:
    """Makes an InvalidConfig about the named field."""
    return InvalidConfig(message, field)


def load_error(field: str, message: str) -> LoadError:
    """Makes a LoadError about the named file or model."""
    return LoadError(message, field)


def shown(value: object) -> str:
    """Returns a short text of any value for a message, also of one that cannot be printed."""
    try:
        return reprlib.repr(value)
    except Exception:  # a huge integer; a __repr__ that raises
        return f"a value of type {type(value).__name__}"
