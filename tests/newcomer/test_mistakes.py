"""Newcomer tasks: mistakes, and the errors that one expects."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mlc_native
from mlc_native import MLCEngine

FRANCE: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]


def test_catch_everything_of_the_package(engine: MLCEngine) -> None:
    """One class catches what the package raises; the error has a field and a status of HTTP."""
    with pytest.raises(mlc_native.MLCNativeError) as caught:
        engine.chat.completions.create(messages=FRANCE, temperature=-1)
    assert caught.value.field == "temperature"
    assert caught.value.status == 400
    assert caught.value.to_openai()["error"]["param"] == "temperature"
    assert "\n" not in str(caught.value)
    with pytest.raises(mlc_native.MLCNativeError):
        MLCEngine("/no/such/folder")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", "hot"),
        ("top_p", 1.5),
        ("max_tokens", "many"),
        ("n", 0),
        ("stop", [1]),
        ("seed", 1.5),
        ("logit_bias", {"a": 1}),
        ("response_format", "json"),
        ("tool_choice", "always"),
    ],
)
def test_bad_values(engine: MLCEngine, field: str, value: Any) -> None:
    """A value of the wrong type or outside its range: a ValueError that names the field."""
    with pytest.raises(ValueError, match=field):
        engine.chat.completions.create(messages=FRANCE, **{field: value})


@pytest.mark.parametrize("prompt", ["", [], [[5], []], [10**9]], ids=str)
def test_bad_prompts(engine: MLCEngine, prompt: Any) -> None:
    """The argument that is wrong is the one that was given."""
    with pytest.raises(mlc_native.InvalidRequest, match=r"[Pp]rompt must") as caught:
        engine.completions.create(prompt=prompt)
    assert caught.value.field == "prompt"


def test_a_typing_error(engine: MLCEngine) -> None:
    """A misspelt option names the right one."""
    with pytest.raises(TypeError, match="max_tokens"):
        engine.chat.completions.create(messages=FRANCE, max_token=5)
    with pytest.raises(mlc_native.InvalidRequest, match="max_tokens"):
        engine.chat.completions.create(messages=FRANCE, extra_body={"max_token": 5})


@pytest.mark.parametrize(
    ("theirs", "ours"), [("max_new_tokens", "max_tokens"), ("stop", "stop_strs")]
)
def test_generation_configs_of_other_libraries(theirs: str, ours: str) -> None:
    with pytest.raises(mlc_native.InvalidRequest) as caught:
        mlc_native.GenerationConfig(**{theirs: None})
    assert str(caught.value) == f"{theirs}: there is no such field; did you mean '{ours}'?"


def test_a_penalty_outside_of_its_range(engine: MLCEngine) -> None:
    with pytest.raises(mlc_native.InvalidRequest) as caught:
        engine.completions.create(prompt="a", presence_penalty=3)
    assert str(caught.value) == "presence_penalty: should be in range [-2, 2], got 3.0"


def test_a_seed_of_64_bits_without_a_sign(engine: MLCEngine) -> None:
    """The error has the range."""
    with pytest.raises(mlc_native.InvalidRequest, match=r'"seed" must be in \[-2\^63, 2\^63\)'):
        engine.completions.create(prompt="a", seed=1 << 63)


def test_a_schema_in_the_wrong_place(engine: MLCEngine) -> None:
    with pytest.raises(mlc_native.InvalidRequest) as caught:
        engine.chat.completions.create(
            messages=FRANCE, response_format={"type": "json_schema", "schema": {}}
        )
    assert str(caught.value) == (
        'response_format: type "json_schema" takes no "schema"; it belongs into "json_schema"'
    )


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:,"}},
        {"type": "input_text", "text": "Hi!"},
        {"type": "text", "text": 5},
        {"text": "Hi!"},
    ],
    ids=str,
)
def test_parts_that_are_no_text(engine: MLCEngine, part: dict[str, Any]) -> None:
    """The error says what a text looks like."""
    chat: list[Any] = [{"role": "user", "content": [part]}]
    with pytest.raises(mlc_native.InvalidRequest, match=r'must be {"type": "text", "text": ...}'):
        engine.chat.completions.create(messages=chat)


def test_no_messages(engine: MLCEngine) -> None:
    """An empty chat is refused."""
    with pytest.raises(mlc_native.InvalidRequest, match="messages"):
        engine.chat.completions.create(messages=[])


def test_a_string_for_messages(engine: MLCEngine) -> None:
    """A string is no list of messages; the error shows what one looks like."""
    with pytest.raises(mlc_native.InvalidRequest, match=r"role.*content"):
        engine.chat.completions.create(messages="What is the capital of France?")
    with pytest.raises(mlc_native.InvalidRequest, match=r"role.*content"):
        engine.chat.completions.create(messages=FRANCE[0])


def test_a_prompt_that_is_too_long(engine: MLCEngine) -> None:
    """The error has the length of the prompt and the limit."""
    limit = engine.engine_config.max_single_sequence_length
    with pytest.raises(mlc_native.InvalidRequest, match=str(limit)):
        engine.completions.create(prompt="word " * 50_000)


def test_no_such_model(tmp_path: Path) -> None:
    """A path that is wrong, an empty folder: the error says which files a model has."""
    with pytest.raises(mlc_native.LoadError, match="/no/such/folder"):
        MLCEngine("/no/such/folder")
    with pytest.raises(mlc_native.LoadError, match=r"config\.json"):
        MLCEngine(str(tmp_path))


def test_after_the_end() -> None:
    """A closed engine says that it is closed."""
    engine = MLCEngine("demo")
    engine.terminate()
    engine.terminate()
    with pytest.raises(mlc_native.MLCNativeError, match="terminated"):
        engine.chat.completions.create(messages=FRANCE)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"max_model_len": 512}, "max_single_sequence_length"),
        ({"n_ctx": 512}, "max_single_sequence_length"),
        ({"max_num_seqs": 4}, "max_num_sequence"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_shards"),
        ({"n_threads": 2}, "num_threads"),
        ({"load_in_4bit": True}, "quantization"),
        ({"enable_prefix_caching": True}, "prefix_cache_mode"),
    ],
)
def test_settings_of_other_libraries(theirs: dict[str, Any], ours: str) -> None:
    """The settings of vLLM and llama.cpp have other names; the error says which."""
    with pytest.raises(TypeError, match=ours):
        MLCEngine("demo", **theirs)
    with pytest.raises(mlc_native.InvalidConfig, match=ours):
        MLCEngine("demo", engine_config=theirs)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"sampling_params": {}}, "generation_config"),
        ({"use_tqdm": False}, "progress"),
        ({"max_new_tokens": 4}, "max_tokens"),
        ({"repeat_penalty": 1.1}, "repetition_penalty"),
        ({"num_predict": 4}, "max_tokens"),
        ({"stop_sequences": ["a"]}, "stop"),
        ({"reasoning_effort": "low"}, "chat_template_kwargs"),
    ],
)
def test_options_of_other_libraries(engine: MLCEngine, theirs: dict[str, Any], ours: str) -> None:
    """The same for the options of vLLM, transformers and llama.cpp."""
    with pytest.raises(TypeError, match=ours):
        engine.generate(["a"], **theirs)


def test_python_in_a_checkout(tmp_path: Path) -> None:
    """Behind ``pip install .``, Python in the checkout finds its sources, which are not built."""
    package = Path(mlc_native.__file__).parent
    sources = tmp_path / "checkout"
    stubs = Path("mlc_native/_core")
    shutil.copytree(package / "_core", sources / stubs, ignore=shutil.ignore_patterns("*.so"))
    shutil.copy(package / "__init__.py", sources / "mlc_native")
    program = "import mlc_native; print(mlc_native.cmake_dir())"
    refused = subprocess.run(
        [sys.executable, "-c", program], cwd=sources, capture_output=True, text=True
    )
    assert refused.returncode == 1
    message = refused.stderr.splitlines()[-1]
    assert f"the mlc_native in {sources} is not built for this Python" in message
    assert "another folder" in message
    assert f"pip install -e {sources}" in message
    # What the documents say.
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    found = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=sources,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert Path(found.stdout.strip()) == package / "lib/cmake/mlc_native"
