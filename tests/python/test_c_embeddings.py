"""Embeddings through the C API: number by number those of the engines of Python."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from adapter_folders import write_demo_adapters
from c_library import CEngine, CError
from transformers import AutoModel

from mlc_native import MLCEngine
from mlc_native.support.model_source import demo_model_folder

INVALID_REQUEST = 2  # MLCN_...
SETTINGS: dict[str, Any] = {
    **{"dtype": "float32", "num_threads": 1, "max_num_sequence": 4},
    **{"max_total_sequence_length": 4096, "max_single_sequence_length": 1024},
}
TEXTS = ["The capital of France is Paris.", "x", "naïve — 東京 🙂", "What is it? " * 40]
FIELDS: list[dict[str, Any]] = [
    {},
    {"pooling": "last"},
    {"pooling": "mean"},
    {"pooling": "mean", "normalize": False},
    {"dimensions": 8},
    {"dimensions": 1, "normalize": False},
    {"add_special_tokens": False},
    {"truncate_prompt_tokens": 3, "pooling": "mean"},
    {"priority": "low", "timeout_s": 60, "queue_timeout_s": 60, "cache_salt": "s"},
]


@pytest.fixture(scope="module")
def engine() -> Iterator[CEngine]:
    with CEngine(demo_model_folder(), **SETTINGS) as engine:
        yield engine


@pytest.fixture(scope="module")
def python() -> Iterator[MLCEngine]:
    with MLCEngine("demo", "cpu", verbose=False, **SETTINGS) as engine:
        yield engine


def expected(python: MLCEngine, text: Any, **fields: Any) -> Any:
    return python.embeddings.create(input=text, **fields).data[0].embedding


def refusal(engine: CEngine, body: dict[str, Any]) -> CError:
    with pytest.raises(CError) as error:
        engine.answers(body)
    assert error.value.code == INVALID_REQUEST
    return error.value


@pytest.mark.parametrize("fields", FIELDS, ids=lambda fields: "-".join(fields) or "none")
def test_they_are_pythons(engine: CEngine, python: MLCEngine, fields: dict[str, Any]) -> None:
    for text in TEXTS:
        assert engine.embedding(text, **fields) == expected(python, text, **fields)


def test_inputs_may_be_token_ids(engine: CEngine, python: MLCEngine) -> None:
    ids = engine.tokenize(TEXTS[0], add_special_tokens=True)
    assert engine.embedding(ids) == expected(python, ids) == engine.embedding(TEXTS[0])


def test_classes_are_pythons() -> None:
    """The only token of each class is one of the demo model's."""
    tokens = [" the", " a", " of"]
    settings = {"classifier_from_token": tokens, **SETTINGS}
    with MLCEngine("demo", "cpu", verbose=False, **settings) as python:
        found = python.classify(TEXTS, use_activation=False)
    with CEngine(demo_model_folder(), **settings) as engine:
        assert engine.info()["num_classes"] == len(tokens)
        for text, each in zip(TEXTS, found, strict=True):
            assert engine.embedding(text, classify=True) == each.probs
        for name, value in (("pooling", "last"), ("dimensions", 1), ("normalize", True)):
            error = refusal(engine, {"input": "x", "classify": True, name: value})
            assert error.field == name
    with CEngine(demo_model_folder(), **SETTINGS) as engine:
        assert engine.info()["num_classes"] == 0
        assert refusal(engine, {"input": "x", "classify": True}).field == "model"


def test_an_adapter_computes_them(tmp_path: Path) -> None:
    folders = write_demo_adapters(tmp_path)
    with MLCEngine("demo", "cpu", adapters=folders, verbose=False, **SETTINGS) as python:
        numbers = {name: expected(python, TEXTS[0], adapter=name) for name in ("", "a", "b")}
    assert numbers[""] != numbers["a"] != numbers["b"]
    adapters = [f"{name}={folder}" for name, folder in folders.items()]
    with CEngine(demo_model_folder(), adapters=adapters, **SETTINGS) as engine:
        for name in numbers:
            assert engine.embedding(TEXTS[0], adapter=name) == numbers[name]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"input": ["a", "b"]}, "input"),
        ({"input": [[1], [2]]}, "input"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),  # the demo puts nothing around a text
        ({"input": {"text": "a"}}, "input"),
        ({"input": "long " * 2000}, "input"),
        ({"pooling": "cls"}, "pooling"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": 100_000}, "dimensions"),
        ({"dimensions": 1 << 70}, "dimensions"),
        ({"prompt": "a"}, "prompt"),
        ({"messages": [{"role": "user", "content": "a"}]}, "messages"),
        ({"max_tokens": 1}, "max_tokens"),
        ({"temperature": 0.5}, "temperature"),
        ({"prompt_name": "query"}, "prompt_name"),
        ({"encoding_format": "base64"}, "encoding_format"),
        ({"adapter": "none"}, "adapter"),
    ],
    ids=str,
)
def test_wrong_requests_are_refused_by_field(
    engine: CEngine, fields: dict[str, Any], field: str
) -> None:
    assert refusal(engine, {"input": "a", **fields}).field == field


def test_a_text_that_cannot_fit_is_not_tokenized(engine: CEngine) -> None:
    error = refusal(engine, {"input": "a" * 10_000_000})
    assert error.field == "input"
    assert "at least" in str(error)


# ---------------------------------------------------------------------------------- model folders


def copy_of_demo(folder: Path) -> Path:
    shutil.copytree(demo_model_folder(), folder)
    return folder


def test_special_tokens_are_put_around_a_text(tmp_path: Path) -> None:
    folder = copy_of_demo(tmp_path / "model")
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    around = [{"SpecialToken": {"id": "<|bos|>", "type_id": 0}}, {"Sequence": {"id": "A"}}]
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [*around, {"SpecialToken": {"id": "<|end|>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A"}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            text: {"id": text, "ids": [token], "tokens": [text]}
            for token, text in ((1, "<|bos|>"), (6, "<|end|>"))
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    with (
        CEngine(folder, **SETTINGS) as engine,
        MLCEngine(folder, "cpu", verbose=False, **SETTINGS) as python,
    ):
        plain = engine.tokenize(TEXTS[0])
        for fields in ({}, {"add_special_tokens": True}):
            numbers = engine.embedding(TEXTS[0], **fields)
            assert numbers == expected(python, TEXTS[0], **fields)
            assert numbers == engine.embedding([1, *plain, 6])
        numbers = engine.embedding(TEXTS[0], add_special_tokens=False)
        assert numbers == expected(python, TEXTS[0], add_special_tokens=False)
        assert numbers == engine.embedding(plain)


def write_modules(folder: Path, *names: str) -> None:
    """modules.json as sentence-transformers writes it, with the mean as pooling."""
    modules = [
        {"idx": i, "name": str(i), "path": name if i else "", "type": f"x.models.{name}"}
        for i, name in enumerate(["Transformer", "Pooling", *names])
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "Pooling").mkdir()
    pooling = json.dumps({"pooling_mode_mean_tokens": True})
    (folder / "Pooling/config.json").write_text(pooling, encoding="utf-8")


def test_the_folder_says_how(tmp_path: Path, engine: CEngine) -> None:
    info = engine.info()
    assert (info["generates"], info["embedding_size"]) == (True, len(engine.embedding("x")))
    assert (info["pooling"], info["normalize"]) == ("last", True)
    mean = copy_of_demo(tmp_path / "mean")
    write_modules(mean)
    with CEngine(mean, **SETTINGS) as other:
        assert (other.info()["pooling"], other.info()["normalize"]) == ("mean", False)
        numbers = engine.embedding("a b c", pooling="mean", normalize=False)
        assert other.embedding("a b c") == numbers
        assert other.embedding("x", pooling="last", normalize=True) == engine.embedding("x")
    unknown = copy_of_demo(tmp_path / "other")
    write_modules(unknown, "CNN")
    with CEngine(unknown, **SETTINGS) as other:
        assert other.info()["pooling"] is None
        error = refusal(other, {"input": "x"})
        assert error.field == "pooling"
        assert '"CNN"' in str(error)
        assert other.embedding("x", pooling="last", normalize=True) == engine.embedding("x")


def test_prompts_of_the_folder_are_not_put_in_front(tmp_path: Path, engine: CEngine) -> None:
    folder = copy_of_demo(tmp_path / "model")
    prompts = {"prompts": {"query": "Find: "}, "default_prompt_name": "query"}
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps(prompts), encoding="utf-8")
    with CEngine(folder, **SETTINGS) as other:
        assert other.embedding("x") == engine.embedding("x")
        assert other.embedding("Find: x") == engine.embedding("Find: x")


def test_a_checkpoint_without_a_head_answers_nothing_else(tmp_path: Path, engine: CEngine) -> None:
    folder = tmp_path / "model"
    AutoModel.from_pretrained(demo_model_folder()).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(demo_model_folder() / name, folder)
    with CEngine(folder, **SETTINGS) as other:
        assert other.info()["generates"] is False
        for text in TEXTS:
            assert other.embedding(text) == engine.embedding(text)
        error = refusal(other, {"prompt": "x", "max_tokens": 1})
        assert error.field == "model"
        assert "embeds texts and generates none" in str(error)
