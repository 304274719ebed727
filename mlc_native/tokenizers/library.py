"""Calls of the ``tokenizers`` package, whose failures and panics become errors of mlc_native."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mlc_native.errors import InvalidRequest, MLCNativeError, invalid_request

_MAX_REASON = 200  # characters


def _encoding_failed(reason: str) -> InvalidRequest:
    return invalid_request("prompt", f"the tokenizer of the model cannot encode a text: {reason}")


@contextmanager
def library_errors(make: Callable[[str], MLCNativeError] = _encoding_failed) -> Iterator[None]:
    """Raises ``make(reason)`` for what the package raises: bare Exceptions, and panics.

    A panic of Rust is a BaseException, which would otherwise end a thread that only expects errors.
    """
    try:
        yield
    except MLCNativeError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise make(str(error)[:_MAX_REASON]) from None
