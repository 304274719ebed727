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
from paged_driver import PagedModel, PagedSequence, relative_error, transformers_logits
from safetensors.torch import load_file, save_file

from mlc_native import EngineConfig, MLCEngine, inspect_model
from mlc_native._core import LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from dense_shapes import GEMMA4_INPUTS
from make_random_checkpoint import make_checkpoint

PROMPT = list(range(3, 103))
ALL_ALIKE = {"global_head_dim": 24, "num_global_key_value_heads": 2, "attention_k_eq_v": False}


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


@pytest.mark.parametrize(
    ("like", "overrides"),
    [
        # One KV head, and what each layer has of its own together.
        ("tiny-gemma4_text", ALL_ALIKE | {"num_key_value_heads": 1, "attention_bias": True}),
        ("tiny-gemma4_text", {"tie_word_embeddings": False, "attention_k_eq_v": False}),
        ("tiny-gemma4_text", {"num_hidden_layers": 11, "layer_types": None}),
        (
            "tiny-gemma4_text-experts",
            {
                "hidden_size_per_layer_input": 12,
                "vocab_size_per_layer_input": 512,
                "num_kv_shared_layers": 2,
                "top_k_experts": 1,
                "num_experts": 1,
                "attention_k_eq_v": False,
                "layer_types": ["sliding_attention", "full_attention"] * 2 + ["full_attention"],
            },
        ),
    ],
)
def test_other_combinations(tmp_path: Path, like: str, overrides: dict[str, Any]) -> None:
    path = make_checkpoint(like, tmp_path / "m", overrides=overrides)
    tokens, ours = PagedModel(path).generate(PROMPT, 64, 8)
    reference = transformers_logits(path, PROMPT + tokens[:-1])[len(PROMPT) - 1 :]
    assert relative_error(ours, reference) < 1e-4
    assert tokens == reference.argmax(-1).tolist()


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


def test_inspect_shows_what_layers_have_of_their_own(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-gemma4", tmp_path / "m")
    found = inspect_model(path)
    assert found["decoder"].items() >= {
        "num_kv_heads": 2, "head_dim": 24, "num_kv_heads_without_window": 2,
        "head_dim_without_window": 32, "layers_that_share_keys": 3, "layer_input_size": 20,
    }.items()  # fmt: skip
    # Three layers with a window and one without have keys and values. Heads of 24 take 32.
    assert found["kv_bytes_per_token"] == 2 * 4 * (3 * 2 * 32 + 2 * 32)
    text = inspect_model(make_checkpoint("tiny-gemma4_text", tmp_path / "t"))["decoder"]
    assert text["num_kv_heads_without_window"] == 1
    assert not {"layers_that_share_keys", "layer_input_size"} & text.keys()


def test_rows_that_are_not_wanted_leave_before_the_layers_that_share_keys(tmp_path: Path) -> None:
    """Logits and states of some rows are those that all rows have, also of two sequences."""
    model = PagedModel(make_checkpoint("tiny-gemma4", tmp_path / "m")).model
    num_layers = model.metadata["num_layers"]
    batch = [(PROMPT[:60], 0, [7, 3, 11, 2]), (PROMPT[60:], 0, [5, 1, 9])]
    everything = model.forward(batch, "all")
    assert np.array_equal(model.forward(batch, "last"), everything[[59, 99]])
    streams = list(range(num_layers + 2))
    _, states = model.forward_states(batch, streams, rows=list(range(100)))
    hidden = model.metadata["hidden_size"]
    rows = [0, 17, 18, 58, 60, 61, 98]
    for stream in streams:
        logits, some = model.forward_states(batch, [stream], rows=rows)
        assert np.array_equal(some, states[rows, stream * hidden : (stream + 1) * hidden]), stream
        assert np.array_equal(logits, everything[[59, 99]])


# ---- On CUDA ----

RELEASED_HEADS = {"head_dim": 256, "global_head_dim": 512}
# Sizes on devices are multiples of 8.
INPUTS = {"text_config": GEMMA4_INPUTS | {"hidden_size_per_layer_input": 24}}


def emulated(path: Path, **options: Any) -> PagedModel:
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    return PagedModel(path, model_lib=library, **options)


@pytest.mark.parametrize(
    ("like", "overrides"),
    [
        ("tiny-gemma4_text", {}),
        ("tiny-gemma4_unified_text", {}),
        ("tiny-gemma4", INPUTS),
        ("tiny-gemma4_text-experts", {}),
    ],
)
def test_cuda_has_the_logits_and_tokens_of_transformers(
    tmp_path: Path, like: str, overrides: dict[str, Any]
) -> None:
    path = make_checkpoint(like, tmp_path / "m", overrides=overrides)
    tokens, ours = emulated(path, dtype="float32").generate(PROMPT, 64, 8)
    every_row = transformers_logits(path, PROMPT + tokens[:-1])
    reference = every_row[len(PROMPT) - 1 :]
    assert relative_error(ours, reference) < 1e-4
    assert tokens == reference.argmax(-1).tolist()
    # In transformers, too, some rows have other experts in 16 bits.
    work = [(PagedSequence(list(PROMPT)), len(PROMPT))]
    ours = emulated(path, dtype="bfloat16").forward(work, "all")
    errors = [relative_error(row, wanted) for row, wanted in zip(ours, every_row, strict=False)]
    assert np.median(errors) < 0.05


def test_cuda_has_heads_of_the_released_sizes(tmp_path: Path) -> None:
    path = make_checkpoint(
        "tiny-gemma4_text", tmp_path / "m", overrides=RELEASED_HEADS | {"num_hidden_layers": 3,
                                                                         "layer_types": None}
    )  # fmt: skip
    prompt = PROMPT[:50]
    tokens, ours = emulated(path, dtype="float32").generate(prompt, 32, 4)
    reference = transformers_logits(path, prompt + tokens[:-1])[len(prompt) - 1 :]
    assert relative_error(ours, reference) < 1e-4
    assert tokens == reference.argmax(-1).tolist()
    _, ours = emulated(path, dtype="bfloat16").generate(prompt, 32, 1)
    assert relative_error(ours, reference[:1]) < 0.1


@pytest.mark.parametrize(
    ("overrides", "missing"),
    [
        ({"head_dim": 264}, "windows of attention with heads of 264 elements are not supported"),
        ({"head_dim": 20}, "head_dim.*multiple of 8"),
        ({"global_head_dim": 520}, "global_head_dim.*at most 512"),
    ],
)
def test_cuda_refuses_what_it_lacks(
    tmp_path: Path, overrides: dict[str, Any], missing: str
) -> None:
    path = make_checkpoint("tiny-gemma4_text", tmp_path / "m", overrides=overrides)
    with pytest.raises(LoadError, match=missing):
        emulated(path)
