"""FP8 with activations of 16 bits, on the CPU and on GPUs: weights (bytes, logits, bits), and keys
and values."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paged_driver import PagedModel, PagedSequence, random_tokens, relative_error
from quantized_checkpoints import (
    FORMATS,
    WEIGHTS,
    load_file,
    quantize_checkpoint,
    write_folder,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

PROMPT = random_tokens(21, 512, seed=12)
SIZES = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32}
FLOAT8 = ["fp8-tensor", "compressed-float8-channel", "compressed-float8-block"]


def make_folders(tmp_path: Path, form: str, like: str = "tiny-llama") -> tuple[Path, Path]:
    """The folder in FP8, and the one with numpy's values of it."""
    overrides = {"moe_intermediate_size": 64} if "moe" in like else SIZES
    source = make_checkpoint(like, tmp_path / "source", overrides=overrides)
    quantized, floats = tmp_path / "quantized", tmp_path / "floats"
    quantize_checkpoint(source, quantized, floats, FORMATS[form])
    return quantized, floats


def load(path: Path, device: dict[str, Any], dtype: str, quantization: str = "") -> PagedModel:
    library = device.get("model_lib", "")
    return PagedModel(path, dtype, quantization=quantization, model_lib=library)


def logits(model: PagedModel) -> np.ndarray:
    """Of a prompt, and of tokens behind it that come one by one."""
    sequence = PagedSequence(PROMPT)
    rows = [model.forward([(sequence, len(PROMPT) - 2)], "all")]
    rows += [model.forward([(sequence, 1)]) for _ in range(2)]
    return np.concatenate(rows)


def typical_error(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.median([relative_error(a, b) for a, b in zip(got, expected, strict=True)]))


@pytest.fixture
def _without_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors with AVX512-BF16 round what they multiply FP8 weights with to bfloat16."""
    monkeypatch.setenv("MLC_NATIVE_ISA", "portable")


@pytest.mark.emulated
@pytest.mark.usefixtures("_without_rounding")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("form", FLOAT8)
def test_logits_are_those_of_the_values(
    tmp_path: Path, device: dict[str, Any], form: str, dtype: str
) -> None:
    """They differ from those in float32 no more than those of 16-bit weights do."""
    quantized, floats = make_folders(tmp_path, form)
    expected = logits(PagedModel(floats, "float32", quantization="off"))
    error = typical_error(logits(load(quantized, device, dtype)), expected)
    assert error < 1.5 * typical_error(logits(load(floats, device, dtype)), expected) + 1e-4
    assert error < (0.005 if dtype == "float16" else 0.04)


@pytest.mark.emulated
@pytest.mark.usefixtures("_without_rounding")
def test_experts_have_the_logits_of_the_values(tmp_path: Path, device: dict[str, Any]) -> None:
    """In most rows: a router whose scores are nearly equal chooses by the rounding of its input."""
    quantized, floats = make_folders(tmp_path, "compressed-float8-block", "tiny-qwen3_moe")
    expected = logits(PagedModel(floats, "float32", quantization="off"))
    assert typical_error(logits(load(quantized, device, "float16")), expected) < 0.005


@pytest.mark.emulated
def test_weights_take_a_byte(tmp_path: Path, device: dict[str, Any]) -> None:
    """And a float for 64 of them, instead of two bytes with "off"."""
    quantized, floats = make_folders(tmp_path, "compressed-float8-channel")
    matrices = sum(w.size for name, w in load_file(floats / WEIGHTS).items() if "_proj." in name)

    def weight_bytes(quantization: str) -> int:
        model = load(quantized, device, "bfloat16", quantization)
        return int(model.model.metadata["weight_bytes"])

    saved = weight_bytes("off") - weight_bytes("")
    assert saved == pytest.approx(matrices * (2 - 1 - 4 / 64), rel=0.02)


@pytest.mark.emulated
def test_rows_have_their_bits_in_every_batch(tmp_path: Path, device: dict[str, Any]) -> None:
    quantized, _ = make_folders(tmp_path, "compressed-float8-block")
    model = load(quantized, device, "bfloat16")
    prompts = [random_tokens(n, 512, seed=n) for n in (3, 9, 5)]
    alone = [model.forward([(PagedSequence(p), len(p))]) for p in prompts]
    together = model.forward([(PagedSequence(p), len(p)) for p in prompts])
    assert np.array_equal(together, np.concatenate(alone))


# ---- Keys and values ----


def scale_heads(source: Path, path: Path, factor: float) -> Path:
    """A folder with the same logits, from keys and values so many times as large."""
    factors = {"q_proj": 1 / factor, "k_proj": factor, "v_proj": factor, "o_proj": 1 / factor}
    tensors = load_file(source / WEIGHTS)
    for name, tensor in tensors.items():
        times = factors.get(name.split(".")[-2], 1)
        tensors[name] = (tensor * times).astype(tensor.dtype)
    write_folder(path, json.loads((source / "config.json").read_text()), tensors)
    return path


@pytest.mark.emulated
@pytest.mark.parametrize("factor", [2.0**12, 2.0**-12])
def test_keys_and_values_of_any_size_survive(
    tmp_path: Path, device: dict[str, Any], is_cpu: bool, factor: float
) -> None:
    """Each token and head has a scale, so 4,096 times as large ones, which E4M3 has not, are stored
    as the same codes. (The CPU has no FP8, but int8, with such scales.)"""
    source = make_checkpoint("tiny-llama", tmp_path / "source", overrides=SIZES)
    stored = "int8" if is_cpu else "float8"

    def of(folder: Path) -> np.ndarray:
        library = device.get("model_lib", "")
        return logits(PagedModel(folder, "bfloat16", kv_cache_dtype=stored, model_lib=library))

    want = of(source)
    assert typical_error(want, logits(PagedModel(source, "float32"))) < 0.2
    assert np.array_equal(of(scale_heads(source, tmp_path / "scaled", factor)), want)
