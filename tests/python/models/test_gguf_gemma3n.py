"""GGUF files of Gemma 3n: tokens, codes, and what is refused. Its logits are in test_gguf.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf_cases import FAMILIES, PROMPT
from gguf_files import Metadata, TypeOf, write_gguf
from paged_driver import PagedModel, PagedSequence, relative_error, transformers_logits

from mlc_native import inspect_model
from mlc_native._core import LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

LIKE = "tiny-gemma3n_text"
# Blocks of 256 columns; the four streams that all files have.
LARGE: dict[str, Any] = {
    "hidden_size": 256, "head_dim": 64, "hidden_size_per_layer_input": 256, "laurel_rank": 256,
    "intermediate_size": [512, 512, 256, 512, 512, 512, 768, 512], "altup_num_inputs": 4,
}  # fmt: skip


def make_file(
    folder: Path,
    kind: Type,
    metadata: Metadata | None = None,
    type_of: TypeOf | None = None,
    **own: Any,
) -> Path:
    source = make_checkpoint(LIKE, folder / "source", std=0.04 if own else None,
                             overrides=FAMILIES[LIKE] | own)  # fmt: skip
    return write_gguf(source, folder / "x.gguf", type_of or (lambda _: kind), metadata=metadata,
                      floats=folder / "floats", centred=kind == Type.Q4_K)  # fmt: skip


@pytest.mark.parametrize("kind", [Type.F32, Type.Q8_0, Type.Q4_K], ids=lambda kind: kind.name)
def test_tokens_are_those_of_transformers(tmp_path: Path, kind: Type) -> None:
    file = make_file(tmp_path, kind, **LARGE)
    prompt = PROMPT[:70]
    tokens, found = PagedModel(file, "float32", quantization="off").generate(prompt, 32, 24)
    expected = transformers_logits(tmp_path / "floats", [*prompt, *tokens[:-1]])[len(prompt) - 1 :]
    assert relative_error(found, expected) < 1e-4
    assert tokens == expected.argmax(-1).tolist()


@pytest.mark.parametrize(("kind", "name"), [(Type.Q8_0, "q8"), (Type.Q4_K, "q4")])
def test_codes_are_kept(tmp_path: Path, kind: Type, name: str) -> None:
    """What llama.cpp leaves in floats of 32 bits says nothing of others."""
    floats = ("altup_", "laurel_", "per_layer_model_proj")
    file = make_file(tmp_path, kind, **LARGE, type_of=lambda own: (
        Type.F32 if any(part in own for part in floats) else kind))  # fmt: skip
    found = inspect_model(file)
    assert found["loads"]
    assert found["weight_format"] == f"{name} with float16"
    model = PagedModel(file)
    assert np.isfinite(model.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")).all()


@pytest.mark.parametrize(
    "key",
    [
        "feed_forward_length",
        "altup.num_inputs",
        "altup.active_idx",
        "activation_sparsity_scale",
        "attention.shared_kv_layers",
        "attention.sliding_window",
        "embedding_length_per_layer_input",
        "rope.freq_base",
    ],
)
def test_a_key_whose_value_nothing_else_says_is_named(tmp_path: Path, key: str) -> None:
    path = make_file(tmp_path, Type.F32)
    name = f"gemma3n.{key}"
    stored = len(name).to_bytes(8, "little") + name.encode()
    content = path.read_bytes()
    assert content.count(stored) == 1
    path.write_bytes(content.replace(stored, stored[:-1] + b"_"))
    with pytest.raises(LoadError, match="is missing") as error:
        PagedModel(path)
    assert error.value.field == name


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("altup.num_inputs", 9, r"altup_num_inputs.*\[2, 8\]"),
        ("activation_sparsity_scale", [1.5] * 7, "activation_sparsity_deviations.*8 numbers"),
        ("activation_sparsity_scale", [1.5] * 7 + [2e3], r"8 numbers in \[-1000, 1000\]"),
        ("activation_sparsity_scale", [float("inf")] * 8, "an infinity, which cuts all"),
        ("activation_sparsity_scale", [float("nan")] * 8, "is not a finite number"),
        ("feed_forward_length", [160] * 7, "has 7 entries for 8 layers"),
        ("attention.shared_kv_layers", 8, r"num_kv_shared_layers.*\[0, 7\]"),
    ],
)
def test_values_that_do_not_fit_are_named(
    tmp_path: Path, key: str, value: Any, message: str
) -> None:
    path = make_file(tmp_path, Type.F32, metadata={f"gemma3n.{key}": value})
    with pytest.raises(LoadError, match=message):
        PagedModel(path)
