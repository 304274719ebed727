"""GPTQ, AWQ, compressed-tensors, FP8 and NVFP4 checkpoints: values, logits, and what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_model import find_test_library
from families import FAMILIES
from paged_driver import (
    PagedModel,
    PagedSequence,
    random_tokens,
    relative_error,
    transformers_logits,
)
from quantized_checkpoints import (
    FORMATS,
    WEIGHTS,
    Format,
    Tensors,
    compressed_config,
    compressed_floats,
    gptq_config,
    load_file,
    quantize_checkpoint,
    write_folder,
)
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

from mlc_native import inspect_model
from mlc_native._core import LoadError, testing

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

PROMPT = random_tokens(150, 512, seed=11)  # longer than every window
BASE = "model.layers.1.mlp.down_proj"


def logits(path: Path, dtype: str = "float32") -> np.ndarray:
    model = PagedModel(path, dtype, quantization="off")
    return model.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")


def make_quantized(tmp_path: Path, like: str, form: str, **overrides: Any) -> tuple[Path, Path]:
    """The quantized folder, and the one with the float values of the same weights."""
    source = make_checkpoint(like, tmp_path / "source", overrides=overrides)
    quantized, floats = tmp_path / "quantized", tmp_path / "floats"
    quantize_checkpoint(source, quantized, floats, FORMATS[form])
    return quantized, floats


@pytest.mark.parametrize("form", FORMATS)
def test_every_weight_is_the_reference_bit_for_bit(tmp_path: Path, form: str) -> None:
    quantized, floats = make_quantized(tmp_path, "tiny-llama", form)
    expected = load_file(floats / WEIGHTS)
    original = load_file(tmp_path / "source" / WEIGHTS)
    changed = 0
    for name, weight in expected.items():
        if weight.ndim < 2:
            continue
        assert np.array_equal(testing.read_weight(str(quantized), name, *weight.shape), weight)
        changed += not np.array_equal(weight, original[name])
        # The quantizer of the tests is a sane one, so the values are near those it was given.
        error = np.abs(weight - original[name]).max() / np.abs(original[name]).max()
        assert error < (0.2 if FORMATS[form].bits > 2 else 0.4)
    assert changed == 3 * 7


@pytest.mark.parametrize("form", FORMATS)
def test_logits_are_those_of_the_float_checkpoint(tmp_path: Path, form: str) -> None:
    """Same values, same bits, whatever form they were stored in; and in 16 bits rounded once."""
    quantized, floats = make_quantized(tmp_path, "tiny-qwen2", form)
    assert np.array_equal(logits(quantized), logits(floats))
    assert np.array_equal(logits(quantized, "float16"), logits(floats, "float16"))


@pytest.mark.parametrize(
    "form", ["gptq-4-sym-act-order", "awq", "compressed-int4-group-asym", "compressed-int8-channel"]
)
@pytest.mark.parametrize("like", FAMILIES)
def test_logits_are_transformers(tmp_path: Path, like: str, form: str) -> None:
    quantized, floats = make_quantized(tmp_path, like, form)
    assert relative_error(logits(quantized), transformers_logits(floats, PROMPT)) < 1e-4


@pytest.mark.parametrize("form", ["gptq-4", "awq", "compressed-int4-group"])
def test_group_of_128(tmp_path: Path, form: str) -> None:
    quantized, _ = make_quantized(tmp_path, "tiny-llama", form, hidden_size=256, head_dim=64)
    # The last group of down_proj's 160 columns is a short one for compressed-tensors alone.
    base = "model.layers.0.self_attn.q_proj"
    shape = FORMATS[form]
    wide = type(shape)(**{**vars(shape), "group_size": 128})
    weight = load_file(tmp_path / "source" / WEIGHTS)[f"{base}.weight"]
    parts = wide.write(wide, base, weight, np.random.default_rng(0))
    config = json.loads((quantized / "config.json").read_text())
    text = json.dumps(config).replace('"group_size": 32', '"group_size": 128')
    write_folder(quantized, json.loads(text), parts)
    ours = testing.read_weight(str(quantized), f"{base}.weight", *weight.shape)
    assert np.array_equal(ours, wide.read(wide, base, parts))


def test_zero_biases_of_old_quantizers_are_ignored(tmp_path: Path) -> None:
    quantized, floats = make_quantized(tmp_path, "tiny-llama", "gptq-4")
    edit_tensors(quantized, lambda t: t.update({f"{BASE}.bias": np.zeros(64, np.float16)}))
    assert np.array_equal(logits(quantized), logits(floats))
    edit_tensors(quantized, lambda t: t.update({f"{BASE}.bias": np.ones(64, np.float16)}))
    load_error(quantized, f"{BASE}.bias", "does not use")


def test_older_name_of_the_configuration(tmp_path: Path) -> None:
    quantized, floats = make_quantized(tmp_path, "tiny-llama", "compressed-int4-group-asym")
    config = json.loads((quantized / "config.json").read_text())
    config["compression_config"] = config.pop("quantization_config")
    (quantized / "config.json").write_text(json.dumps(config))
    assert np.array_equal(logits(quantized), logits(floats))


@pytest.mark.parametrize(
    ("form", "older"), [("gptq-4-v2-whole-row", "checkpoint_format"), ("awq-gemv", "version")]
)
def test_newer_name_of_the_layout(tmp_path: Path, form: str, older: str) -> None:
    """transformers 5 also reads it from "format", which counts where the older name is absent."""
    quantized, floats = make_quantized(tmp_path, "tiny-llama", form)
    fields = json.loads((quantized / "config.json").read_text())
    config = fields["quantization_config"]
    config["format"] = config.pop(older)
    (quantized / "config.json").write_text(json.dumps(fields))
    assert np.array_equal(logits(quantized), logits(floats))
    config |= {older: config["format"], "format": "gptq" if older != "version" else "gemm"}
    (quantized / "config.json").write_text(json.dumps(fields))
    assert np.array_equal(logits(quantized), logits(floats))


def test_quantized_head(tmp_path: Path) -> None:
    quantized, floats = make_quantized(tmp_path, "tiny-llama", "gptq-4")
    form = FORMATS["gptq-4"]
    head = load_file(floats / WEIGHTS)["lm_head.weight"]
    parts = form.write(form, "lm_head", head, np.random.default_rng(1))
    edit_tensors(quantized, lambda t: (t.pop("lm_head.weight"), t.update(parts)))
    edit_tensors(floats, lambda t: t.update({"lm_head.weight": form.read(form, "lm_head", parts)}))
    assert np.array_equal(logits(quantized), logits(floats))


def read_one(folder: Path, parts: Tensors, shape: tuple[int, ...], form: str) -> np.ndarray:
    """The matrix "x.weight" of a folder with these tensors."""
    config = json.loads((folder / "config.json").read_text())
    write_folder(folder, config | {"quantization_config": FORMATS[form].config}, parts)
    return testing.read_weight(str(folder), "x.weight", *shape)


def test_float8_is_what_transformers_makes_of_it(tmp_path: Path) -> None:
    """All 256 bytes, in blocks with scales of every size."""
    source = make_checkpoint("tiny-llama", tmp_path / "source")
    codes = np.arange(64 * 96).reshape(64, 96).astype(np.uint8)
    scale = np.exp2(np.linspace(-100, 90, 4)).astype(np.float32).reshape(2, 2) * np.float32(1.7)
    parts = {"x.weight": codes.view("V1"), "x.weight_scale_inv": scale}
    ours = read_one(source, parts, codes.shape, "fp8-block")
    theirs = Fp8Dequantize(None)._dequantize_one(
        torch.from_numpy(codes).view(torch.float8_e4m3fn), torch.from_numpy(scale), torch.float32
    )
    assert np.array_equal(ours, theirs.numpy(), equal_nan=True)


# ---- Kept as integers ----

# Bits of the kernels' format that holds the integers of the checkpoint as they are; None: floats.
KEPT = {
    "gptq-2": 4,
    "gptq-3-sym": 4,
    "awq-gemv": 6,
    "gptq-4": 6,  # zero points
    "gptq-4-sym": 4,
    "gptq-4-sym-act-order": None,  # groups are not neighbours
    "gptq-4-v2-whole-row": 6,
    "gptq-8-act-order": None,
    "awq": 6,
    "awq-whole-row": 6,
    "compressed-int4-group": 4,
    "compressed-int4-group-asym": 6,
    "compressed-int4-act-order": None,
    "compressed-int8-channel": 8,
    "compressed-int8-channel-asym": None,  # differences of 8 bits need 9
    "fp8-block": None,
    "compressed-nvfp4": 4.5,  # a scale for 16
    "modelopt-nvfp4": 4.5,
}
GROUP_OF_128 = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 64}  # steps of products
GROUP_OF_64 = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32}


def widened(form: str) -> Format:
    """With groups that both formats of the kernels can hold."""
    shape = FORMATS[form]
    if shape.group_size in (-1, 64):
        return shape
    text = json.dumps(shape.config).replace(f'"group_size": {shape.group_size}', '"group_size": 64')
    return replace(shape, group_size=64, config=json.loads(text))


def weight_bytes(path: Path, quantization: str, dtype: str = "float16") -> int:
    return PagedModel(path, dtype, quantization=quantization).model.metadata["weight_bytes"]


@pytest.mark.parametrize("form", KEPT)
def test_checkpoints_run_in_the_bits_they_are_stored_in(tmp_path: Path, form: str) -> None:
    """The values are those of the float checkpoint; what differs is that activations are rounded to
    8 bits, which attention over random keys amplifies."""
    source = make_checkpoint("tiny-llama", tmp_path / "source", overrides=GROUP_OF_64)
    quantized, floats = tmp_path / "quantized", tmp_path / "floats"
    quantize_checkpoint(source, quantized, floats, widened(form))
    ours = PagedModel(quantized, "float32")
    got = ours.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")
    expected = logits(floats)
    if KEPT[form] is None:
        assert np.array_equal(got, expected)
        return
    assert 1e-6 < relative_error(got, expected) < 0.17
    size = ours.model.metadata["weight_bytes"]
    off, q8, q4 = (weight_bytes(quantized, q, "float32") for q in ("off", "q8", "q4"))
    # Embeddings and head are floats here, and 8 bits in the others.
    matrices = sum(w.size for name, w in load_file(floats / WEIGHTS).items() if "_proj" in name)
    saved = 4 - (KEPT[form] + 16 / 32) / 8
    assert off - size == pytest.approx(matrices * saved, rel=0.02)
    assert q4 <= q8 < size


@pytest.mark.parametrize("form", ["gptq-4-sym", "compressed-int4-group", "compressed-int8-channel"])
def test_codes_are_kept_exactly(tmp_path: Path, form: str) -> None:
    """A head of integers is the embeddings, too, and a row of it is looked up without rounding."""
    shape = widened(form)
    source = make_checkpoint(
        "tiny-llama", tmp_path / "source", overrides=GROUP_OF_64 | {"tie_word_embeddings": True}
    )
    tensors = load_file(source / WEIGHTS)
    base = "model.embed_tokens"
    parts = shape.write(shape, base, tensors.pop(f"{base}.weight"), np.random.default_rng(1))
    config = json.loads((source / "config.json").read_text())
    write_folder(tmp_path / "ours", config | {"quantization_config": shape.config}, tensors | parts)
    value = {f"{base}.weight": shape.read(shape, base, parts)}
    write_folder(tmp_path / "floats", config, tensors | value)
    got = PagedModel(tmp_path / "ours", "float32")
    first = got.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")
    # The layers are floats on both sides: only the head's activations are rounded.
    assert 1e-6 < relative_error(first, logits(tmp_path / "floats")) < 0.02
    asked = PagedModel(tmp_path / "ours", "float32", quantization="q8")
    # Asked for 8 bits, a matrix of 4 keeps them.
    assert asked.model.metadata["weight_bytes"] < got.model.metadata["weight_bytes"]


FLOAT8 = ["fp8-tensor", "modelopt-fp8", "compressed-float8-channel", "compressed-float8-block"]


@pytest.mark.parametrize("like", ["tiny-llama", "tiny-qwen3_moe"])
@pytest.mark.parametrize("form", FLOAT8)
def test_float8_stays_float8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, like: str
) -> None:
    """A byte for each weight and a float for 64. Where no inputs are rounded, as they are on ISAs
    with a dot product of bfloat16, only sums are."""
    monkeypatch.setenv("MLC_NATIVE_ISA", "portable")
    overrides = {"moe_intermediate_size": 64} if "moe" in like else GROUP_OF_64
    source = make_checkpoint(like, tmp_path / "source", overrides=overrides)
    quantized, floats = tmp_path / "quantized", tmp_path / "floats"
    quantize_checkpoint(source, quantized, floats, FORMATS[form])
    ours = PagedModel(quantized, "float32")
    got = ours.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")
    assert relative_error(got, logits(floats)) < 1e-4
    found = inspect_model(quantized)
    (matrix,) = [m for m in found["matrices"] if m["name"].endswith(".self_attn.o_proj.weight")]
    assert matrix["loads_as"] == "fp8"
    matrices = sum(w.size for name, w in load_file(floats / WEIGHTS).items() if "_proj." in name)
    saved = weight_bytes(quantized, "off", "float32") - ours.model.metadata["weight_bytes"]
    assert saved == pytest.approx(matrices * (4 - 1 - 4 / 64), rel=0.05)


def test_float8_that_is_no_number_is_named(tmp_path: Path) -> None:
    quantized, _ = make_quantized(tmp_path, "tiny-llama", "compressed-float8-block")
    bad = np.full((1, 1), 0xFF, np.uint8).view("V1")
    name = f"{BASE}.weight"
    damage(
        quantized,
        name,
        lambda t: np.concatenate([bad, t.reshape(1, -1)[:, 1:]], 1).reshape(t.shape),
    )
    load_error(quantized, name, "has elements that are no numbers")


def test_nvfp4_has_a_format_of_its_own(tmp_path: Path) -> None:
    quantized, _ = make_quantized(tmp_path, "tiny-llama", "modelopt-nvfp4", **GROUP_OF_64)
    found = inspect_model(quantized)
    assert found["weight_format"] == "nvfp4 with float32"
    (matrix,) = [m for m in found["matrices"] if m["name"].endswith(".self_attn.o_proj.weight")]
    assert matrix["stored"] == "U8 + F8_E4M3 + F32, 4 bits in groups of 16"


@pytest.mark.parametrize("form", ["modelopt-nvfp4", "modelopt-fp8"])
def test_modelopt_has_a_file_of_its_own(tmp_path: Path, form: str) -> None:
    quantized, floats = make_quantized(tmp_path, "tiny-llama", form)
    config = json.loads((quantized / "config.json").read_text())
    algorithm = config.pop("quantization_config")["quant_algo"]
    (quantized / "config.json").write_text(json.dumps(config))
    own = quantized / "hf_quant_config.json"
    own.write_text(json.dumps({"quantization": {"quant_algo": algorithm, "group_size": 16}}))
    assert np.array_equal(logits(quantized), logits(floats))
    own.write_text(json.dumps({"quantization": {"quant_algo": "W4A8_AWQ"}}))
    load_error(quantized, "hf_quant_config.json", "quant_algo", "W4A8_AWQ")
    (floats / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": null}}')
    testing.TestModel(str(floats))


def test_gpus_keep_nvfp4(tmp_path: Path) -> None:
    """In bfloat16, which such checkpoints have. Rows have their bits in every batch."""
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    quantized, floats = make_quantized(tmp_path, "tiny-llama", "modelopt-nvfp4", **GROUP_OF_128)
    model = PagedModel(quantized, "bfloat16", model_lib=library)
    wide = PagedModel(quantized, "bfloat16", quantization="off", model_lib=library)
    sizes = [int(m.model.metadata["weight_bytes"]) for m in (model, wide)]
    matrices = sum(w.size for name, w in load_file(floats / WEIGHTS).items() if "_proj" in name)
    assert sizes[1] - sizes[0] == pytest.approx(matrices * (2 - 5 / 8), rel=0.01)
    prompts = [PROMPT[:9], PROMPT[20:23], PROMPT[:17]]
    together = [m.forward([(PagedSequence(p), len(p)) for p in prompts]) for m in (model, wide)]
    alone = [model.forward([(PagedSequence(p), len(p))]) for p in prompts]
    assert np.array_equal(together[0], np.concatenate(alone))
    assert 0 < relative_error(*together) < 0.05


@pytest.mark.parametrize("factor", [1e-6, 1e12])
def test_nvfp4_with_scales_beyond_float16_becomes_floats(tmp_path: Path, factor: float) -> None:
    quantized, _ = make_quantized(tmp_path, "tiny-llama", "modelopt-nvfp4", **GROUP_OF_64)
    names = [name for name in load_file(quantized / WEIGHTS) if name.endswith("_scale_2")]
    edit_tensors(quantized, lambda t: t.update({n: t[n] * np.float32(factor) for n in names}))
    sizes = [weight_bytes(quantized, quantization, "float32") for quantization in ("", "off")]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("bad", [0.0, np.inf, np.nan])
def test_nvfp4_scales_that_are_no_numbers_are_named(tmp_path: Path, bad: float) -> None:
    quantized, _ = make_quantized(tmp_path, "tiny-llama", "compressed-nvfp4")
    name = f"{BASE}.weight_scale"
    good = load_file(quantized / WEIGHTS)[name]
    damage(quantized, name, lambda t: np.full(t.shape, 0xFF, np.uint8).view("V1"))
    load_error(quantized, name, "has scales that are no numbers")
    damage(quantized, name, lambda _: good)
    name = f"{BASE}.weight_global_scale"
    damage(quantized, name, lambda t: np.full(t.shape, bad, np.float32))
    load_error(quantized, name, "must be a finite number other than 0")


# ---- Errors ----


def load_error(path: Path, *parts: str) -> None:
    with pytest.raises(LoadError) as error:
        testing.TestModel(str(path))
    for part in parts:
        assert part in str(error.value)


def edit_tensors(path: Path, edit: Callable[[Tensors], object]) -> None:
    tensors = load_file(path / WEIGHTS)
    edit(tensors)
    write_folder(path, json.loads((path / "config.json").read_text()), tensors)


def damage(path: Path, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    edit_tensors(path, lambda t: t.update({name: change(t[name])}))


PARTS = {
    "gptq-4": ["qweight", "qzeros", "scales", "g_idx"],
    "awq": ["qweight", "qzeros", "scales"],
    "compressed-int4-group-asym": [
        "weight_packed", "weight_scale", "weight_zero_point", "weight_shape",
    ],
    "fp8-block": ["weight", "weight_scale_inv"],
    "compressed-float8-channel": ["weight_scale"],
    "compressed-nvfp4": ["weight_packed", "weight_scale", "weight_global_scale"],
    "modelopt-nvfp4": ["weight", "weight_scale"],
}  # fmt: skip
ALL_PARTS = [(form, part) for form, parts in PARTS.items() for part in parts]


@pytest.mark.parametrize(("form", "part"), ALL_PARTS)
def test_wrong_part(tmp_path: Path, form: str, part: str) -> None:
    """Of another size, of another type, missing: an error that names the tensor."""
    quantized, _ = make_quantized(tmp_path, "tiny-llama", form)
    name = f"{BASE}.{part}"
    good = load_file(quantized / WEIGHTS)[name]
    damage(quantized, name, lambda t: t[:-1])
    load_error(quantized, name, "shape")
    damage(quantized, name, lambda t: np.zeros(good.shape, np.float64))
    load_error(quantized, name, "dtype F64")
    edit_tensors(quantized, lambda t: t.pop(name))
    if part == "g_idx":
        testing.TestModel(str(quantized))
    elif part in ("qweight", "weight_packed", "weight", "weight_blocks"):
        load_error(quantized, f"{BASE}.weight", "lacks")
    else:
        load_error(quantized, name, "lacks")


@pytest.mark.parametrize("group", [-1, 5, 2**31 - 1, -(2**31)])
def test_group_out_of_range(tmp_path: Path, group: int) -> None:
    quantized, _ = make_quantized(tmp_path, "tiny-llama", "gptq-4")
    damage(quantized, f"{BASE}.g_idx", lambda t: np.r_[t[:-1], np.int32(group)].astype(np.int32))
    load_error(quantized, f"{BASE}.g_idx", str(group), "[0, 5)")


def test_stored_shape_that_disagrees(tmp_path: Path) -> None:
    quantized, _ = make_quantized(tmp_path, "tiny-llama", "compressed-int4-group")
    damage(quantized, f"{BASE}.weight_shape", lambda t: t[::-1])
    load_error(quantized, f"{BASE}.weight_shape", "[160, 64]", "[64, 160]")


def test_matrix_stored_twice(tmp_path: Path) -> None:
    quantized, _ = make_quantized(tmp_path, "tiny-llama", "awq")
    edit_tensors(quantized, lambda t: t.update({f"{BASE}.weight": np.zeros((64, 160), "f4")}))
    load_error(quantized, f"{BASE}.weight", "does not use")


def test_rows_that_fill_no_word(tmp_path: Path) -> None:
    quantized, _ = make_quantized(tmp_path, "tiny-llama", "gptq-4")
    config = json.loads((quantized / "config.json").read_text()) | {"intermediate_size": 157}
    write_folder(quantized, config, load_file(quantized / WEIGHTS))
    load_error(quantized, "gate_proj.qzeros", "157 rows do not fill words of 8")


def with_weights(**fields: Any) -> dict[str, Any]:
    config = compressed_config(4, "group", True, 32)
    config["config_groups"]["group_0"]["weights"] |= fields
    return config


def with_group(**fields: Any) -> dict[str, Any]:
    config = compressed_config(4, "group", True, 32)
    config["config_groups"]["group_0"] |= fields
    return config


COMPRESSED = compressed_config(4, "group", True, 32)
GROUP_0 = COMPRESSED["config_groups"]["group_0"]
AWQ = FORMATS["awq"].config
NVFP4 = FORMATS["compressed-nvfp4"].config


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"quant_method": "fp8", "fmt": "e5m2"}, "fmt"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "weight_block_size"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "quant_method"),
        ({"bits": 4}, "quant_method"),
        (gptq_config(5, 128), "bits"),
        (gptq_config(2**40, 128), "bits"),
        (gptq_config(4, 0), "group_size"),
        (gptq_config(4, -2), "group_size"),
        (gptq_config(4, 2**60), "group_size"),
        (gptq_config(4, 128, checkpoint_format="marlin"), "checkpoint_format"),
        (gptq_config(4, 128) | {"checkpoint_format": None, "format": "marlin"}, "format"),
        (gptq_config(4, 128, pack_dtype="int16"), "pack_dtype"),
        (gptq_config(4, 128, dynamic={"-:.*gate": {}}), "dynamic"),
        (AWQ | {"bits": 8}, "bits"),
        (AWQ | {"version": "gemv_fast"}, "version"),
        (AWQ | {"zero_point": False}, "zero_point"),
        ({"quant_method": "compressed-tensors", "format": "naive-quantized"}, "format"),
        (compressed_floats("group"), "strategy"),
        (compressed_floats("block"), "block_structure"),
        (compressed_floats("tensor", num_bits=4), "num_bits"),
        (with_weights(num_bits=2), "num_bits"),
        (with_weights(type="float"), "type"),
        (with_weights(dynamic=True), "dynamic"),
        (with_weights(strategy="block"), "strategy"),
        (with_weights(group_size=None), "group_size"),
        (with_group(input_activations={"num_bits": 8}), "input_activations"),
        (with_group(format="int-quantized"), "format"),
        (with_group(weights=3), "weights"),
        (COMPRESSED | {"config_groups": {}}, "config_groups"),
        (
            COMPRESSED | {"config_groups": {"a": GROUP_0, "b": GROUP_0}},
            "config_groups",
        ),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "quant_algo"),
        ({"quant_method": "modelopt"}, "quant_algo"),
        (NVFP4 | {"config_groups": {"a": {"weights": {"num_bits": 4}}}}, "group_size"),
        (COMPRESSED | {"sparsity_config": {"format": "x"}}, "format"),
        (3, "quantization_config"),
    ],
)
def test_config_that_is_not_supported(tmp_path: Path, config: Any, field: str) -> None:
    path = make_checkpoint("tiny-llama", tmp_path / "m")
    fields = json.loads((path / "config.json").read_text()) | {"quantization_config": config}
    (path / "config.json").write_text(json.dumps(fields))
    load_error(path, "config.json", field)


def test_unknown_method_lists_the_supported(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-llama", tmp_path / "m")
    fields = json.loads((path / "config.json").read_text())
    fields["quantization_config"] = {"quant_method": "other"}
    (path / "config.json").write_text(json.dumps(fields))
    load_error(
        path, '"other"', "gptq (2, 3, 4 and 8 bits)", "awq (4 bits", "compressed-tensors", "fp8"
    )
