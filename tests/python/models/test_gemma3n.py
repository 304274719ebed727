"""What folders of Gemma 3n may hold besides what transformers writes, and what is refused."""

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
from make_random_checkpoint import make_checkpoint

PROMPT = list(range(3, 103))
STRICT = EngineConfig(strict_weights=True)


def edit_config(path: Path, **fields: Any) -> None:
    """Set fields of a config.json, or leave them out where they are None."""
    config = json.loads((path / "config.json").read_text()) | fields
    left = {name: value for name, value in config.items() if value is not None}
    (path / "config.json").write_text(json.dumps(left))


def logits(path: Path, **options: Any) -> np.ndarray:
    return PagedModel(path, **options).generate(PROMPT, 64, 8)[1]


def test_the_text_of_a_model_that_sees_and_hears(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its vision tower is one of timm's in transformers; the text is stored as in Gemma 4."""
    path = make_checkpoint("tiny-gemma3n_text", tmp_path / "m")
    expected = logits(path)
    weights = {
        name.replace("model.", "model.language_model.", 1): tensor
        for name, tensor in load_file(path / "model.safetensors").items()
    }
    parts = ["vision_tower.timm_model.x.weight", "audio_tower.x.weight", "embed_vision.x.weight"]
    weights |= {f"model.{name}": torch.ones(2) for name in [*parts, "embed_audio.x.weight"]}
    save_file(weights, path / "model.safetensors")
    text = json.loads((path / "config.json").read_text())
    config = {"architectures": ["Gemma3nForConditionalGeneration"], "text_config": text}
    (path / "config.json").write_text(json.dumps(config))
    assert np.array_equal(logits(path), expected)
    MLCEngine(str(path), "cpu", engine_config=STRICT).terminate()
    (record,) = [r for r in caplog.records if r.levelname == "WARNING"]
    assert record.getMessage().endswith("does not use: 4 of parts that read no text")


@pytest.mark.parametrize("num_layers", [10, 12])
def test_fields_as_the_hub_has_them(tmp_path: Path, num_layers: int) -> None:
    """Bases of ropes outside; what is absent means what transformers takes it for."""
    absent = ["layer_types", "activation_sparsity_pattern", "altup_active_idx", "rope_parameters",
              "altup_correct_scale", "final_logit_softcapping"]  # fmt: skip
    overrides = {"num_hidden_layers": num_layers, "intermediate_size": 96, "sliding_window": 40}
    overrides |= {"num_kv_shared_layers": 5} | dict.fromkeys(absent[:2])
    overrides |= {"altup_active_idx": 0, "final_logit_softcapping": 30.0}
    overrides |= {"rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 5e5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
    }}  # fmt: skip
    path = make_checkpoint("tiny-gemma3n_text", tmp_path / "m", overrides=overrides)
    expected = transformers_logits(path, PROMPT)[-1]
    edit_config(path, **dict.fromkeys(absent), rope_theta=5e5, rope_local_base_freq=2e4)
    assert relative_error(logits(path)[0], expected) < 1e-4


def test_keys_and_values_of_layers_that_read_those_of_others_are_not_used(tmp_path: Path) -> None:
    """The released folders have them; transformers ignores them."""
    path = make_checkpoint("tiny-gemma3n_text", tmp_path / "m")
    expected = logits(path)
    weights = load_file(path / "model.safetensors")
    for layer in (5, 6, 7):
        for name in ("k_proj.weight", "v_proj.weight", "k_norm.weight"):
            weights[f"model.layers.{layer}.self_attn.{name}"] = torch.ones(3)
    save_file(weights, path / "model.safetensors")
    assert np.array_equal(logits(path), expected)
    MLCEngine(str(path), "cpu", engine_config=STRICT).terminate()


def test_rows_that_are_not_wanted_leave_before_the_layers_that_share_keys(tmp_path: Path) -> None:
    """Logits and states of some rows are those that all rows have, also of two sequences."""
    model = PagedModel(make_checkpoint("tiny-gemma3n_text", tmp_path / "m")).model
    num_layers = model.metadata["num_layers"]
    batch = [(PROMPT[:60], 0, [7, 3, 11, 2]), (PROMPT[60:], 0, [5, 1, 9])]
    everything = model.forward(batch, "all")
    assert np.array_equal(model.forward(batch, "last"), everything[[59, 99]])
    streams = list(range(num_layers + 2))
    _, states = model.forward_states(batch, streams, rows=list(range(100)))
    hidden = model.metadata["hidden_size"]
    rows = [0, 17, 18, 58, 60, 61, 98]
    for stream in streams:
        some_logits, some = model.forward_states(batch, [stream], rows=rows)
        assert np.array_equal(some, states[rows, stream * hidden : (stream + 1) * hidden]), stream
        assert np.array_equal(some_logits, everything[[59, 99]])


@pytest.mark.parametrize(("quantization", "most"), [("q8", 4), ("q6", 11), ("q4", 20)])
def test_quantization_on_load(tmp_path: Path, quantization: str, most: float) -> None:
    """Also of LAuReL and of the projections of streams, with the errors of Gemma 4 beside bfloat16.

    What mixes the streams of a random checkpoint makes all errors about three times as large.
    """
    path = make_checkpoint("tiny-gemma3n_text", tmp_path / "m")
    work = [PagedSequence(list(PROMPT)) for _ in range(3)]
    exact = PagedModel(path).forward([(work[0], 100)], "all")
    rounded = PagedModel(path, dtype="bfloat16").forward([(work[1], 100)], "all")
    ours = PagedModel(path, quantization=quantization).forward([(work[2], 100)], "all")
    assert 0 < np.linalg.norm(ours - exact) < most * np.linalg.norm(rounded - exact)


def test_inspect_shows_the_streams(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-gemma3n_text", tmp_path / "m")
    found = inspect_model(path)["decoder"]
    assert found.items() >= {
        "residual_streams": 3, "layers_that_share_keys": 3, "layer_input_size": 16,
    }.items()  # fmt: skip
    other = inspect_model(make_checkpoint("tiny-gemma4_text", tmp_path / "o"))["decoder"]
    assert "residual_streams" not in other


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"altup_num_inputs": 1}, r"altup_num_inputs.*\[2, 8\]"),
        ({"altup_num_inputs": 9}, r"altup_num_inputs.*\[2, 8\]"),
        ({"altup_active_idx": 3}, r"altup_active_idx.*\[0, 2\]"),
        ({"activation_sparsity_pattern": [0.5] * 7}, r"sparsity_pattern.*8 numbers in \[0, 1\)"),
        ({"activation_sparsity_pattern": [1.0] * 8}, r"sparsity_pattern.*8 numbers in \[0, 1\)"),
        ({"activation_sparsity_pattern": [1 - 1e-12] * 8}, "sparsity_pattern.*numbers in"),
        ({"activation_sparsity_pattern": [-0.1] * 8}, r"sparsity_pattern.*8 numbers in \[0, 1\)"),
        ({"activation_sparsity_pattern": 0.5}, "sparsity_pattern.*a list of numbers"),
        ({"intermediate_size": [96] * 7}, "intermediate_size.*an integer, or a list"),
        ({"intermediate_size": [96] * 7 + [0]}, "intermediate_size.*an integer, or a list"),
        ({"intermediate_size": []}, "intermediate_size"),
        ({"num_kv_shared_layers": None}, r"num_kv_shared_layers.*given, in \[0, 7\]"),
        ({"num_kv_shared_layers": 7}, "leaves no layer of one of the"),
        ({"laurel_rank": 0}, "laurel_rank"),
        ({"hidden_size_per_layer_input": 0}, "hidden_size_per_layer_input.*at least 1"),
    ],
)
def test_what_is_refused(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    path = make_checkpoint("tiny-gemma3n_text", tmp_path / "m")
    edit_config(path, **fields)
    with pytest.raises(LoadError, match=message):
        PagedModel(path)


def test_cuda_has_the_logits_and_tokens_of_transformers(tmp_path: Path) -> None:
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    path = make_checkpoint("tiny-gemma3n_text", tmp_path / "m")
    model = PagedModel(path, dtype="float32", model_lib=library)
    tokens, ours = model.generate(PROMPT, 64, 8)
    every_row = transformers_logits(path, PROMPT + tokens[:-1])
    reference = every_row[len(PROMPT) - 1 :]
    assert relative_error(ours, reference) < 1e-4
    assert tokens == reference.argmax(-1).tolist()
    work = [(PagedSequence(list(PROMPT)), len(PROMPT))]
    on_cpu = PagedModel(path, dtype="bfloat16").forward(work, "all")
    work = [(PagedSequence(list(PROMPT)), len(PROMPT))]
    ours = PagedModel(path, dtype="bfloat16", model_lib=library).forward(work, "all")
    exact = every_row[: len(PROMPT)]
    assert np.linalg.norm(ours - exact) < 2 * np.linalg.norm(on_cpu - exact)
