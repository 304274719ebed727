"""Small parts of the setup: the progress bar, tracing events, the public names."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import mlc_native
from mlc_native import MLCEngine, SyncMLCEngine, _core
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve import load_report, model_setup

MakeModel = Callable[..., str]


def test_no_progress_bar_on_a_quick_load(
    make_model: MakeModel, fake_lib: str, capsys: pytest.CaptureFixture[str]
) -> None:
    MLCEngine(make_model(), model_lib=fake_lib).terminate()
    assert capsys.readouterr() == ("", "")


def test_progress_never_exceeds_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(load_report.LoadReport, "__call__", lambda _self, *now: calls.append(now))
    MLCEngine("demo", "cpu").terminate()
    assert calls[-1][0] == calls[-1][1]
    assert all(done <= total for done, total in calls)
    assert calls == sorted(calls)


def test_generate_leaves_other_requests_their_callback(
    make_model: MakeModel, fake_lib: str
) -> None:
    seen: list[str] = []

    def callback(outputs: list[Any]) -> None:
        seen.extend(output.request_id for output in outputs)

    engine = SyncMLCEngine(make_model(), model_lib=fake_lib, request_stream_callback=callback)
    mine = engine.create_request("mine", "abc", GenerationConfig(max_tokens=3))
    engine.add_request(mine)
    texts, _ = engine.generate(["a", "b"], GenerationConfig(max_tokens=5))
    assert len(texts) == 2
    assert set(seen) == {"mine"}
    assert engine.get_request_stream_callback() is callback


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("mlc_native", ["MLCEngine", "AsyncMLCEngine", "SyncMLCEngine", "EngineConfig"]),
        (
            "mlc_native.serve",
            [
                *("EngineConfig", "Data", "ImageData", "TextData", "TokenData"),
                *("RequestStreamOutput", "AsyncMLCEngine", "MLCEngine", "Request"),
            ],
        ),
        ("mlc_native.serve.engine", ["AsyncMLCEngine", "MLCEngine"]),
        ("mlc_native.serve.engine_base", ["MLCEngineBase", "EngineState", "ModelInfo"]),
        ("mlc_native.serve.sync_engine", ["SyncMLCEngine"]),
        ("mlc_native.serve.data", ["SingleRequestStreamOutput"]),
        ("mlc_native.serve.config", ["EngineConfig"]),
        ("mlc_native.serve.event_trace_recorder", ["EventTraceRecorder"]),
        ("mlc_native.protocol.generation_config", ["GenerationConfig"]),
        ("mlc_native.protocol.debug_protocol", ["DebugConfig"]),
        ("mlc_native.protocol.mlc_chat_config", ["MLCChatConfig"]),
        (
            "mlc_native.protocol.openai_api_protocol",
            ["ChatCompletionRequest", "CompletionRequest", "ChatCompletionStreamResponse"],
        ),
        ("mlc_native.protocol.error_protocol", ["BadRequestError", "ErrorResponse"]),
        ("mlc_native.tokenizers", ["Tokenizer", "TokenizerInfo", "TextStreamer", "StopStrHandler"]),
    ],
)
def test_names_of_mlc_llm(module: str, names: list[str]) -> None:
    for name in names:
        assert hasattr(importlib.import_module(module), name)


def test_unknown_names_of_the_package() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Engine'"):
        _ = mlc_native.Engine  # type: ignore[attr-defined]
    assert "MLCEngine" in dir(mlc_native)


ANSWER_A_QUESTION = """
import sys
import mlc_native

lazy = {"pydantic", "jinja2", "tokenizers", "numpy", "mlc_native._core"} & set(sys.modules)
from mlc_native import AsyncMLCEngine, MLCEngine, SyncMLCEngine

with MLCEngine("demo") as engine:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    answer = engine.chat.completions.create(messages=messages, temperature=0)
heavy = {"torch", "transformers", "tvm_ffi", "xgrammar"} & set(sys.modules)
print(lazy, heavy, "Paris" in answer.choices[0].message.content)
"""


def test_nothing_imports_torch() -> None:
    """Not even to answer a question; importing the package alone loads none of its requirements."""
    command = [sys.executable, "-c", ANSWER_A_QUESTION]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "set() set() True\n"


def test_without_docstrings() -> None:
    """``python -OO`` strips them, and the asserts."""
    command = [sys.executable, "-OO", "-B", "-c", ANSWER_A_QUESTION + "import mlc_native.server"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "set() set() True\n", done.stderr


def test_available_devices() -> None:
    assert "cpu" in _core.available_devices()
    assert model_setup.detect_device("cpu", None, False) == ("cpu", None)
