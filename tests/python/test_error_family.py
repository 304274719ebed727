"""The errors at the top level of the package: one family, one line, a field, an OpenAI body."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import mlc_native
from mlc_native import (
    EngineRequestError,
    EngineTerminatedError,
    InternalError,
    InvalidConfig,
    InvalidRequest,
    LoadError,
    MLCNativeError,
    ModelNotLoaded,
    QueueFull,
    _core,
    errors,
)
from mlc_native.errors import ModelLibraryNotFound, invalid_config, invalid_request, load_error

ERRORS: list[tuple[MLCNativeError, int, type[Exception], str]] = [
    (invalid_request("n", "no"), 400, ValueError, "invalid_request_error"),
    (QueueFull("full", 3, 2), 429, InvalidRequest, "rate_limit_error"),
    (ModelNotLoaded(), 503, InvalidRequest, "unavailable_error"),
    (invalid_config("mode", "no"), 400, ValueError, "invalid_request_error"),
    (load_error("config.json", "no"), 500, RuntimeError, "server_error"),
    (ModelLibraryNotFound("no"), 500, FileNotFoundError, "server_error"),
    (InternalError("no"), 500, RuntimeError, "server_error"),
    (EngineRequestError("r", "broke"), 500, RuntimeError, "server_error"),
    (EngineTerminatedError("gone"), 503, RuntimeError, "unavailable_error"),
]


@pytest.mark.parametrize(("error", "status", "base", "kind"), ERRORS, ids=lambda v: str(v)[:20])
def test_the_family(error: MLCNativeError, status: int, base: Any, kind: str) -> None:
    assert isinstance(error, MLCNativeError)
    assert isinstance(error, base)
    assert error.status == status
    body = error.to_openai()["error"]
    assert body == {"message": str(error), "type": kind, "param": error.field, "code": error.code}


@pytest.mark.parametrize("error", [each[0] for each in ERRORS], ids=str)
def test_errors_survive_a_process_boundary(error: MLCNativeError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__


def test_every_class_is_at_the_top_level_and_in_the_table() -> None:
    for name in ("ModelLibraryNotFound", "MLCNativeError"):
        assert hasattr(errors, name)
    for cls in (InvalidRequest, InvalidConfig, LoadError, QueueFull, InternalError):
        assert getattr(mlc_native, cls.__name__) is cls
        assert getattr(_core, cls.__name__) is cls  # what C++ raises
    assert errors.__doc__ is not None
    for cls in MLCNativeError.__subclasses__():
        if cls.__module__.startswith("mlc_native.server"):  # documented there
            continue
        assert f"\n{cls.__name__} " in errors.__doc__


def test_a_message_is_one_line() -> None:
    assert str(invalid_request("x", "a\n  b\r\nc\n")) == "a b c"
    assert str(load_error("x", "\x1b[2J\x07 a\tb \u202e")) == "^[[2J^G a\tb <202E>"


def test_what_cpp_raises_is_complete() -> None:
    with pytest.raises(InvalidRequest) as error:
        _core.ResponseFormat("xml")
    assert error.value.field == "response_format"
    assert error.value.code is None
    with pytest.raises(InvalidConfig) as config_error:
        _core.check_engine_config('{"num_threads": 0}')
    assert config_error.value.field == "num_threads"


class Hostile:
    def __repr__(self) -> str:
        raise KeyError("no text")


@pytest.mark.parametrize(
    "value", [Hostile(), 10**5000, "x" * 100_000, [[]] * 1000, None], ids=range(5)
)
def test_any_value_can_be_shown(value: object) -> None:
    text = errors.shown(value)
    assert 0 < len(text) < 200
    assert "\n" not in text


def test_ctrl_c_while_an_error_of_cpp_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for a failure of the engine, which no caller expects."""

    def interrupt(_text: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(errors, "one_line", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _core.EventTraceRecorder(0)
