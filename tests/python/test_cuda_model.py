"""The predictions of bench/cuda/model.py."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "cuda"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import model
import model_machine
import model_sizes
import model_table
from model_shapes import SHAPES

ROOT = Path(__file__).resolve().parents[2]


def test_no_prediction_is_faster_than_the_machine() -> None:
    for shape in model_sizes.MODELS.values():
        for kernels in (model_machine.BEFORE, model_machine.NOW):
            predictor = model.Predictor(kernels)
            for rows in (1, 8, 64, 256):
                for keys in (1, 256, 8192):
                    assert predictor.decode(rows, keys, shape) > predictor.ideal(rows, keys, shape)
            assert predictor.prefill(8192, shape) > predictor.ideal_prefill(8192, shape)


def test_more_loads_in_flight_and_fewer_latencies_are_faster() -> None:
    shape = model_sizes.MODELS["0.6B"]
    for worse in ({"attention_loads": 1}, {"gemv_latencies": 2}, {"rope_latencies": 4}):
        good = model_machine.NOW
        if "attention_loads" in worse:
            good = model_machine.FIXED  # without DecodeWorker
        rows = 1 if "gemv_latencies" in worse else 64
        slower = model.Predictor(replace(good, **worse)).decode(rows, 1024, shape)
        assert slower > model.Predictor(good).decode(rows, 1024, shape)


def test_weights_of_the_shapes() -> None:
    shapes = model_sizes.KERNEL_SHAPES.items()
    assert {name: model_sizes.Model.of(SHAPES[key]) for key, name in shapes} == model_sizes.MODELS
    assert model_sizes.MODELS["0.6B"].weights == pytest.approx(0.6e9, rel=0.01)
    assert model_sizes.MODELS["8B"].weights == pytest.approx(7.5e9, rel=0.01)


def test_a_limit_that_was_measured_replaces_the_constant() -> None:
    half = {"bytes_per_s": model.Machine().bytes_per_s / 2, "operations_per_s": 790e12}
    shares = [
        model.predict_figure("decode 8b", "mlc_native bf16", "share", m) for m in (None, half)
    ]
    assert shares[0] is not None
    assert shares[1] is not None
    assert shares[0] < shares[1] < 1
    assert model.predict_figure("first token 0.6b", "mlc_native", "seconds") is None


def test_the_rows_of_the_benchmark_have_predictions() -> None:
    for name in (
        "gemv q4 llama-3.1-8b gate_up m=8",
        "gemv bf16 llama-3.1-8b head m=1",
        "decode_attention llama-3.1-8b rows=64 length=4096",
        "prefill_attention qwen3-0.6b length=1024",
        "decode_attention deepseek-v2-lite rows=64 length=4096",
        "decode_attention fp8 glm-4.7-flash rows=1 length=512",
        "prefill_attention deepseek-v2-lite length=8192",
        "add_norm 4096 rows=64",
        "activate 14336 rows=1",
        "short_convolution lfm2-1.2b rows=1",
        "mamba granite-4-h-tiny rows=64",
        "delta_rule qwen3-next rows=1",
    ):
        seconds = model.predict_kernel(name)
        assert seconds is not None
        assert 1e-6 < seconds < 1
    assert model.predict_kernel("copy") is None
    # A prompt goes through its states row by row, which is not predicted.
    assert model.predict_kernel("mamba granite-4-h-small length=2048") is None


def test_states_are_moved_at_the_speed_of_memory_where_there_are_many() -> None:
    for name, layer in model_sizes.STATE_SHAPES.items():
        one, many = (model.predict_kernel(f"{name} rows={rows}") for rows in (1, 256))
        least = 256 * 8 * layer.state / model.Machine().bytes_per_s
        assert one is not None
        assert many is not None
        assert least < many < 2 * least + one, name


def test_norms_are_in_products_where_that_is_faster() -> None:
    for shape in ("qwen3-0.6b", "llama-3.2-1b", "llama-3.1-8b"):
        hidden = model_sizes.MODELS[model_sizes.KERNEL_SHAPES[shape]].hidden
        for product in ("bf16 {} qkv", "bf16 {} gate_up", "q4 {} qkv", "q4 {} gate_up"):
            bits = model_sizes.BITS[product.split()[0]]
            if not model.has_norm_in_product(hidden, bits):
                continue  # measured, not predicted
            name = product.format(shape)
            separate = model.predict_kernel(f"norm separate {name}")
            fused = model.predict_kernel(f"norm fused {name}")
            assert separate is not None
            assert fused is not None
            assert fused < separate, name


def test_the_constants_are_those_of_the_kernels() -> None:
    folder = ROOT / "csrc/kernels/cuda"
    items = (folder / "decode_items.cuh").read_text()
    assert f"kMinSplit = {model_machine.NOW.min_split};" in items
    assert f"kMaxSplit = {model.MAX_SPLIT};" in items
    assert f"kTargetSplits = {model.SPLITS};" in items
    assert f"kShortRow = {model.SHORT_ROW};" in items
    assert model_machine.NOW.long_min_split == 2 * model_machine.NOW.min_split
    lanes = (folder / "decode_lanes.cuh").read_text()
    assert f"kUnroll = {model.KEYS_AT_ONCE};" in lanes
    assert f"kLanesThreads = {model.THREADS};" in lanes
    assert model_machine.FIXED.attention_loads == model.KEYS_AT_ONCE
    forward = (ROOT / "csrc/models/cuda/decoder_forward.cc").read_text()
    assert f"kNormInProduct = {model_machine.NORM_IN_PRODUCT};" in forward
    assert f"kNormInQuantizedProduct = {model_machine.NORM_IN_QUANTIZED_PRODUCT};" in forward
    warpgroups = (folder / "warpgroup_gemm.cu").read_text()
    for tile in model.WARPGROUP_TILES:
        assert f"{{  // {tile.weight_rows} and {tile.x_rows}\n" in warpgroups
        assert f"kLatency = {1e9 * tile.latency_s:.0f};" in warpgroups
        assert f"kWork = {1e9 * tile.work_s:.0f};" in warpgroups
    worker = (folder / "decode_sums.cuh").read_text()
    assert f"kWarps = {model.WORKER_WARPS};" in worker
    assert f"kBlocks = {model.WORKER_BLOCKS};" in worker
    assert f"kPages = kDim > 128 ? 1 : {model.WORKER_PAGES};" in worker


def test_the_committed_table_is_that_of_the_model() -> None:
    assert model_table.OUT.read_text() == model_table.table()
