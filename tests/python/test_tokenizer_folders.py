"""Engines take model folders without tokenizer.json whose tokenizer is in other files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from c_library import CEngine
from tokenizer_files import write_folder

import mlc_native
from mlc_native import MLCEngine, _core
from mlc_native.support.inspection import inspect_model
from mlc_native.tokenizers import Tokenizer

DEMO = Path(mlc_native.__file__).parent / "demo_model"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The draft of the demo model, whose tokenizer is in vocab.json and merges.txt."""
    folder = tmp_path / "model"
    shutil.copytree(DEMO / "draft", folder)
    trained = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model = trained["model"]
    lines = ["#version: 0.2", *(" ".join(merge) for merge in model["merges"])]
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings["tokenizer_class"] = "GPT2Tokenizer"
    settings["added_tokens_decoder"] = {
        str(token.pop("id")): token for token in trained["added_tokens"]
    }
    files = {"vocab.json": model["vocab"], "merges.txt": "\n".join(lines) + "\n",
             "tokenizer_config.json": settings}  # fmt: skip
    write_folder(folder, files)
    (folder / "tokenizer.json").unlink()
    return folder


def test_engines_take_such_folders(folder: Path) -> None:
    """In Python and in C; texts, chats, and grammars of answers."""
    prompt, messages = "The capital of France", [{"role": "user", "content": "Hello there"}]
    limits = {"max_num_sequence": 2, "max_total_sequence_length": 1024}
    fields: dict[str, Any] = {"max_tokens": 12, "temperature": 0}
    answers = []
    for model in (folder, DEMO / "draft"):
        with MLCEngine(str(model), "cpu", verbose=False, **limits) as engine:
            completion = engine.completions.create(prompt=prompt, stop=["zzz"], **fields)
            chat = engine.chat.completions.create(messages=messages, **fields)
            choice = engine.completions.create(
                prompt=prompt, response_format={"type": "json_object"}, **fields
            )
            answers.append(
                [completion.choices[0].text, chat.choices[0].message.content,
                 choice.choices[0].text])  # fmt: skip
    assert answers[0] == answers[1]
    with CEngine(folder, **limits) as engine:
        (answer,) = engine.answers({"prompt": prompt, **fields})
    assert answer.text == answers[0][0]
    assert inspect_model(folder)["has_tokenizer"]


def test_a_tokenizer_json_comes_first(folder: Path) -> None:
    shutil.copy(DEMO / "draft" / "tokenizer.json", folder)
    (folder / "vocab.json").write_text("{", encoding="utf-8")
    text = "Hello 1234 there"
    assert Tokenizer(folder).encode(text) == Tokenizer(DEMO / "draft").encode(text)


def test_asking_for_a_tokenizer_reads_nothing(folder: Path) -> None:
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        (folder / name).write_text("{", encoding="utf-8")
    assert _core.has_model_file(str(folder / "tokenizer.json"))
    assert inspect_model(folder)["has_tokenizer"]
    (folder / "merges.txt").unlink()
    assert not _core.has_model_file(str(folder / "tokenizer.json"))
