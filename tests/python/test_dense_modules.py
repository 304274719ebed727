"""Dense modules of sentence-transformers: values against numpy, dimensions, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from mlc_native import MLCEngine
from mlc_native.errors import InvalidRequest, LoadError
from mlc_native.support.model_source import resolve_model

SETTINGS: dict[str, Any] = {
    **{"dtype": "float32", "num_threads": 1, "max_num_sequence": 4, "verbose": False},
    **{"max_total_sequence_length": 4096, "max_single_sequence_length": 1024},
}
TEXTS = ["The capital of France is Paris.", "x", "What is the capital of France? " * 12]
DEMO = resolve_model("demo", verbose=False)
SIZE = 256  # of the demo's hidden states
ACTIVATIONS: dict[str, Any] = {
    "torch.nn.modules.linear.Identity": lambda x: x,
    "torch.nn.modules.activation.Tanh": np.tanh,
    "torch.nn.modules.activation.ReLU": lambda x: np.maximum(x, 0),
    "torch.nn.modules.activation.SiLU": lambda x: x / (1 + np.exp(-x)),
}


class Dense:
    """A module with random weights."""

    def __init__(
        self, inputs: int, outputs: int, activation: str, *, bias: bool = True, seed: int = 0
    ) -> None:
        random = np.random.default_rng(seed)
        self.weight = (random.standard_normal((outputs, inputs)) / inputs**0.5).astype(np.float32)
        self.bias = random.standard_normal(outputs).astype(np.float32) if bias else None
        self.activation = activation

    def __call__(self, x: np.ndarray) -> np.ndarray:
        y = x.astype(np.float64) @ self.weight.T.astype(np.float64)
        y = y if self.bias is None else y + self.bias
        return np.asarray(ACTIVATIONS[self.activation](y))

    def save(self, folder: Path, **fields: Any) -> None:
        folder.mkdir()
        config = {
            **{"in_features": self.weight.shape[1], "out_features": self.weight.shape[0]},
            **{"bias": self.bias is not None, "activation_function": self.activation},
        }
        (folder / "config.json").write_text(json.dumps({**config, **fields}))
        tensors = {"linear.weight": self.weight}
        if self.bias is not None:
            tensors["linear.bias"] = self.bias
        save_file(tensors, folder / "model.safetensors")


def make_folder(folder: Path, pooling: str, modules: list[Dense | str], **fields: Any) -> Path:
    """The demo with these modules behind its pooling; ``fields`` are of each Dense's config."""
    shutil.copytree(DEMO, folder)
    kinds = ["Transformer", "Pooling"]
    kinds += ["Dense" if isinstance(each, Dense) else each for each in modules]
    listed = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"st.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{pooling}": True}))
    for i, module in enumerate(modules, 2):
        if isinstance(module, Dense):
            module.save(folder / f"{i}_Dense", **fields)
    return folder


def vectors(engine: MLCEngine, **fields: Any) -> np.ndarray:
    response = engine.embeddings.create(input=TEXTS, **fields)
    return np.array([each.embedding for each in response.data], dtype=np.float32)


@pytest.fixture(scope="module")
def plain() -> Iterator[MLCEngine]:
    with MLCEngine("demo", "cpu", **SETTINGS) as made:
        yield made


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("pooling", ["lasttoken", "mean_tokens"])
def test_values_are_those_of_numpy(
    plain: MLCEngine, pooling: str, activation: str, tmp_path: Path
) -> None:
    first = Dense(SIZE, 96, activation)
    second = Dense(96, 200, "torch.nn.modules.linear.Identity", bias=False, seed=1)
    name = {"lasttoken": "last", "mean_tokens": "mean"}[pooling]
    states = vectors(plain, pooling=name, normalize=False)
    for modules, expected in (
        ([first], first(states)),
        ([first, "Dropout", second], second(first(states))),
    ):
        folder = make_folder(tmp_path / str(len(modules)), pooling, modules)
        with MLCEngine(folder, "cpu", **SETTINGS) as engine:
            found = vectors(engine)
            assert engine.embedding_size == expected.shape[1]
            assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()
            unit = vectors(engine, normalize=True)
        lengths = np.linalg.norm(expected, axis=1, keepdims=True)
        assert np.abs(unit - expected / lengths).max() < 1e-5


def test_dimensions_are_cut_behind_them(plain: MLCEngine, tmp_path: Path) -> None:
    dense = Dense(SIZE, 256, "torch.nn.modules.activation.Tanh")
    folder = make_folder(tmp_path / "model", "mean_tokens", [dense, "Normalize"])
    whole = dense(vectors(plain, pooling="mean", normalize=False))
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        for dimensions in (1, 16, 200, 256):
            cut = whole[:, :dimensions]
            expected = cut / np.linalg.norm(cut, axis=1, keepdims=True)
            assert np.abs(vectors(engine, dimensions=dimensions) - expected).max() < 1e-5
        with pytest.raises(InvalidRequest, match=r"\[1, 256\]") as caught:
            vectors(engine, dimensions=257)
        assert caught.value.field == "dimensions"
        # Another pooling goes through them, too.
        last = dense(vectors(plain, pooling="last", normalize=False))
        found = vectors(engine, pooling="last", normalize=False)
        assert np.abs(found - last).max() < 1e-4


def test_bits_depend_on_nothing_else(tmp_path: Path) -> None:
    modules: list[Dense | str] = [Dense(SIZE, 96, "torch.nn.modules.activation.Tanh")]
    folder = make_folder(tmp_path / "model", "lasttoken", modules)
    found = []
    for settings in ({}, {"prefill_chunk_size": 16}):
        with MLCEngine(folder, "cpu", **{**SETTINGS, **settings}) as engine:
            found += [vectors(engine), vectors(engine)]
    assert all(np.array_equal(found[0], each) for each in found)


@pytest.mark.parametrize(
    ("modules", "fields", "said"),
    [
        (["Normalize", Dense(SIZE, 8, "Tanh")], {}, '"Dense"'),
        ([Dense(SIZE, 8, "Tanh"), "LayerNorm"], {}, '"LayerNorm"'),
        ([Dense(SIZE, 8, "torch.nn.Softsign")], {}, "2_Dense has the activation torch.nn.Softsign"),
        ([Dense(SIZE, 8, "Tanh")], {"module_input_name": "token_embeddings"}, "token_embeddings"),
    ],
)
def test_what_is_not_supported_is_said(
    modules: list[Dense | str], fields: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder = make_folder(tmp_path / "model", "lasttoken", modules, **fields)
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        with pytest.raises(InvalidRequest, match=said) as caught:
            vectors(engine)
        assert caught.value.field == "pooling"
        assert vectors(engine, pooling="last").shape == (len(TEXTS), SIZE)


def test_weights_in_another_form_are_named(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", "lasttoken", [Dense(SIZE, 8, "Tanh")])
    (folder / "2_Dense" / "model.safetensors").rename(folder / "2_Dense" / "pytorch_model.bin")
    said = r"2_Dense/model\.safetensors does not exist"
    with MLCEngine(folder, "cpu", **SETTINGS) as engine, pytest.raises(InvalidRequest, match=said):
        vectors(engine)


@pytest.mark.parametrize(
    ("modules", "fields", "message"),
    [
        ([Dense(SIZE + 1, 8, "Tanh")], {}, "takes 257 numbers"),
        ([Dense(SIZE, 8, "Tanh"), Dense(9, 8, "Tanh")], {}, 'has "in_features" 9'),
        ([Dense(SIZE, 8, "Tanh")], {"out_features": 9}, r"\[8, 256\]; must be \[9, 256\]"),
        ([Dense(SIZE, 8, "Tanh")], {"in_features": 0}, "in_features"),
        ([Dense(SIZE, SIZE, "Tanh", seed=i) for i in range(5)], {}, "at most 4 Dense modules"),
        ([Dense(SIZE, 8, "Tanh", bias=False)], {"bias": True}, "linear.bias"),
    ],
)
def test_what_does_not_fit_is_named(
    modules: list[Dense | str], fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = make_folder(tmp_path / "model", "lasttoken", modules, **fields)
    with pytest.raises(LoadError, match=message):
        MLCEngine(folder, "cpu", **SETTINGS)


def test_weights_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    dense = Dense(SIZE, 8, "Tanh")
    dense.weight[3, 5] = np.nan
    folder = make_folder(tmp_path / "model", "lasttoken", [dense])
    with pytest.raises(LoadError, match=r"linear\.weight.*not finite"):
        MLCEngine(folder, "cpu", **SETTINGS)
