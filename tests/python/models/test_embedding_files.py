"""Embeddings of checkpoints in other files: GGUF, and folders of a decoder without a head."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from gguf_cases import FAMILIES as GGUF_FAMILIES
from gguf_files import write_gguf
from mlc_folders import make_mlc_folder
from paged_driver import random_tokens
from reranker_folders import make_generator
from transformers import AutoModel

from mlc_native import MLCEngine, inspect_model
from mlc_native.errors import InvalidRequest, LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

DEMO = Path(__file__).resolve().parents[3] / "mlc_native" / "demo_model"

SETTINGS: dict[str, Any] = {
    **{"dtype": "float32", "num_threads": 1, "max_num_sequence": 4, "verbose": False},
    **{"max_total_sequence_length": 1024, "max_single_sequence_length": 256},
}
# Of these, checkpoints for embeddings without a head are on the hub, or would be like them.
HEADLESS = (
    *("tiny-llama", "tiny-mistral", "tiny-qwen2", "tiny-qwen3", "tiny-gemma2", "tiny-gemma3_text"),
    *("tiny-phi3", "tiny-qwen3_moe", "tiny-gpt2", "tiny-qwen3_5_text"),
)


def vectors(engine: MLCEngine, ids: Any, **fields: Any) -> np.ndarray:
    response = engine.embeddings.create(input=ids, **fields)
    return np.array([each.embedding for each in response.data], dtype=np.float32)


@pytest.mark.parametrize("like", HEADLESS)
def test_a_decoder_without_a_head(like: str, tmp_path: Path) -> None:
    whole = make_checkpoint(like, tmp_path / "whole")
    model = AutoModel.from_pretrained(whole, dtype=torch.float32)
    model.save_pretrained(tmp_path / "decoder")
    names = json.loads((tmp_path / "decoder" / "config.json").read_text())["architectures"]
    assert names[0].endswith("Model")
    assert inspect_model(tmp_path / "decoder")["problems"] == []
    ids = [random_tokens(length, 500, seed=length) for length in (3, 90)]
    with MLCEngine(tmp_path / "decoder", "cpu", **SETTINGS) as engine:
        for pooling in ("last", "mean"):
            found = vectors(engine, ids, pooling=pooling, normalize=False)
            for one, vector in zip(ids, found, strict=True):
                with torch.no_grad():
                    states = model(torch.tensor([one])).last_hidden_state[0].numpy()
                expected = states[-1] if pooling == "last" else states.mean(axis=0)
                assert np.abs(vector - expected).max() < 1e-4 * np.abs(expected).max()
        with pytest.raises(InvalidRequest, match="no head"):
            engine.completions.create(prompt=ids[0], max_tokens=1)


@pytest.mark.parametrize("quantization", ["q8", "q4"])
def test_a_decoder_without_a_head_is_quantized(quantization: str, tmp_path: Path) -> None:
    whole = make_checkpoint("tiny-qwen3", tmp_path / "whole")
    AutoModel.from_pretrained(whole).save_pretrained(tmp_path / "decoder")
    ids = random_tokens(40, 500, seed=1)
    found = []
    for folder in (whole, tmp_path / "decoder"):
        with MLCEngine(folder, "cpu", quantization=quantization, **SETTINGS) as engine:
            found.append(vectors(engine, ids)[0])
    assert np.dot(*found) > 0.99  # the embeddings may be quantized as the head that they stand for


def test_names_that_no_family_has_are_refused(tmp_path: Path) -> None:
    folder = make_checkpoint("tiny-qwen3", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    for name in ("Model", "NothingModel", "Qwen3Modell", "Qwen3EncoderModel"):
        (folder / "config.json").write_text(json.dumps({**config, "architectures": [name]}))
        with pytest.raises(LoadError, match="architectures"):
            MLCEngine(folder, "cpu", **SETTINGS)


@pytest.mark.parametrize(
    ("kind", "expected"), [(None, "last"), (0, "last"), (1, "mean"), (3, "last"), (2, ""), (4, "")]
)
def test_gguf_says_how_it_pools(kind: int | None, expected: str, tmp_path: Path) -> None:
    source = make_checkpoint("tiny-qwen3", tmp_path / "a", overrides=GGUF_FAMILIES["tiny-qwen3"])
    extra = {} if kind is None else {"qwen3.pooling_type": kind}
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, metadata=extra)
    ids = random_tokens(30, 400, seed=2)
    with MLCEngine(file, "cpu", **SETTINGS) as engine:
        if not expected:
            said = "attend in both directions" if kind == 2 else f"type {kind}"
            with pytest.raises(InvalidRequest, match=said) as caught:
                vectors(engine, ids)
            assert caught.value.field == "pooling"
            return
        by_name = {name: vectors(engine, ids, pooling=name) for name in ("last", "mean")}
        assert np.array_equal(vectors(engine, ids), by_name[expected])
        assert not np.array_equal(by_name["last"], by_name["mean"])


def test_a_gguf_file_may_be_a_reranker(tmp_path: Path) -> None:
    folder = make_generator("tiny-qwen3", tmp_path / "model")
    file = write_gguf(folder, tmp_path / "x.gguf", lambda _: Type.F32, pre="qwen2")
    found = []
    for path in (folder, file):
        settings: dict[str, Any] = {**SETTINGS, "max_single_sequence_length": 1024}
        with MLCEngine(path, "cpu", classifier_from_token=["no", "yes"], **settings) as engine:
            found.append([each.score for each in engine.score("Where is it?", ["Here.", "x"])])
    assert np.abs(np.subtract(*found)).max() < 1e-6


def test_a_folder_of_mlc_llm(tmp_path: Path) -> None:
    """Such folders say nothing of embeddings: they have the defaults."""
    source = make_checkpoint("tiny-qwen3", tmp_path / "source")
    shutil.copy(DEMO / "tokenizer.json", source)
    make_mlc_folder(source, tmp_path / "mlc", tmp_path / "floats", "q0f32")
    ids = random_tokens(30, 400, seed=2)
    found = []
    for path in (tmp_path / "floats", tmp_path / "mlc"):
        with MLCEngine(path, "cpu", **SETTINGS) as engine:
            found.append(vectors(engine, ids)[0])
    assert np.abs(found[0] - found[1]).max() < 1e-5
