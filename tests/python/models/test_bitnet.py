"""BitNet: folders with ternary matrices in 2 bits, kept in 2.25 bits or widened."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_model import find_test_library
from paged_driver import PagedModel, PagedSequence, random_tokens, relative_error
from quantized_checkpoints import (
    WEIGHTS,
    Format,
    Tensors,
    from_bfloat16,
    load_file,
    quantize_checkpoint,
    save_file,
    to_bfloat16,
)
from transformers import AutoModelForCausalLM, BitNetForCausalLM
from transformers.integrations.bitnet import AutoBitLinear, pack_weights

from mlc_native import inspect_model
from mlc_native._core import LoadError, testing

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

PROMPT = random_tokens(100, 512, seed=11)
SIZES = {"hidden_size": 128, "intermediate_size": 320}
BASE = "model.layers.1.mlp.down_proj"
DIVIDES = {"quant_method": "bitnet"}  # the class of linears of the first checkpoints
MULTIPLIES = {"quant_method": "bitnet", "linear_class": "autobitlinear",
              "quantization_mode": "offline", "modules_to_not_convert": None}  # fmt: skip


def write(f: Format, base: str, weight: np.ndarray, rng: np.random.Generator) -> Tensors:
    """The signs of what is not small, packed by transformers."""
    del rng
    scale = np.abs(weight).mean()
    numbers = np.clip(np.rint(weight / scale), -1, 1)
    stored = 1 / scale if f.config == DIVIDES else scale
    return {
        f"{base}.weight": pack_weights(torch.from_numpy(numbers)).numpy(),
        f"{base}.weight_scale": to_bfloat16(np.array([stored])),
    }


def read(f: Format, base: str, t: Tensors) -> np.ndarray:
    packed = t[f"{base}.weight"]
    numbers = np.concatenate([packed >> 2 * i & 3 for i in range(4)]).astype(np.float32) - 1
    scale = from_bfloat16(t[f"{base}.weight_scale"])
    return numbers * (np.float32(1) / scale if f.config == DIVIDES else scale)


FORMS = {"multiplies": Format(write, read, MULTIPLIES), "divides": Format(write, read, DIVIDES)}


def make(tmp_path: Path, like: str, form: str = "multiplies", **sizes: Any) -> tuple[Path, Path]:
    """The folder with bytes, and the one with the float values of the same weights."""
    source = make_checkpoint(like, tmp_path / "source", overrides=sizes)
    quantize_checkpoint(source, tmp_path / "packed", tmp_path / "floats", FORMS[form])
    return tmp_path / "packed", tmp_path / "floats"


def logits(path: Path, dtype: str = "float32", **options: Any) -> np.ndarray:
    model = PagedModel(path, dtype, **options)
    return model.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")


@pytest.mark.parametrize("like", ["tiny-bitnet", "tiny-llama", "tiny-qwen2"])
@pytest.mark.parametrize("form", FORMS)
def test_widened_values_are_those_of_the_folder(tmp_path: Path, like: str, form: str) -> None:
    packed, floats = make(tmp_path, like, form)
    for name, weight in load_file(floats / WEIGHTS).items():
        if "_proj.weight" in name:
            assert np.array_equal(testing.read_weight(str(packed), name, *weight.shape), weight)
            assert len(np.unique(weight)) == 3
    assert np.array_equal(logits(packed, quantization="off"), logits(floats, quantization="off"))


def test_older_name_of_the_architecture(tmp_path: Path) -> None:
    packed, _ = make(tmp_path, "tiny-bitnet")
    expected = logits(packed)
    config = json.loads((packed / "config.json").read_text())
    config["architectures"] = ["BitnetForCausalLM"]
    (packed / "config.json").write_text(json.dumps(config))
    assert np.array_equal(logits(packed), expected)


@pytest.mark.parametrize("form", FORMS)
def test_matrices_run_in_two_bits(tmp_path: Path, form: str) -> None:
    """With a scale for 64 columns; what differs is that inputs are rounded to 8 bits."""
    packed, floats = make(tmp_path, "tiny-bitnet", form, **SIZES)
    assert inspect_model(packed)["weight_format"] == "q2 with float32"
    model = PagedModel(packed, "float32")
    wide = PagedModel(packed, "float32", quantization="off")
    matrices = sum(w.size for name, w in load_file(floats / WEIGHTS).items() if "_proj" in name)
    sizes = [m.model.metadata["weight_bytes"] for m in (model, wide)]
    assert sizes[1] - sizes[0] == pytest.approx(matrices * (32 - 2.25) / 8, rel=0.01)
    expected = logits(floats, quantization="off")
    assert 1e-6 < relative_error(logits(packed), expected) < 0.1


def test_rounded_inputs_are_as_near_as_those_of_transformers(tmp_path: Path) -> None:
    """Which have one scale in a row."""
    packed, floats = make(tmp_path, "tiny-bitnet", **SIZES)
    exact = AutoModelForCausalLM.from_pretrained(floats)
    rounded = BitNetForCausalLM.from_pretrained(floats)
    for name, module in list(rounded.named_modules()):
        if name.endswith("_proj"):
            linear = AutoBitLinear(module.in_features, module.out_features, bias=False)
            linear.weight = module.weight
            linear.weight_scale = torch.ones(1)
            rounded.set_submodule(name, linear)
    with torch.no_grad():
        ids = torch.tensor([PROMPT])
        expected, theirs = (m(ids).logits[0].numpy() for m in (exact, rounded))
    assert relative_error(logits(floats, quantization="off"), expected) < 1e-4
    error = relative_error(theirs, expected)
    assert error > 1e-4
    assert relative_error(logits(packed), expected) < error


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_on_a_gpu(tmp_path: Path, dtype: str) -> None:
    """Where matrices take 4 bits with 16-bit floats."""
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    packed, floats = make(tmp_path, "tiny-bitnet", **SIZES)
    expected = logits(floats, quantization="off")
    most = 1e-4 if dtype == "float32" else 0.05
    assert relative_error(logits(packed, dtype, model_lib=library), expected) < most


# ---- Errors ----


def refusal(path: Path) -> str:
    with pytest.raises(LoadError) as error:
        testing.TestModel(str(path))
    return str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"quantization_mode": "online"}, '"quantization_mode" = "online" is not supported'),
        ({"linear_class": "linear"}, '"linear_class" = "linear" is not supported'),
        ({"use_rms_norm": True}, '"use_rms_norm" = true is not supported'),
    ],
)
def test_config_that_is_not_supported(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    packed, _ = make(tmp_path, "tiny-bitnet")
    config = json.loads((packed / "config.json").read_text())
    config["quantization_config"] |= fields
    (packed / "config.json").write_text(json.dumps(config))
    assert message in refusal(packed)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("weight_scale", np.array([np.nan], np.float32), "must be a finite number other than 0"),
        ("weight_scale", np.zeros(1, np.float32), "must be a finite number other than 0"),
        ("weight_scale", np.ones(2, np.float32), "shape [2]"),
        ("weight", np.zeros((15, 160), np.uint8), "shape [15, 160]"),
        ("weight", None, "lacks"),
        ("weight_scale", None, "lacks"),
    ],
)
def test_wrong_part(tmp_path: Path, part: str, value: np.ndarray | None, message: str) -> None:
    packed, _ = make(tmp_path, "tiny-bitnet")
    tensors = load_file(packed / WEIGHTS)
    name = f"{BASE}.{part}"
    if value is None:
        tensors.pop(name)
    else:
        tensors[name] = value
    save_file(tensors, packed / WEIGHTS)
    text = refusal(packed)
    assert message in text
    assert BASE in text


def test_rows_that_fill_no_byte(tmp_path: Path) -> None:
    packed, _ = make(tmp_path, "tiny-bitnet")
    config = json.loads((packed / "config.json").read_text()) | {"intermediate_size": 158}
    (packed / "config.json").write_text(json.dumps(config))
    assert "158 rows are not a multiple of 4" in refusal(packed)


def test_scales_beyond_float16_become_floats(tmp_path: Path) -> None:
    packed, _ = make(tmp_path, "tiny-bitnet", **SIZES)
    tensors = load_file(packed / WEIGHTS)
    for name in tensors:
        if name.endswith("weight_scale"):
            tensors[name] = np.array([1e-6], np.float32)
    save_file(tensors, packed / WEIGHTS)
    assert np.array_equal(logits(packed), logits(packed, quantization="off"))
