"""Wrong, huge and strange values in the fields of requests, one at a time.

The engine answers or refuses with an error of the family, which names a field and quotes little.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from hostile.frame import Case, HostileClass

QUOTED = 200  # characters of the input that an error may have
_LONG = "Q" * 5000


def _nested(depth: int, of: Callable[[Any], Any] = lambda value: [value]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = of(value)
    return value


# Each is made when it is needed.
_VALUES: dict[str, Callable[[], Any]] = {
    "true": lambda: True,
    "zero": lambda: 0,
    "minus one": lambda: -1,
    "2^31": lambda: 1 << 31,
    "2^53 + 1": lambda: (1 << 53) + 1,
    "2^63": lambda: 1 << 63,
    "-2^63 - 1": lambda: -(1 << 63) - 1,
    "2^64": lambda: 1 << 64,
    "a huge integer": lambda: 10**4000,
    "a fraction": lambda: 0.5,
    "not a number": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "the smallest number": lambda: 5e-324,
    "no text": lambda: "",
    "a text": lambda: "x",
    "a zero byte": lambda: "\0",
    "a lone surrogate": lambda: "\ud800",
    "right to left": lambda: "\u202e\ufeff",
    "a long text": lambda: _LONG,
    "lines": lambda: f"{_LONG}\r\n{_LONG}\n\n",
    "a number as text": lambda: "1e999",
    "bytes": lambda: b"\xff",
    "an empty list": list,
    "a list of null": lambda: [None],
    "a list of texts": lambda: ["a", "", _LONG],
    "a list of numbers": lambda: [0, -1, 1 << 40, 1 << 70],
    "a list of lists": lambda: [[], [[]], [1 << 64]],
    "a long list": lambda: [1] * 100_000,
    "a long list of texts": lambda: ["x"] * 5000,
    "a long list of long texts": lambda: ["Q" * 2000] * 60,
    "a long list of objects": lambda: [{"role": "user", "content": "x"}] * 5000,
    "an empty object": dict,
    "an object with no name": lambda: {"": None},
    "an object of long names": lambda: {_LONG: {_LONG: _LONG}},
    "an object of many names": lambda: {str(i): 0 for i in range(5000)},
    "an object of huge names": lambda: {str(1 << 70): 1, "-1": 1, "1.5": 1},
    "an object of a type": lambda: {"type": "json_schema", "json_schema": {"schema": _LONG}},
    "a function": lambda: {"type": "function", "function": {"name": _LONG}},
    "deep lists": lambda: _nested(90),
    "very deep lists": lambda: _nested(5000),
    "deep objects": lambda: _nested(5000, lambda value: {"a": value}),
    "a list in itself": lambda: _nested(40, lambda value: [value, value]),
    "messages": lambda: [{"role": _LONG, "content": _LONG}],
    "parts": lambda: [{"role": "user", "content": [{"type": _LONG, "text": _LONG}]}],
    "a call": lambda: [
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[" * 9999}}]}
    ],
    "deep arguments": lambda: [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "f", "arguments": "[" * 500 + "]" * 500}}],
        }
    ],
    "deep arguments as an object": lambda: [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"function": {"name": "f", "arguments": _nested(99, lambda value: {"a": value})}}
            ],
        }
    ],
    "tools": lambda: [{"type": "function", "function": {"name": _LONG, "parameters": _LONG}}],
    "many tools": lambda: [{"type": "function", "function": {"name": "f"}}] * 200,
}
_ENTRIES = ("chat", "completion", "body", "config")


def _fields(entry: str) -> list[str]:
    from mlc_native.protocol.generation_config import GenerationConfig
    from mlc_native.protocol.openai_api_protocol import ChatCompletionRequest, CompletionRequest

    if entry == "config":
        return list(GenerationConfig.model_fields)
    if entry == "completion":
        return [*CompletionRequest.model_fields, "request_id", "extra_body"]
    own = [] if entry == "body" else ["request_id", "extra_body"]
    return [*ChatCompletionRequest.model_fields, *own]


def hostile_class() -> HostileClass:
    """The class."""
    cases = [
        Case(f"{entry} with {value} as {field}", (entry, field, value))
        for entry in _ENTRIES
        for field, value in product(_fields(entry), _VALUES)
    ]
    return HostileClass(
        "request_values", cases, _attempt, cpu_s=4, memory_mib=200, sample=500, prepared=_prepared
    )


_engines: list[Any] = []


@contextmanager
def _prepared() -> Iterator[Callable[[], object]]:
    from fake_model import find_fake_model_lib, write_model

    from mlc_native import MLCEngine, SyncMLCEngine

    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "model", context_window_size=64)
        library = find_fake_model_lib()
        engine = MLCEngine(model, model_lib=library, mode="server", verbose=False)
        _engines[:] = [engine, SyncMLCEngine(model, model_lib=library, verbose=False)]
        yield lambda: engine.completions.create(prompt="abc", max_tokens=1)
        engine.terminate()


def _attempt(value: tuple[str, str, str]) -> str:
    from mlc_native.errors import InvalidRequest

    entry, field, name = value
    try:
        _call(entry, field, _VALUES[name]())
    except InvalidRequest as error:
        text = str(error)
        if not error.field or "\n" in text:
            return f"an error without a field or of several lines: {text[:300]}"
        if "Q" * (QUOTED + 1) in text or len(text) > 2000:
            return f"an error of {len(text)} characters: {text[:300]}"
        return "refused"
    return "served"


def _call(entry: str, field: str, value: Any) -> None:
    engine, stepping = _engines
    common = {"max_tokens": 1, "timeout_s": 20}
    chat = {"messages": [{"role": "user", "content": "hi"}], **common}
    if entry == "chat":
        answer = engine.chat.completions.create(**{**chat, field: value})
    elif entry == "completion":
        answer = engine.completions.create(**{"prompt": "abc", **common, field: value})
    elif entry == "body":
        answer = engine.chat.completions.create_from({**chat, field: value})
    else:
        stepping.create_request("r", "abc", {field: value})
        return
    for _ in answer if field == "stream" and value is True else ():
        pass
