"""What folders of Gemma 4 may hold besides what transformers writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_model import find_test_library
from paged_driver import PagedModel
from safetensors.torch import load_file, save_file

from mlc_native import EngineConfig, MLCEngine
from mlc_native._core import LoadError, testing

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

PROMPT = list(range(3, 103))


def edit_config(path: Path, **fields: Any) -> None:
    """Set fields of a config.json, or leave them out where they are None."""
    config = json.loads((path / "config.json").read_text())
    config |= fields
    left = {name: value for name, value in config.items() if value is not None}
    (path / "config.json").write_text(json.dumps(left))


def logits(path: Path) -> np.ndarray:
    return PagedModel(path).generate(PROMPT, 64, 8)[1]


def test_sizes_of_layers_as_the_hub_has_them(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-gemma4_text", tmp_path / "m")
    expected = logits(path)
    edit_config(path, per_layer_config=None, global_head_dim=32, num_global_key_value_heads=1)
    assert np.array_equal(logits(path), expected)


def test_keys_and_values_of_layers_that_read_those_of_others_are_not_used(tmp_path: Path) -> None:
    """The released folders have them; transformers ignores them."""
    path = make_checkpoint("tiny-gemma4_unified_text", tmp_path / "m")
    expected = logits(path)
    weights = load_file(path / "model.safetensors")
    for layer in (4, 5, 6):
        for name in ("k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias",
                     "k_norm.weight"):  # fmt: skip
            weights[f"model.layers.{layer}.self_attn.{name}"] = torch.ones(3)
    save_file(weights, path / "model.safetensors")
    assert np.array_equal(logits(path), expected)
    MLCEngine(str(path), "cpu", engine_config=EngineConfig(strict_weights=True)).terminate()
    weights["model.layers.3.self_attn.extra.weight"] = torch.ones(3)
    save_file(weights, path / "model.safetensors")
    with pytest.raises(LoadError, match=r"does not use: model.layers.3.self_attn.extra.weight"):
        MLCEngine(str(path), "cpu", engine_config=EngineConfig(strict_weights=True))


def test_cuda_refuses_layers_that_differ(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-gemma4_text", tmp_path / "m")
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    with pytest.raises(LoadError, match="layers that differ in the sizes .* on CUDA"):
        testing.TestModel(str(path), "float32", model_lib=library)
