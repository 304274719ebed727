"""What type checkers and ``help`` know: a typed program, generated arguments, signatures."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from mlc_native import AsyncMLCEngine, EngineConfig, MLCEngine, SyncMLCEngine, _core
from mlc_native.protocol.openai_api_protocol import ChatCompletionRequest, CompletionRequest
from mlc_native.serve import arguments
from mlc_native.serve.openai_interface import (
    AsyncChatCompletions,
    AsyncCompletions,
    ChatCompletions,
    Completions,
)

ROOT = Path(__file__).resolve().parents[2]
CREATES: list[tuple[Any, Any]] = [
    (ChatCompletions.create, ChatCompletionRequest),
    (AsyncChatCompletions.create, ChatCompletionRequest),
    (Completions.create, CompletionRequest),
    (AsyncCompletions.create, CompletionRequest),
]


@pytest.mark.slow
def test_a_typed_program(tmp_path: Path) -> None:
    """As in an environment of its own: only the package is on the path, not its tests."""
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    program = ROOT / "tests" / "typing" / "user_program.py"
    config = tmp_path / "mypy.ini"
    config.write_text(
        f"[mypy]\nmypy_path = {ROOT}\nfollow_imports = silent\nfollow_imports_for_stubs = True\n"
    )
    done = subprocess.run(
        [*command, "--config-file", str(config), str(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_generated_arguments_are_current() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "make_arguments.py"), "--check"]
    done = subprocess.run(tool, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_arguments_are_the_fields() -> None:
    shared = {"request_id", "extra_body"}
    assert set(get_type_hints(arguments.ChatArguments)) == (
        set(ChatCompletionRequest.model_fields) - {"messages", "stream"} | shared
    )
    assert set(get_type_hints(arguments.CompletionArguments)) == (
        set(CompletionRequest.model_fields) - {"prompt", "stream"} | shared
    )
    described = {entry["name"]: entry for entry in _core.describe_engine_fields()}
    assert list(described) == [field.name for field in fields(arguments.EngineFields)]
    config = EngineConfig()
    for name, entry in described.items():
        if name != "mode" and entry["default"] != "":
            assert getattr(config, name) == entry["default"]


@pytest.mark.parametrize(("create", "kind"), CREATES)
def test_help_names_every_argument_with_range_and_default(create: Any, kind: Any) -> None:
    parameters = dict(inspect.signature(create).parameters)
    assert set(parameters) == {"self", *kind.model_fields, "request_id", "extra_body"}
    text = inspect.getdoc(create) or ""
    for name, field in kind.model_fields.items():
        assert field.description, name
        assert f"\n    {name}: " in text
        if field.is_required():
            assert parameters[name].default is inspect.Parameter.empty
        else:
            assert parameters[name].default == field.get_default()
    assert "top_p: [0, 1], the most likely" in text
    assert "n: number of answers, >= 1. Default: 1." in text
    assert "Raises:" in text


@pytest.mark.parametrize("engine", [MLCEngine, AsyncMLCEngine, SyncMLCEngine])
def test_an_unknown_setting_is_a_type_error(engine: Any) -> None:
    with pytest.raises(TypeError, match="'num_thread'; did you mean 'num_threads'"):
        engine("demo", num_thread=2)


def test_an_unknown_field_of_a_config_says_what_it_may_mean() -> None:
    message = r"EngineConfig\(\) got .* 'max_model_len'; did you mean 'max_single_sequence_length'"
    with pytest.raises(TypeError, match=message):
        EngineConfig(max_model_len=10)
    assert list(inspect.signature(EngineConfig).parameters) == [
        f.name for f in fields(EngineConfig)
    ]
