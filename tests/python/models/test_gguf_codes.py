"""Types of tensors in GGUF files: their values bit for bit, and the codes that stay in memory."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from fake_model import find_test_library
from gguf import GGMLQuantizationType as Type
from gguf_cases import EXACT, FAMILIES, KEPT, PROMPT, ROUNDED, SUPER_BLOCKS, in_turn, logits
from gguf_files import write_gguf
from paged_driver import (
    PagedModel,
    PagedSequence,
    relative_error,
)
from quantized_checkpoints import WEIGHTS, load_file

from mlc_native import inspect_model
from mlc_native._core import testing

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint


def matrices_of(
    tmp_path: Path, kind: Type | dict[str, Type], like: str = "tiny-llama", **sizes: Any
) -> tuple[Path, dict[str, np.ndarray]]:
    """A file whose matrices have this type, or one by their names, and their values."""
    shape = {
        "hidden_size": 256,
        "intermediate_size": 512,
        "head_dim": 64,
        "num_hidden_layers": 1,
    } | sizes
    source = make_checkpoint(like, tmp_path / "source", overrides=shape)
    floats = tmp_path / "floats"
    type_of = kind.__getitem__ if isinstance(kind, dict) else lambda _: kind
    file = write_gguf(source, tmp_path / "x.gguf", type_of, floats=floats)
    return file, {name: w for name, w in load_file(floats / WEIGHTS).items() if w.ndim == 2}


@pytest.mark.parametrize("kind", [*EXACT, *SUPER_BLOCKS], ids=lambda kind: kind.name)
def test_every_matrix_is_the_reference_bit_for_bit(tmp_path: Path, kind: Type) -> None:
    file, matrices = matrices_of(tmp_path, kind)
    for name, weight in matrices.items():
        ours = testing.read_weight(str(file), name, *weight.shape)
        assert np.array_equal(ours.view(np.uint32), weight.view(np.uint32)), name


@pytest.mark.parametrize("kind", [kind for kind in KEPT if kind != Type.MXFP4],
                         ids=lambda kind: kind.name)  # fmt: skip
def test_codes_mean_the_reference(tmp_path: Path, kind: Type) -> None:
    """Exactly, or with the scales of each group rounded to float16."""
    file, matrices = matrices_of(tmp_path, kind)
    for name, weight in matrices.items():
        ours = testing.read_weight(str(file), name, *weight.shape, as_codes=True)
        if kind not in ROUNDED:
            assert np.array_equal(ours, weight), name
            continue
        error, of_groups = (np.abs(x).reshape(-1, 32).max(1) for x in (ours - weight, weight))
        assert np.all(error <= 3 * 2.0**-11 * of_groups), name
        assert np.any(error > 0)


@pytest.mark.parametrize("kind", [kind for kind in KEPT if kind != Type.MXFP4],
                         ids=lambda kind: kind.name)  # fmt: skip
def test_codes_of_tiled_value_heads(tmp_path: Path, kind: Type) -> None:
    """Rows of their inputs and columns of their output are in the order of the folder."""
    file, matrices = matrices_of(tmp_path, kind, "tiny-qwen3_5_text", linear_value_head_dim=64)
    seen = 0
    for name, weight in matrices.items():
        if "linear_attn." not in name:
            continue
        seen += 1
        ours = testing.read_weight(str(file), name, *weight.shape, as_codes=True)
        error, of_groups = (np.abs(x).reshape(-1, 32).max(1) for x in (ours - weight, weight))
        assert np.all(error <= 3 * 2.0**-11 * of_groups * (kind in ROUNDED)), name
    assert seen == 5
    if kind not in ROUNDED:
        assert inspect_model(file)["weight_format"] == f"{KEPT[kind][1]} with float16"


@pytest.mark.parametrize("like", ["tiny-qwen3_5_text", "tiny-qwen3_next"])
def test_gates_in_more_bits_say_nothing_of_other_matrices(tmp_path: Path, like: str) -> None:
    source = make_checkpoint(like, tmp_path / "source", overrides=FAMILIES[like])
    file = write_gguf(source, tmp_path / "x.gguf", lambda name: Type.F32 if "ssm_" in name and
                      "ssm_out" not in name else Type.Q8_0)  # fmt: skip
    assert inspect_model(file)["weight_format"] == "q8 with float16"


def test_value_heads_that_share_blocks_become_floats(tmp_path: Path) -> None:
    """Where they are the columns of a matrix, other matrices are multiplied as codes."""
    source = make_checkpoint("tiny-qwen3_5_text", tmp_path / "source")
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.Q8_0, floats=tmp_path / "floats")
    ours, theirs = logits(file, quantization=""), logits(tmp_path / "floats")
    assert 1e-6 < relative_error(ours, theirs) < 0.3  # 0.96 in another order


def blocks_of_q4_k(tmp_path: Path, scale: float, minimum: float) -> tuple[np.ndarray, np.ndarray]:
    """What the codes of a file mean whose blocks have these scales, and the values."""
    file, matrices = matrices_of(tmp_path, Type.Q4_K)
    content = bytearray(file.read_bytes())
    name = "model.layers.0.self_attn.q_proj.weight"
    weight = matrices[name]
    reader = gguf.GGUFReader(file)
    (tensor,) = [t for t in reader.tensors if t.name == "blk.0.attn_q.weight"]
    block = np.frombuffer(content, np.uint8, tensor.n_bytes, tensor.data_offset).reshape(-1, 144)
    block = block.copy()
    block[:, :4] = np.array([scale, minimum], "<f2").view(np.uint8)
    content[tensor.data_offset : tensor.data_offset + tensor.n_bytes] = block.tobytes()
    file.write_bytes(content)
    values = testing.read_weight(str(file), name, *weight.shape)
    return testing.read_weight(str(file), name, *weight.shape, as_codes=True), values


@pytest.mark.parametrize("scale", [0.0, 1e-7, 6e-5, 1.0, -0.01])
@pytest.mark.parametrize("minimum", [0.0, 1e-7, 0.01, 900.0, -3.0])
def test_scales_and_minima_of_any_size(tmp_path: Path, scale: float, minimum: float) -> None:
    """A group whose codes make no difference, and scales below the least normal float16."""
    ours, values = blocks_of_q4_k(tmp_path, scale, minimum)
    error, largest = (np.abs(x).reshape(-1, 32).max(1) for x in (ours - values, values))
    assert np.all(np.isfinite(ours))
    assert np.all(error <= 3 * 2.0**-11 * largest + 32 * 2.0**-25)


@pytest.mark.parametrize("kind", KEPT, ids=lambda kind: kind.name)
def test_codes_are_kept(tmp_path: Path, kind: Type) -> None:
    """The matrices are multiplied as they are stored; only activations are rounded."""
    file, matrices = matrices_of(tmp_path, kind, "tiny-qwen3")  # the head is the embeddings
    size = PagedModel(file, "float32").model.metadata["weight_bytes"]
    bits, name = KEPT[kind]
    assert size == pytest.approx(sum(w.size for w in matrices.values()) * bits / 8, rel=0.05)
    found = inspect_model(file)
    assert found["loads"]
    assert found["weight_format"] == f"{name} with float16"
    error = relative_error(logits(file, quantization=""), logits(tmp_path / "floats"))
    assert 1e-6 < error < 0.15  # attention over random keys amplifies what is rounded


@pytest.mark.parametrize(
    ("of_values", "bits"),
    [
        (Type.Q4_0, 5),
        (Type.Q4_K, 5),
        (Type.Q5_K, 7),
        (Type.Q6_K, 8),  # as with Q4_K in files that are called Q4_K_M
        (Type.Q5_0, 7),
        (Type.Q3_K, 6),
        (Type.IQ4_XS, 8.5),  # rounded
        (Type.Q8_0, 8.5),  # rounded
    ],
    ids=lambda case: getattr(case, "name", ""),
)
def test_parts_of_a_matrix_in_several_types(tmp_path: Path, of_values: Type, bits: float) -> None:
    """Queries, keys and values are one matrix for the kernels: all have the least format that holds
    them."""
    kinds = defaultdict(lambda: Type.Q4_1, {"blk.0.attn_v.weight": of_values})
    file, matrices = matrices_of(tmp_path, kinds, "tiny-qwen3")
    joined = sum(
        w.size
        for name, w in matrices.items()
        if name.split(".")[-2] in ("q_proj", "k_proj", "v_proj")
    )
    others = sum(w.size for w in matrices.values()) - joined
    model = PagedModel(file, "float16")
    expected = (others * 5 + joined * bits) / 8
    assert model.model.metadata["weight_bytes"] == pytest.approx(expected, rel=0.01)
    got = model.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")
    assert 1e-6 < relative_error(got, logits(tmp_path / "floats")) < 0.15


# On GPUs: bits of a weight with scales, and how far logits may be from those of float16.
ON_GPUS = {
    Type.Q8_0: (8.5, 0.01),
    Type.Q4_0: (4.5, 0.01),
    Type.Q4_1: (5, 0.01),
    Type.Q4_K: (5, 0.01),
    Type.Q5_0: (8.5, 0.01),
    Type.Q5_1: (8.5, 0.05),  # rounded
    Type.Q6_K: (8.5, 0.05),
    Type.Q2_K: (8.5, 0.05),
    Type.IQ4_XS: (8.5, 0.01),
    Type.IQ1_S: (5, 0.01),
    Type.IQ2_XXS: (8.5, 0.01),
    Type.IQ2_S: (8.5, 0.05),
    Type.IQ3_XXS: (8.5, 0.01),
    Type.IQ3_S: (5, 0.01),
    Type.TQ2_0: (4.5, 0.01),
    Type.NVFP4: (8.5, 0.05),
}


@pytest.mark.parametrize("kind", ON_GPUS, ids=lambda kind: kind.name)
def test_gpus_keep_codes(tmp_path: Path, kind: Type) -> None:
    """In float16; with bfloat16 most become floats. Rows have their bits in every batch."""
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    file, matrices = matrices_of(tmp_path, kind)
    model = PagedModel(file, "float16", quantization="", model_lib=library)
    floats = PagedModel(file, "float16", quantization="off", model_lib=library)
    sizes = [int(m.model.metadata["weight_bytes"]) for m in (model, floats)]
    bits, most = ON_GPUS[kind]
    multiplied = sum(w.size for name, w in matrices.items() if "embed" not in name)
    assert sizes[1] - sizes[0] == pytest.approx(multiplied * (2 - bits / 8), rel=0.01)
    prompts = [PROMPT[:9], PROMPT[20:23], PROMPT[:17]]
    together = [m.forward([(PagedSequence(p), len(p)) for p in prompts]) for m in (model, floats)]
    alone = [model.forward([(PagedSequence(p), len(p))]) for p in prompts]
    assert np.array_equal(together[0], np.concatenate(alone))
    assert 0 < relative_error(*together) < most


def test_gpus_keep_nvfp4_with_bfloat16(tmp_path: Path) -> None:
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    file, matrices = matrices_of(tmp_path, Type.NVFP4)
    model = PagedModel(file, "bfloat16", quantization="", model_lib=library)
    floats = PagedModel(file, "bfloat16", quantization="off", model_lib=library)
    sizes = [int(m.model.metadata["weight_bytes"]) for m in (model, floats)]
    multiplied = sum(w.size for name, w in matrices.items() if "embed" not in name)
    assert sizes[1] - sizes[0] == pytest.approx(multiplied * (2 - 5 / 8), rel=0.01)
    got, expected = (m.forward([(PagedSequence(PROMPT), len(PROMPT))]) for m in (model, floats))
    assert 0 < relative_error(got, expected) < 0.05


def test_each_expert_has_its_scale(tmp_path: Path) -> None:
    """Those of NVFP4 are in a tensor for all experts."""
    source = make_checkpoint(
        "tiny-qwen3_moe",
        tmp_path / "source",
        overrides={"moe_intermediate_size": 64, "mlp_only_layers": []},
    )
    kind = Type.NVFP4
    file = write_gguf(
        source, tmp_path / "x.gguf", lambda name: kind if "_exps" in name else Type.F32,
        floats=tmp_path / "floats",
    )  # fmt: skip
    assert np.array_equal(logits(file), logits(tmp_path / "floats"))
    assert "nvfp4" in inspect_model(file)["weight_format"]


def test_tiled_value_heads_on_gpus(tmp_path: Path) -> None:
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    source = make_checkpoint(
        "tiny-qwen3_5_text", tmp_path / "source", overrides=FAMILIES["tiny-qwen3_5_text"]
    )
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.Q8_0, floats=tmp_path / "floats")
    model = PagedModel(file, "float16", quantization="", model_lib=library)
    got = model.forward([(PagedSequence(PROMPT[:20]), 20)], "all")
    expected = PagedModel(tmp_path / "floats", "float32").forward(
        [(PagedSequence(PROMPT[:20]), 20)], "all"
    )
    assert 0 < relative_error(got, expected) < 0.05


def test_experts_on_gpus(tmp_path: Path) -> None:
    """All of a layer have one format, whatever the types of their file."""
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    source = make_checkpoint(
        "tiny-qwen3_moe", tmp_path / "source", overrides=FAMILIES["tiny-qwen3_moe"]
    )
    kinds = [Type.Q4_1, Type.Q8_0, Type.Q5_1]
    file = write_gguf(source, tmp_path / "x.gguf", in_turn(kinds), floats=tmp_path / "floats")
    model = PagedModel(file, "float16", quantization="", model_lib=library)
    got = model.forward([(PagedSequence(PROMPT[:20]), 20)], "all")
    expected = PagedModel(tmp_path / "floats", "float32").forward(
        [(PagedSequence(PROMPT[:20]), 20)], "all"
    )
    # A router whose scores are nearly equal chooses by the rounding of its input.
    errors = [relative_error(a, b) for a, b in zip(got, expected, strict=True)]
    assert 0 < np.median(errors) < 0.02
