"""Models that attend in both directions, which embed texts: EmbeddingGemma, and ``is_causal``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_model import find_test_library
from families import some_at_night
from gguf import GGMLQuantizationType as Type
from gguf_cases import FAMILIES as GGUF_FAMILIES
from gguf_files import Metadata, write_gguf
from paged_driver import random_tokens
from quantized_checkpoints import WEIGHTS
from safetensors.torch import load_file, save_file
from test_dense_modules import Dense
from test_embedding_files import vectors
from transformers import AutoModel

from mlc_native import MLCEngine, inspect_model
from mlc_native.errors import InvalidRequest, LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

SETTINGS: dict[str, Any] = {
    **{"dtype": "float32", "num_threads": 2, "max_num_sequence": 4, "verbose": False},
    **{"max_total_sequence_length": 1024, "max_single_sequence_length": 256},
}
GEMMA = {"use_bidirectional_attention": True}
BOTH = {"is_causal": False}
# Windows of which the number means another one then, windows in all layers, and none.
MODELS = {
    "tiny-gemma3_text": GEMMA, "tiny-mistral": BOTH, "tiny-llama": BOTH,
    "tiny-gemma2": BOTH, "tiny-gpt2": BOTH, "tiny-phi3": BOTH, "tiny-qwen2": BOTH,
    "tiny-qwen3": BOTH, "tiny-qwen3_moe": BOTH,
}  # fmt: skip
EVERY_RUN = ("tiny-gemma3_text", "tiny-mistral", "tiny-llama")
LENGTHS = (1, 2, 17, 100, 200)


def texts(count: int = len(LENGTHS)) -> list[list[int]]:
    return [random_tokens(length, 500, seed=length) for length in LENGTHS[:count]]


def decoder(like: str, folder: Path) -> tuple[Path, Any]:
    """A checkpoint without a head, as those on the hub, and its model of transformers."""
    whole = make_checkpoint(like, folder / "whole", overrides=MODELS[like])
    model = AutoModel.from_pretrained(whole, dtype=torch.float32).eval()
    model.save_pretrained(folder / "decoder")
    return folder / "decoder", model


@torch.inference_mode()
def expected(model: Any, ids: list[int], pooling: str) -> np.ndarray:
    states = model(torch.tensor([ids])).last_hidden_state[0].numpy()
    return np.asarray(states[-1] if pooling == "last" else states.mean(axis=0))


@pytest.mark.parametrize("like", some_at_night(tuple(MODELS), every_push=EVERY_RUN))
def test_embeddings_are_those_of_transformers(tmp_path: Path, like: str) -> None:
    path, model = decoder(like, tmp_path)
    about = inspect_model(path)
    assert about["problems"] == []
    assert about["decoder"]["attends_in_both_directions"] is True
    with MLCEngine(path, "cpu", **SETTINGS) as engine:
        for pooling in ("last", "mean"):
            found = vectors(engine, texts(), pooling=pooling, normalize=False)
            for ids, vector in zip(texts(), found, strict=True):
                want = expected(model, ids, pooling)
                assert np.abs(vector - want).max() < 1e-4 * np.abs(want).max(), len(ids)
        bits = vectors(engine, texts(), pooling="mean")
        assert np.array_equal(vectors(engine, texts() * 3, pooling="mean"), np.tile(bits, (3, 1)))
        for ids, vector in zip(texts(), bits, strict=True):
            assert np.array_equal(vectors(engine, [ids], pooling="mean")[0], vector)


def test_a_folder_of_embedding_gemma(tmp_path: Path) -> None:
    """As it is published: Dense modules behind the mean, and prompts."""
    path, model = decoder("tiny-gemma3_text", tmp_path)
    size = model.config.hidden_size
    identity = "torch.nn.modules.linear.Identity"
    modules = [
        Dense(size, 96, identity, bias=False, seed=1), Dense(96, size, identity, bias=False, seed=2)
    ]  # fmt: skip
    kinds = ("Transformer", "Pooling", "Dense", "Dense", "Normalize")
    listed = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"st.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (path / "modules.json").write_text(json.dumps(listed))
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    for i, module in enumerate(modules, 2):
        module.save(path / f"{i}_Dense")
    with MLCEngine(path, "cpu", **SETTINGS) as engine:
        for ids, found in zip(texts(), vectors(engine, texts()), strict=True):
            want = modules[1](modules[0](expected(model, ids, "mean")))
            assert np.abs(found - want / np.linalg.norm(want)).max() < 1e-4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("like", EVERY_RUN[:2])
def test_embeddings_on_gpus_are_those_on_the_cpu(tmp_path: Path, like: str, dtype: str) -> None:
    """On the emulator, without tensor cores and with them."""
    path, _ = decoder(like, tmp_path)
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    settings = {**SETTINGS, "dtype": dtype}
    found = []
    for device, model_lib in (("cpu", None), ("cuda:0", library)):
        with MLCEngine(path, device, model_lib=model_lib, **settings) as engine:
            found.append(vectors(engine, texts(4), pooling="mean"))
    tolerance = 1e-4 if dtype == "float32" else 0.03
    assert np.abs(found[0] - found[1]).max() < tolerance
    assert np.abs(found[0][2] - found[0][3]).max() > 3 * tolerance  # texts differ more than devices


def test_a_gguf_file_says_it(tmp_path: Path) -> None:
    overrides = {**GGUF_FAMILIES["tiny-qwen2"], **BOTH}
    source = make_checkpoint("tiny-qwen2", tmp_path / "source", overrides=overrides)
    metadata: Metadata = {"qwen2.attention.causal": False}
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, metadata=metadata)
    with MLCEngine(source, "cpu", **SETTINGS) as folder, MLCEngine(path, "cpu", **SETTINGS) as file:
        want = vectors(folder, texts(), pooling="mean")
        assert np.abs(vectors(file, texts(), pooling="mean") - want).max() < 1e-5


@pytest.mark.parametrize("quantized", [False, True])
def test_a_gguf_file_of_embedding_gemma(tmp_path: Path, quantized: bool) -> None:
    """Also with its Dense modules, of which the file has the matrices."""
    overrides = {**GGUF_FAMILIES["tiny-gemma3_text"], **GEMMA, "sliding_window": 40}
    source = make_checkpoint("tiny-gemma3_text", tmp_path / "source", overrides=overrides)
    with MLCEngine(source, "cpu", **SETTINGS) as folder:
        want = vectors(folder, texts(), pooling="mean", normalize=False)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"gguf_arch": "GEMMA_EMBEDDING"}))
    metadata: Metadata = {"gemma-embedding.pooling_type": 1}
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, metadata=metadata)
    with MLCEngine(path, "cpu", **SETTINGS) as file:
        found = vectors(file, texts(), normalize=False)
        assert np.abs(found - want).max() < 1e-5 * np.abs(want).max()
        assert np.array_equal(vectors(file, texts(), pooling="mean", normalize=False), found)

    size = want.shape[1]
    random = np.random.default_rng(3)
    dense = [random.standard_normal(s).astype(np.float32) for s in ((96, size), (32, 96))]
    tensors = load_file(source / WEIGHTS)
    tensors |= {f"dense_{i}_out.weight": torch.tensor(w) for i, w in enumerate(dense, 2)}
    save_file(tensors, source / WEIGHTS)
    path = write_gguf(
        source, tmp_path / "dense.gguf", metadata=metadata,
        type_of=lambda name: Type.Q8_0 if quantized and name.startswith("dense") else Type.F32,
    )  # fmt: skip
    with MLCEngine(path, "cpu", **SETTINGS) as file:
        if quantized:
            with pytest.raises(InvalidRequest, match=r"dense_2\.weight is no matrix of floats"):
                vectors(file, texts())
            return
        expected_vectors = want @ dense[0].T @ dense[1].T
        expected_vectors /= np.linalg.norm(expected_vectors, axis=1, keepdims=True)
        assert np.abs(vectors(file, texts()) - expected_vectors).max() < 1e-4


def test_a_text_is_computed_in_one_step(tmp_path: Path) -> None:
    path, model = decoder("tiny-gemma3_text", tmp_path)
    with MLCEngine(path, "cpu", **SETTINGS, prefill_chunk_size=100) as engine:
        assert engine.engine_config.prefix_cache_mode == "disable"
        found = vectors(engine, texts(4), pooling="mean", normalize=False)
        want = expected(model, texts()[3], "mean")
        assert np.abs(found[3] - want).max() < 1e-4 * np.abs(want).max()
        with pytest.raises(InvalidRequest, match=r'limit 100 \("prefill_chunk_size" of the engine'):
            vectors(engine, texts())
        long = texts()[4]
        cut = vectors(engine, [long], truncate_prompt_tokens=100, pooling="mean")
        assert np.array_equal(cut, vectors(engine, [[*long[:99], long[-1]]], pooling="mean"))


def test_nothing_is_generated(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-llama", tmp_path / "m", overrides=BOTH)  # which has a head
    with MLCEngine(path, "cpu", **SETTINGS) as engine:
        with pytest.raises(InvalidRequest, match="attends in both directions"):
            engine.completions.create(prompt=[1, 2, 3], max_tokens=1)
        assert vectors(engine, [[1, 2, 3]]).shape[0] == 1


@pytest.mark.parametrize(
    ("like", "fields", "message"),
    [
        ("tiny-gemma2", {"use_bidirectional_attention": True}, "not supported for this family"),
        ("tiny-llama", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
        ("tiny-qwen3_5_text", {"is_causal": False}, '"is_causal" = false is not supported'),
        ("tiny-deepseek_v3", {"is_causal": False}, '"is_causal" = false is not supported'),
        ("tiny-llama", {"is_causal": "no"}, '"is_causal"'),
    ],
)
def test_refusals(tmp_path: Path, like: str, fields: dict[str, Any], message: str) -> None:
    path = make_checkpoint(like, tmp_path / "m")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | fields))
    with pytest.raises(LoadError, match=message):
        MLCEngine(path, "cpu", **SETTINGS)
