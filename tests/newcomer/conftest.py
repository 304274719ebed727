"""Fixtures of the newcomer tasks: engines on the demo model, and a checkpoint folder.

A task is written as a programmer would write it who knows vLLM, llama-cpp-python, OpenAI's library,
transformers or MLC-LLM, and has not read the documentation of this package. Where such a habit is
wrong here, the task asserts the error, which says what to write instead.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mlc_native
from mlc_native import AsyncMLCEngine, MLCEngine


@pytest.fixture(scope="session")
def engine() -> Iterator[MLCEngine]:
    """The demo model in an engine that the tasks of a process share."""
    with MLCEngine("demo", verbose=False) as engine:
        yield engine


@pytest.fixture
async def async_engine() -> Any:
    async with AsyncMLCEngine("demo", verbose=False) as engine:
        yield engine


# The end of the templates of thinking models: the answer begins within a thought.
THINKING = """{%- if add_generation_prompt -%}{{- '<think>\\n' -}}{%- endif -%}
{%- if add_generation_prompt and enable_thinking is defined and not enable_thinking -%}
{{- '\\n</think>\\n\\n' -}}{%- endif -%}"""


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the Hugging Face hub has it, with the chat template of a model that thinks."""
    folder = tmp_path_factory.mktemp("checkpoints") / "thinker"
    shutil.copytree(Path(mlc_native.__file__).parent / "demo_model", folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["chat_template"] = settings["chat_template"].rstrip() + THINKING
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="session")
def thinker(checkpoint: Path) -> Iterator[MLCEngine]:
    """The checkpoint in an engine."""
    with MLCEngine(checkpoint, verbose=False) as engine:
        yield engine
