"""Classifiers: decoders with a matrix for classes in place of a head, against transformers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from families import ALL, SHAPES, some_at_night
from paged_driver import random_tokens
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForSequenceClassification
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

from mlc_native import MLCEngine, inspect_model
from mlc_native.errors import InvalidRequest, LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

DEMO = Path(__file__).resolve().parents[3] / "mlc_native" / "demo_model"

SETTINGS: dict[str, Any] = {
    **{"dtype": "float32", "num_threads": 1, "max_num_sequence": 4, "verbose": False},
    **{"max_total_sequence_length": 1024, "max_single_sequence_length": 256},
}
# All of which transformers has classifiers.
CLASSIFIERS = [
    name
    for name in ALL
    if SHAPES[name]["model_type"] in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
]
IN_EVERY_PUSH = (
    *("tiny-llama", "tiny-mistral", "tiny-qwen2", "tiny-qwen3", "tiny-gemma", "tiny-gemma2"),
    *("tiny-gemma3_text", "tiny-phi3", "tiny-qwen3_moe", "tiny-gpt2", "tiny-qwen3_5"),
)


def make_classifier(like: str, folder: Path, num_labels: int = 3, **fields: Any) -> Path:
    """A random checkpoint of a family with a matrix for classes, as transformers writes it."""
    whole = make_checkpoint(like, folder / "whole")
    config = AutoConfig.from_pretrained(whole, num_labels=num_labels, pad_token_id=None, **fields)
    torch.manual_seed(7)
    model = AutoModelForSequenceClassification.from_pretrained(
        whole, config=config, dtype=torch.float32
    )
    torch.nn.init.normal_(model.score.weight, std=0.3)
    model.save_pretrained(folder / "classifier")
    return folder / "classifier"


def expected_logits(folder: Path, ids: list[int]) -> np.ndarray:
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return np.asarray(model(torch.tensor([ids])).logits[0].numpy())


@pytest.mark.parametrize("like", some_at_night(CLASSIFIERS, IN_EVERY_PUSH))
def test_logits_are_those_of_transformers(like: str, tmp_path: Path) -> None:
    folder = make_classifier(like, tmp_path)
    names = json.loads((folder / "config.json").read_text())["architectures"]
    assert names[0].endswith("ForSequenceClassification")
    assert inspect_model(folder)["problems"] == []
    ids = [random_tokens(length, 500, seed=length) for length in (3, 90)]
    with MLCEngine(folder, "cpu", strict_weights=True, **SETTINGS) as engine:
        assert engine.num_classes == 3
        found = engine.classify(ids, use_activation=False)
        for one, each in zip(ids, found, strict=True):
            expected = expected_logits(folder, one)
            assert np.abs(np.array(each.probs) - expected).max() < 1e-4
            assert each.label == f"LABEL_{expected.argmax()}"
            assert each.num_classes == 3
        softmax = np.exp(expected - expected.max()) / np.exp(expected - expected.max()).sum()
        assert np.abs(np.array(engine.classify(ids[1])[0].probs) - softmax).max() < 1e-5
        with pytest.raises(InvalidRequest, match="classifies texts and generates none"):
            engine.completions.create(prompt=ids[0], max_tokens=1)
        states = engine.embeddings.create(input=ids, normalize=False)  # they still embed
        assert len(states.data[0].embedding) == engine.embedding_size


@pytest.mark.parametrize(
    "fields", [{}, {"prefill_chunk_size": 16}, {"prefix_cache_mode": "disable"}]
)
def test_bits_depend_on_nothing_else(fields: dict[str, Any], tmp_path: Path) -> None:
    folder = make_classifier("tiny-qwen3", tmp_path)
    ids = [random_tokens(length, 500, seed=length) for length in (1, 70, 33, 3)]
    with MLCEngine(folder, "cpu", **{**SETTINGS, **fields}) as engine:

        def logits(inputs: list[list[int]]) -> list[list[float]]:
            return [each.probs for each in engine.classify(inputs, use_activation=False)]

        alone = [logits([one])[0] for one in ids]
        assert logits(ids * 3) == alone * 3
        assert logits(ids[::-1]) == alone[::-1]


@pytest.mark.parametrize("ends", [[], [5], [5, 5, 5], [5, 6, 5]])
def test_padding_at_the_end_is_left_out(ends: list[int], tmp_path: Path) -> None:
    folder = make_classifier("tiny-llama", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "pad_token_id": 5}))
    given = [[*random_tokens(20, 500, seed=1), *ends], [5, *ends]]
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        found = [each.probs for each in engine.classify(given, use_activation=False)]
    for one, logits in zip(given, found, strict=True):
        assert np.abs(np.array(logits) - expected_logits(folder, one)).max() < 1e-4


def test_a_bias_and_bfloat16(tmp_path: Path) -> None:
    folder = make_classifier("tiny-llama", tmp_path)
    ids = random_tokens(20, 500, seed=1)
    plain = expected_logits(folder, ids)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["score.bias"] = torch.tensor([1.0, -2.0, 0.5]).to(torch.bfloat16)
    save_file(tensors, file, metadata={"format": "pt"})
    with MLCEngine(folder, "cpu", strict_weights=True, **SETTINGS) as engine:
        found = np.array(engine.classify(ids, use_activation=False)[0].probs)
    assert np.abs(found - (plain + np.array([1.0, -2.0, 0.5]))).max() < 1e-4


@pytest.mark.parametrize(
    ("num_labels", "fields", "kind"),
    [
        (1, {}, "sigmoid"),
        (3, {}, "softmax"),
        (3, {"problem_type": "multi_label_classification"}, "sigmoid"),
        (1, {"problem_type": "regression"}, "identity"),
        (1, {"sentence_transformers": {"activation_fn": "torch.nn.Identity"}}, "identity"),
        (
            1,
            {"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"},
            "sigmoid",
        ),
    ],
)
def test_what_becomes_of_logits(
    num_labels: int, fields: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    folder = make_classifier("tiny-qwen2", tmp_path, num_labels)
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {str(i): f"kind {i}" for i in range(num_labels)}
    (folder / "config.json").write_text(json.dumps({**config, **fields}))
    ids = random_tokens(20, 500, seed=1)
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        (raw,) = engine.classify(ids, use_activation=False)
        (each,) = engine.classify([ids])
    x = np.array(raw.probs)
    expected = {
        "sigmoid": 1 / (1 + np.exp(-x)),
        "softmax": np.exp(x) / np.exp(x).sum(),
        "identity": x,
    }[kind]
    assert np.abs(np.array(each.probs) - expected).max() < 1e-6
    assert each.outputs.label == raw.label == f"kind {x.argmax()}"


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    folder = make_classifier("tiny-qwen3", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    with MLCEngine(tmp_path / "whole", "cpu", **SETTINGS) as engine:
        assert engine.num_classes == 0
        with pytest.raises(InvalidRequest, match="has no classes") as caught:
            engine.classify([1, 2])
        assert caught.value.field == "model"
    (folder / "config.json").write_text(json.dumps({**config, "problem_type": "other"}))
    with pytest.raises(LoadError, match="problem_type"):
        MLCEngine(folder, "cpu", **SETTINGS)
    (folder / "config.json").write_text(json.dumps({**config, "id2label": ["a"]}))
    with pytest.raises(LoadError, match="id2label"):
        MLCEngine(folder, "cpu", **SETTINGS)
    asks = {"sentence_transformers": {"activation_fn": "torch.nn.Softsign"}}
    (folder / "config.json").write_text(json.dumps({**config, **asks}))
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        with pytest.raises(InvalidRequest, match="Softsign") as caught:
            engine.classify([1, 2])
        assert caught.value.field == "use_activation"
        engine.classify([1, 2], use_activation=False)
    (folder / "config.json").write_text(json.dumps(config))
    file = folder / "model.safetensors"
    tensors = load_file(file)
    for wrong, message in (
        (None, "score.weight"),
        (torch.zeros(3, 5), "takes 5 numbers"),
        (torch.full_like(tensors["score.weight"], float("nan")), "not finite"),
        (tensors["score.weight"][0].clone(), "matrix"),
    ):
        others = {name: value for name, value in tensors.items() if name != "score.weight"}
        save_file(others if wrong is None else {**others, "score.weight": wrong}, file)
        with pytest.raises(LoadError, match=message):
            MLCEngine(folder, "cpu", **SETTINGS)
    config["architectures"] = ["NothingForSequenceClassification"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(LoadError, match="architectures"):
        MLCEngine(folder, "cpu", **SETTINGS)
