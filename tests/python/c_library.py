"""The C API through ctypes, as a host in another language sees it."""

from __future__ import annotations

import ctypes
import json
import subprocess
from collections.abc import Callable
from ctypes import POINTER, Structure, byref, c_char_p, c_int32, c_int64, c_size_t, c_void_p
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlc_native

LIBRARY = Path(mlc_native.__file__).parent / "lib/libmlc_native_c.so"
INCLUDE = Path(__file__).resolve().parents[2] / "include"


def compiled_host(source: str, folder: Path, *options: str) -> Path:
    """A program in C++ without exceptions that links the library."""
    (folder / "host.cc").write_text(source, encoding="utf-8")
    command = ["g++", "-std=c++20", "-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Werror"]
    command += [*options, str(folder / "host.cc"), f"-I{INCLUDE}", str(LIBRARY)]
    subprocess.run([*command, f"-Wl,-rpath,{LIBRARY.parent}", "-o", folder / "host"], check=True)
    return folder / "host"


class Output(Structure):
    """mlcn_output."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("index", c_int32),
        ("is_final", c_int32),
        ("finish_reason", c_int32),
        ("request", c_void_p),
        ("user_data", c_void_p),
        ("text", POINTER(ctypes.c_char)),
        ("text_length", c_size_t),
        ("tokens", POINTER(c_int32)),
        ("num_tokens", c_size_t),
        ("logprobs", c_void_p),
        ("prompt_logprobs", c_void_p),
        ("usage", c_void_p),
        ("error_message", c_char_p),
        ("embedding", POINTER(ctypes.c_float)),
        ("embedding_size", c_size_t),
    ]


class SubmitOptions(Structure):
    """mlcn_submit_options."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("on_output", c_void_p),
        ("user_data", c_void_p),
        ("request_id", c_char_p),
        ("tokens", POINTER(c_int32)),
        ("num_tokens", c_size_t),
    ]


LogFunction = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)


class EngineOptions(Structure):
    """mlcn_engine_options."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("device", c_char_p),
        ("on_progress", c_void_p),
        ("user_data", c_void_p),
        ("on_log", LogFunction),
        ("log_user_data", c_void_p),
        ("log_level", c_int32),
        ("reserved", c_int32),
    ]


ERROR, WARNING, INFO = 1, 2, 3  # MLCN_LOG_...

FINISH_REASONS = (None, "stop", "length", "abort", "error", "timeout")


class CError(Exception):
    """What a function reports: its code, the field and the message."""

    def __init__(self, code: int, field: str, message: str) -> None:
        super().__init__(message)
        self.code, self.field = code, field


@dataclass
class Answer:
    """One answer of a request."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    embedding: list[float] | None = None


class CEngine:
    """An mlcn_engine. Outputs are polled.

    Args:
        model: a model folder.
        log: called with the level and the text of messages.
        log_level: MLCN_LOG_... of the least severe messages that are wanted.
        library: the file of the library.
        config_text: the settings as they are given to the library, instead of ``config``.
        config: engine settings.
    """

    def __init__(
        self,
        model: str | Path,
        log: Callable[[int, str], None] | None = None,
        log_level: int = WARNING,
        library: Path = LIBRARY,
        config_text: str | None = None,
        **config: Any,
    ) -> None:
        given = json.dumps(config) if config_text is None else config_text
        self._options = EngineOptions(size=ctypes.sizeof(EngineOptions), log_level=log_level)
        if log is not None:
            self._options.on_log = LogFunction(lambda _, level, text: log(level, text.decode()))
        self._lib = ctypes.CDLL(str(library))
        for name in ("mlcn_error_field", "mlcn_error_message"):
            getattr(self._lib, name).restype = c_char_p
        self._lib.mlcn_outputs_at.restype = POINTER(Output)
        self._lib.mlcn_outputs_count.restype = c_size_t
        self._engine = c_void_p()
        self._call(
            "mlcn_engine_create",
            *(str(model).encode(), given.encode()),
            *(byref(self._options), byref(self._engine)),
        )

    def __enter__(self) -> CEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def handle(self) -> int:
        """What dlopen has returned."""
        return self._lib._handle

    def close(self) -> None:
        """mlcn_engine_destroy."""
        engine, self._engine = self._engine, c_void_p()
        self._call("mlcn_engine_destroy", engine)

    def _call(self, name: str, *arguments: Any) -> None:
        error = c_void_p()
        code = getattr(self._lib, name)(*arguments, byref(error))
        if code == 0:
            return
        which = self._lib.mlcn_error_field(error).decode()
        message = self._lib.mlcn_error_message(error).decode()
        self._lib.mlcn_error_release(error)
        raise CError(code, which, message)

    def load_adapter(self, name: str, folder: str | Path) -> None:
        """mlcn_load_adapter."""
        self._call("mlcn_load_adapter", self._engine, name.encode(), str(folder).encode())

    def unload_adapter(self, name: str) -> None:
        """mlcn_unload_adapter."""
        self._call("mlcn_unload_adapter", self._engine, name.encode())

    def answers(self, body: dict[str, Any], tokens: list[int] | None = None) -> list[Answer]:
        """All answers of a request, which is submitted and waited for."""
        return self.answers_of_text(json.dumps(body, ensure_ascii=False), tokens, body.get("n", 1))

    def embedding(self, text: str | list[int], **fields: Any) -> list[float]:
        """The embedding of a text or of token ids."""
        (answer,) = self.answers({"input": text, **fields})
        assert (answer.text, answer.tokens, answer.finish_reason) == ("", [], "stop")
        assert answer.embedding is not None
        return answer.embedding

    def submit(self, body: dict[str, Any]) -> c_void_p:
        """mlcn_submit: a handle, which is not released."""
        return self._submit(json.dumps(body, ensure_ascii=False), None)

    def is_running(self, request: c_void_p) -> bool:
        """Whether a request that was submitted has not ended."""
        return self._lib.mlcn_request_wait(request, c_int64(0), None) != 0

    def _submit(self, body: str, tokens: list[int] | None) -> c_void_p:
        options = SubmitOptions(size=ctypes.sizeof(SubmitOptions))
        if tokens is not None:
            options.tokens = (c_int32 * len(tokens))(*tokens)
            options.num_tokens = len(tokens)
        request = c_void_p()
        text = body.encode()
        self._call(
            "mlcn_submit",
            *(self._engine, text, c_size_t(len(text)), byref(options), byref(request)),
        )
        return request

    def answers_of_text(
        self, body: str, tokens: list[int] | None = None, n: int = 1
    ) -> list[Answer]:
        """All answers of a request whose body is this text."""
        self._lib.mlcn_request_release(self._submit(body, tokens))
        pieces = [b""] * n
        answers = [Answer() for _ in pieces]
        while True:
            outputs = c_void_p()
            self._call("mlcn_poll", self._engine, c_size_t(64), c_int64(-1), byref(outputs))
            done = False
            for i in range(self._lib.mlcn_outputs_count(outputs)):
                output = self._lib.mlcn_outputs_at(outputs, c_size_t(i)).contents
                done = bool(output.is_final)
                if done:
                    break
                pieces[output.index] += output.text[: output.text_length]
                answers[output.index].tokens += output.tokens[: output.num_tokens]
                if output.embedding_size:
                    numbers = output.embedding[: output.embedding_size]
                    answers[output.index].embedding = numbers
                if output.finish_reason:
                    answers[output.index].finish_reason = FINISH_REASONS[output.finish_reason]
            self._lib.mlcn_outputs_release(outputs)
            if done:
                break
        for answer, piece in zip(answers, pieces, strict=True):
            answer.text = piece.decode()
        return answers

    def tokenize(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """mlcn_tokenize."""
        encoded, tokens, count = text.encode(), POINTER(c_int32)(), c_size_t()
        self._call(
            "mlcn_tokenize",
            *(self._engine, encoded, c_size_t(len(encoded)), int(add_special_tokens)),
            *(byref(tokens), byref(count)),
        )
        result = tokens[: count.value]
        self._lib.mlcn_free(tokens)
        return result

    def detokenize(self, tokens: list[int], *, skip_special_tokens: bool = False) -> str:
        """mlcn_detokenize."""
        ids = (c_int32 * len(tokens))(*tokens)
        return self._text(
            "mlcn_detokenize", self._engine, ids, c_size_t(len(tokens)), int(skip_special_tokens)
        )

    def render_chat(self, body: dict[str, Any]) -> str:
        """mlcn_apply_chat_template."""
        text = json.dumps(body, ensure_ascii=False).encode()
        return self._text("mlcn_apply_chat_template", self._engine, text, c_size_t(len(text)))

    def info(self) -> dict[str, Any]:
        """mlcn_engine_info."""
        return json.loads(self._text("mlcn_engine_info", self._engine))

    def metrics(self) -> dict[str, Any]:
        """mlcn_engine_metrics."""
        return json.loads(self._text("mlcn_engine_metrics", self._engine))

    def metrics_prometheus(self) -> str:
        """mlcn_engine_metrics_prometheus."""
        return self._text("mlcn_engine_metrics_prometheus", self._engine)

    def _text(self, name: str, *arguments: Any) -> str:
        text, length = POINTER(ctypes.c_char)(), c_size_t()
        self._call(name, *arguments, byref(text), byref(length))
        result = text[: length.value].decode()
        self._lib.mlcn_free(text)
        return result
