"""GGUF files: the values of their tensors, logits, tokenizers, and what is refused.

The oracles are the package ``gguf`` (llama.cpp's own writer and dequantization), and the Hugging
Face folder that holds the same values.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from draft_driver import NUM_SEQUENCES, NUM_TOKENS, propose_at_positions
from fake_model import find_test_library
from gguf import GGMLQuantizationType as Type
from gguf_files import Metadata, write_gguf
from paged_driver import (
    PagedModel,
    PagedSequence,
    random_tokens,
    relative_error,
    transformers_logits,
)
from quantized_checkpoints import WEIGHTS, load_file
from torch_drafts import add_mtp

from mlc_native import MLCEngine, inspect_model
from mlc_native._core import LoadError, testing
from mlc_native.serve.config import EngineConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import SHAPES, make_checkpoint

DEMO = Path(__file__).resolve().parents[3] / "mlc_native" / "demo_model"
PROMPT = random_tokens(150, 512, seed=11)  # longer than every window
# What llama.cpp takes for granted of a family, the tests' shapes must have, and blocks of 32
# columns.
LATENT = {
    "q_lora_rank": 64,
    "kv_lora_rank": 96,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "moe_intermediate_size": 64,
    "attention_bias": False,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 8.0,
        "mscale": 0.8,
        "mscale_all_dim": 0.8,
        "original_max_position_embeddings": 64,
    },
}
QWEN3_VL_MOE = SHAPES["tiny-qwen3_vl_moe"]["text_config"] | {
    "mlp_only_layers": [],
    "moe_intermediate_size": 96,
    "tie_word_embeddings": False,
}
QWEN3_5 = SHAPES["tiny-qwen3_5"]["text_config"] | {
    "num_hidden_layers": 4,
    "layer_types": None,
    "linear_num_value_heads": 12,
    "attention_bias": False,
}
HYBRID_MOE = {
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 96,
    "linear_value_head_dim": 64,
    "mlp_only_layers": [],
}
FAMILIES: dict[str, dict[str, Any]] = {
    "tiny-llama": {},
    "tiny-mistral": {"sliding_window": None},
    "tiny-mixtral": {"sliding_window": None},
    "tiny-ministral3": {},
    "tiny-qwen2": {},
    "tiny-qwen2_moe": {"moe_intermediate_size": 64, "shared_expert_intermediate_size": 96},
    "tiny-qwen2_5_vl": {},
    "tiny-qwen3": {},
    "tiny-qwen3_moe": {"mlp_only_layers": [], "moe_intermediate_size": 64},
    "tiny-qwen3_vl": {},
    "tiny-qwen3_vl_moe": {"text_config": QWEN3_VL_MOE},
    "tiny-qwen3_5_text": {"linear_value_head_dim": 64},
    "tiny-qwen3_5": {"text_config": QWEN3_5},
    "tiny-qwen3_5_moe_text": HYBRID_MOE,
    "tiny-qwen3_next": HYBRID_MOE,
    "tiny-phi3": {},
    "tiny-phimoe": {"intermediate_size": 64, "router_jitter_noise": 0.01},
    "tiny-gemma": {},
    "tiny-gemma2": {"query_pre_attn_scalar": 32},
    "tiny-gemma3_text": {
        "query_pre_attn_scalar": 32,
        "num_hidden_layers": 6,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    },
    "tiny-olmo2": {},
    "tiny-olmo3": {},
    "tiny-olmoe": {"intermediate_size": 64},
    "tiny-granite": {},
    "tiny-granitemoe": {"intermediate_size": 64},
    "tiny-granitemoeshared": {"intermediate_size": 64, "shared_intermediate_size": 96},
    "tiny-smollm3": {"no_rope_layers": [1, 1, 1, 0], "sliding_window": None},
    "tiny-glm": {},
    "tiny-glm4": {},
    "tiny-glm4_moe": {"moe_intermediate_size": 64},
    "tiny-deepseek_v2": {"qk_nope_head_dim": 32, "moe_intermediate_size": 64},
    "tiny-deepseek_v3": LATENT,
    "tiny-glm4_moe_lite": {
        "q_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "moe_intermediate_size": 64,
    },
    "tiny-mistral4": {
        "q_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "moe_intermediate_size": 64,
    },
    "tiny-minimax_m2": {"intermediate_size": 64},
    "tiny-dots1": {
        "moe_intermediate_size": 64,
        "sliding_window": None,
        "layer_types": ["full_attention"] * 4,
    },
    "tiny-exaone_moe": {"moe_intermediate_size": 64},
    "tiny-hunyuan_v1_moe": {"intermediate_size": 64},
    "tiny-gpt_oss": {"swiglu_limit": 7.0},
    "tiny-cohere": {},
    "tiny-cohere2": {"layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
    "tiny-exaone4": {},
    "tiny-seed_oss": {},
    "tiny-hunyuan_v1_dense": {},
    "tiny-ernie4_5": {},
    "tiny-ernie4_5_moe": {"moe_intermediate_size": 64, "moe_layer_end_index": 3},
    "tiny-stablelm": {},
    "tiny-starcoder2": {"sliding_window": None},
    "tiny-nemotron": {"head_dim": 16},
    "tiny-arcee": {},
    "tiny-apertus": {},
    "tiny-jais2": {"head_dim": 16},
    "tiny-olmo": {},
}
# Of a family, what is read from other keys and tensors.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "longrope": (
        "tiny-phi3",
        {
            "original_max_position_embeddings": 64,
            "rope_parameters": {
                "rope_type": "longrope",
                "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5],
                "long_factor": [4.0] * 8,
            },
        },
    ),
    "parallel": ("tiny-stablelm", {"use_parallel_residual": True, "qk_layernorm": False}),
    "no-norms-of-heads": (
        "tiny-glm4_moe",
        {"moe_intermediate_size": 64, "use_qk_norm": False, "attention_bias": False},
    ),
    "groups-by-their-best": (
        "tiny-deepseek_v2",
        {
            "qk_nope_head_dim": 32,
            "moe_intermediate_size": 64,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
        },
    ),
    "whole-up-projections": (
        "tiny-deepseek_v2",
        {"qk_nope_head_dim": 32, "moe_intermediate_size": 64, "old_converter": True},
    ),
    "its-own-name": (
        "tiny-mistral4",
        {
            "q_lora_rank": 64,
            "qk_nope_head_dim": 32,
            "moe_intermediate_size": 64,
            "gguf_arch": "MISTRAL4",
        },
    ),
    "internlm2": ("tiny-llama", {"rope_parameters": None, "gguf_arch": "INTERNLM2"}),
    "sigmoids-without-a-key": ("tiny-deepseek_v3", LATENT | {"old_converter": True}),
    "no-windows": (
        "tiny-exaone4",
        {"sliding_window": None, "layer_types": ["full_attention"] * 4},
    ),
    "no-windows-and-one-rope": (
        "tiny-gemma3_text",
        {"query_pre_attn_scalar": 32, "layer_types": ["full_attention"] * 4},
    ),
    "ropes-of-one-base": (
        "tiny-olmo3",
        {
            "rope_parameters": {
                f"{kind}_attention": {"rope_type": "default", "rope_theta": 2e4}
                for kind in ("full", "sliding")
            }
        },
    ),
    "value-heads-that-share-blocks": ("tiny-qwen3_5_text", {"mtp_num_hidden_layers": 1}),
    "one-value-head-of-each-key-head": (
        "tiny-qwen3_5_text",
        {"linear_num_value_heads": 2, "linear_value_head_dim": 64},
    ),
    "one-tensor-of-inputs": ("tiny-qwen3_next", HYBRID_MOE | {"old_converter": True}),
    "every-other-layer-attends": (
        "tiny-qwen3_5_text",
        {"layer_types": ["linear_attention", "full_attention"] * 2},
    ),
    "layers-that-guess": (
        "tiny-glm4_moe",
        {"moe_intermediate_size": 64, "num_nextn_predict_layers": 2},
    ),
}
# In memory, with scales: bits and their name.
KEPT = {
    Type.Q8_0: (8.5, "q8"),
    Type.Q4_0: (4.5, "q4"),
    Type.Q5_0: (7, "q6"),
    Type.IQ4_NL: (4.5, "iq4"),
    Type.IQ4_XS: (4.5, "iq4"),
    Type.MXFP4: (4.5, "mxfp4"),
    Type.Q4_1: (5, "q4"),
    Type.Q5_1: (7, "q6"),
    Type.Q2_K: (4, "q2"),
    Type.Q3_K: (5, "q4"),
    Type.Q4_K: (5, "q4"),
    Type.Q5_K: (7, "q6"),
    Type.Q6_K: (7, "q6"),
}
SUPER_BLOCKS = [Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.IQ4_XS]
ROUNDED = [Type.Q4_1, Type.Q5_1, *SUPER_BLOCKS]  # their scales, to float16
EXACT = [Type.F32, Type.F16, Type.BF16, *(kind for kind in KEPT if kind not in SUPER_BLOCKS)]


def logits(path: Path, dtype: str = "float32", quantization: str = "off") -> np.ndarray:
    model = PagedModel(path, dtype, quantization=quantization)
    return model.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")


def in_turn(kinds: list[Type]) -> Any:
    """A type for each matrix, all of them in turn."""
    turn = itertools.cycle(kinds)
    return lambda _name: next(turn)


@pytest.mark.parametrize("like", FAMILIES)
def test_logits_are_those_of_the_folder_with_the_same_values(tmp_path: Path, like: str) -> None:
    check_logits(tmp_path, like, FAMILIES[like])


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_of_families(tmp_path: Path, variant: str) -> None:
    check_logits(tmp_path, *VARIANTS[variant])


@pytest.mark.parametrize("like", ["tiny-qwen3_5_text", "tiny-qwen3_5_moe_text"])
def test_a_layer_that_guesses_is_a_draft_head(tmp_path: Path, like: str) -> None:
    """As llama.cpp's converter writes the MTP head of Qwen3.5."""
    size = json.loads((DEMO / "config.json").read_text())["vocab_size"]
    source = make_checkpoint(like, tmp_path / "source",
                             overrides=FAMILIES[like] | {"vocab_size": size})  # fmt: skip
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO / name, source)
    file = write_gguf(add_mtp(source, "Qwen3-Next"), tmp_path / "x.gguf", lambda _: Type.F32,
                      floats=tmp_path / "floats", pre="smollm")  # fmt: skip
    texts = [random_tokens(NUM_TOKENS, 512, seed=seed) for seed in range(NUM_SEQUENCES)]
    streams, drafts = propose_at_positions(file, file, texts)
    assert streams == [5]
    assert drafts == propose_at_positions(tmp_path / "floats", tmp_path / "floats", texts)[1]
    with MLCEngine(str(file), "cpu", speculative_mode="auto") as engine:
        assert engine.engine_config.speculative_mode == "mtp"
        assert engine.completions.create(prompt="abc", max_tokens=4).usage.completion_tokens == 4


@pytest.mark.parametrize("like", ["tiny-mistral", "tiny-qwen2", "tiny-qwen3_moe", "tiny-gpt_oss"])
def test_several_weights_in_one_tensor(tmp_path: Path, like: str) -> None:
    check_logits(tmp_path, like, FAMILIES[like], fused=True)


def test_gate_and_up_of_all_experts_in_one_tensor(tmp_path: Path) -> None:
    """As the converter of Mistral 4 leaves them."""
    check_logits(tmp_path, *VARIANTS["its-own-name"], fused=True)


def check_logits(tmp_path: Path, like: str, overrides: dict[str, Any], **options: Any) -> None:
    source = make_checkpoint(like, tmp_path / "source", overrides=overrides)
    file = write_gguf(source, tmp_path / "x.gguf", in_turn(EXACT), floats=tmp_path / "floats",
                      **options)  # fmt: skip
    ours, theirs = logits(file), logits(tmp_path / "floats")
    # Llama 3.1's wavelengths are numbers of the file, and products of its settings in a folder.
    # Norms that are stored with 1 added are rounded, as are HunYuan's wavelengths and DeepSeek's
    # mscale.
    exact = not any(name in like for name in ("llama", "apertus", "gemma", "nemotron", "hunyuan",
                                              "deepseek_v3", "mistral4", "qwen3_5",
                                              "qwen3_next"))  # fmt: skip
    assert np.array_equal(ours, theirs) if exact else relative_error(ours, theirs) < 1e-5


@pytest.mark.parametrize("key", ["rope.scale_linear", "rope.scaling.factor"])
def test_a_factor_of_rope_without_a_type_is_linear(tmp_path: Path, key: str) -> None:
    """As for llama.cpp. The first is the name in old files."""
    scaling = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
    overrides = {"rope_scaling": None, "rope_parameters": scaling}
    source = make_checkpoint("tiny-qwen2", tmp_path / "source", overrides=overrides)
    metadata: Metadata = {f"qwen2.{key}": 4.0}
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, metadata=metadata)
    assert np.array_equal(logits(file), logits(source))


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


@pytest.mark.parametrize("kind", [Type.F32, Type.Q8_0, Type.Q4_K], ids=lambda kind: kind.name)
@pytest.mark.parametrize("like", ["tiny-qwen3_5_text", "tiny-qwen3_5_moe_text", "tiny-qwen3_next"])
def test_tokens_of_hybrid_models_are_those_of_transformers(
    tmp_path: Path, like: str, kind: Type
) -> None:
    sizes = {"hidden_size": 256, "head_dim": 64, "linear_value_head_dim": 64, "mlp_only_layers": []}
    if like == "tiny-qwen3_5_text":
        sizes |= {"intermediate_size": 512}
    else:
        sizes |= {"moe_intermediate_size": 256, "shared_expert_intermediate_size": 256}
    source = make_checkpoint(like, tmp_path / "source", overrides=sizes)
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: kind, floats=tmp_path / "floats",
                      centred=kind == Type.Q4_K)  # fmt: skip
    prompt = PROMPT[:70]
    model = PagedModel(file, "float32", quantization="off")
    tokens, ours = model.generate(prompt, 32, 32)
    expected = transformers_logits(tmp_path / "floats", [*prompt, *tokens[:-1]])[len(prompt) - 1 :]
    assert relative_error(ours, expected) < 1e-4
    assert tokens == expected.argmax(-1).tolist()
    assert len(set(tokens)) > 8


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


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model as a GGUF file."""
    folder = tmp_path_factory.mktemp("demo")
    return write_gguf(DEMO, folder / "demo.gguf", lambda _: Type.BF16, pre="smollm")


@pytest.fixture(scope="module")
def answers(demo: Path) -> dict[str, Any]:
    """What two engines say, one on the file and one on the folder."""
    results: dict[str, Any] = {}
    for name, model in {"file": demo, "folder": DEMO}.items():
        engine = MLCEngine(str(model), device="cpu", mode="local",
                           engine_config=EngineConfig(verbose=False))  # fmt: skip
        try:
            chat = engine.chat.completions.create(
                messages=[{"role": "user", "content": "Tell me a story about 12 cats."}],
                max_tokens=24, temperature=0)  # fmt: skip
            text = engine.completions.create(prompt="Once upon", max_tokens=24, temperature=0)
            results[name] = (
                chat.choices[0].message.content,
                chat.choices[0].finish_reason,
                chat.usage.prompt_tokens,
                text.choices[0].text,
            )
        finally:
            engine.terminate()
    return results


def test_an_engine_answers_as_from_the_folder(answers: dict[str, Any]) -> None:
    assert answers["file"] == answers["folder"]
    assert answers["file"][0]


def damaged(path: Path, field: str, *parts: str) -> None:
    with pytest.raises(LoadError) as error:
        PagedModel(path)
    message = str(error.value)
    assert all(part in message for part in parts), message
    assert error.value.field == field


def test_an_olmo_that_cuts_its_projections_is_refused(tmp_path: Path) -> None:
    source = make_checkpoint("tiny-olmo", tmp_path / "source")
    metadata: Metadata = {"olmo.attention.clamp_kqv": 8.0}
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, metadata=metadata)
    damaged(path, "clip_qkv", "is not supported")


def test_parts_are_one_model(tmp_path: Path) -> None:
    source = make_checkpoint("tiny-qwen2", tmp_path / "source")
    whole = write_gguf(source, tmp_path / "whole.gguf", in_turn(EXACT))
    parts = tmp_path / "parts"
    parts.mkdir()
    write_gguf(source, parts / "x.gguf", in_turn(EXACT), split_max_tensors=12)
    names = sorted(path.name for path in parts.iterdir())
    assert names == [f"x-0000{i}-of-00004.gguf" for i in range(1, 5)]
    assert np.array_equal(logits(parts), logits(whole))  # a folder with one model
    assert np.array_equal(logits(parts / names[0]), logits(whole))
    (parts / names[2]).rename(parts / "away")
    damaged(parts, str(parts / names[2]), "is missing, it is part 3 of 4")
    (parts / "away").rename(parts / names[2])
    (parts / names[2]).write_bytes((parts / names[1]).read_bytes())
    damaged(parts, "split.no", "are not those of part 3 of 4")


@pytest.mark.parametrize("small_first_shard", [False, True])
def test_what_a_later_part_has_counts(tmp_path: Path, small_first_shard: bool) -> None:
    """As the factors of wavelengths do, which are in the last one here."""
    source = make_checkpoint("tiny-llama", tmp_path / "source")
    whole = write_gguf(source, tmp_path / "whole.gguf", in_turn(EXACT))
    parts = tmp_path / "parts"
    parts.mkdir()
    write_gguf(source, parts / "x.gguf", in_turn(EXACT), split_max_tensors=12,
               small_first_shard=small_first_shard)  # fmt: skip
    assert np.array_equal(logits(parts), logits(whole))


def without(path: Path, *keys: str) -> None:
    """With other names for the keys."""
    content = path.read_bytes()
    for key in keys:
        name = len(key).to_bytes(8, "little") + key.encode()
        assert content.count(name) == 1, key
        content = content.replace(name, name[:-1] + b"_")
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("like", "family"), [("tiny-glm", "chatglm"), ("tiny-ministral3", "mistral3")]
)
def test_sizes_without_a_key_follow_from_others(tmp_path: Path, like: str, family: str) -> None:
    """As for llama.cpp, some of whose converters leave them out."""
    source = make_checkpoint(
        like, tmp_path / "source", overrides={"num_key_value_heads": 4, "head_dim": 16}
    )
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, floats=tmp_path / "floats")
    keys = ("key_length", "value_length", "head_count_kv")
    without(path, *(f"{family}.attention.{key}" for key in keys))
    assert np.array_equal(logits(path), logits(tmp_path / "floats"))


@pytest.mark.parametrize(
    ("like", "key"),
    [
        ("tiny-qwen2", "qwen2.context_length"),
        ("tiny-qwen2", "qwen2.attention.layer_norm_rms_epsilon"),
        ("tiny-starcoder2", "starcoder2.attention.layer_norm_epsilon"),
        ("tiny-glm", "chatglm.attention.head_count"),
        ("tiny-olmoe", "olmoe.expert_used_count"),
        ("tiny-qwen3_5_text", "qwen35.ssm.conv_kernel"),
        ("tiny-qwen3_5_text", "qwen35.ssm.state_size"),
        ("tiny-qwen3_5_moe_text", "qwen35moe.ssm.group_count"),
        ("tiny-qwen3_5_text", "qwen35.ssm.time_step_rank"),
        ("tiny-qwen3_5_moe_text", "qwen35moe.ssm.inner_size"),
    ],
)
def test_a_key_whose_value_nothing_else_says_is_named(tmp_path: Path, like: str, key: str) -> None:
    """The defaults of transformers are those of one model of the family."""
    source = make_checkpoint(like, tmp_path / "source")
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32)
    without(path, key)
    damaged(path, key, "is missing")


def test_a_number_may_be_a_list_of_the_same_for_each_layer(tmp_path: Path) -> None:
    """As the converter writes it of a Granite 4 without Mamba layers."""
    source = make_checkpoint("tiny-granite", tmp_path / "source")
    key = "granite.attention.head_count_kv"
    path = tmp_path / "x.gguf"
    write_gguf(source, path, lambda _: Type.F32, metadata={key: [2, 2, 2]})
    assert np.array_equal(logits(path), logits(source))
    write_gguf(source, path, lambda _: Type.F32, metadata={key: [2, 2, 1]})
    damaged(path, key, "is 2 in one layer and 1 in the next")


def test_experts_that_a_family_does_not_have_are_named(tmp_path: Path) -> None:
    source = make_checkpoint("tiny-mixtral", tmp_path / "source")
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"llama", b"qwen2"))
    damaged(path, "qwen2.expert_count", "experts of this family are not supported")
    source = make_checkpoint("tiny-minimax_m2", tmp_path / "sigmoid")
    path = write_gguf(source, tmp_path / "y.gguf", lambda _: Type.F32)
    content = path.read_bytes()
    key = b"minimax-m2.expert_gating_func"
    place = content.index(key) + len(key) + 4
    path.write_bytes(content[:place] + (1).to_bytes(4, "little") + content[place + 4 :])
    damaged(path, key.decode(), "= 1 is not supported for this family (only 2)")


def test_attention_in_both_directions_is_named(tmp_path: Path) -> None:
    source = make_checkpoint("tiny-qwen2", tmp_path / "source")
    metadata: Metadata = {"qwen2.attention.causal": False}
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, metadata=metadata)
    damaged(path, "is_causal", "= false is not supported")


def test_ropes_that_no_folder_has_are_named(tmp_path: Path) -> None:
    source = make_checkpoint("tiny-glm4", tmp_path / "glm4")
    key = "glm4.rope.dimension_sections"  # of a model with images, whose rows have another order
    path = tmp_path / "x.gguf"
    write_gguf(source, path, lambda _: Type.F32, metadata={key: [2, 1, 1, 0]})
    damaged(path, key, "is not supported for this family")
    source = make_checkpoint("tiny-llama", tmp_path / "llama")
    key = "llama.rope.scaling.factor"
    write_gguf(source, path, lambda _: Type.F32, metadata={key: 4.0})
    damaged(path, key, 'beside the tensor "rope_freqs.weight"')


def test_sizes_of_latent_attention_are_named(tmp_path: Path) -> None:
    overrides = FAMILIES["tiny-deepseek_v2"]
    source = make_checkpoint("tiny-deepseek_v2", tmp_path / "source", overrides=overrides)
    path = tmp_path / "x.gguf"
    key = "deepseek2.attention.temperature_scale"  # of Mistral Large 3, which has yarn
    write_gguf(source, path, lambda _: Type.F32, metadata={key: 0.1})
    damaged(path, key, 'deepseek2.rope.scaling.type = "yarn" alone')
    write_gguf(source, path, lambda _: Type.F32)
    good = path.read_bytes()
    key = "deepseek2.attention.key_length_mla"
    path.write_bytes(good.replace(key.encode(), key.replace("_mla", "_xyz").encode()))
    damaged(path, key, "is missing")
    key = "deepseek2.attention.kv_lora_rank"
    path.write_bytes(good.replace(key.encode(), key.replace("rank", "xxxx").encode()))
    damaged(path, key, "is missing")


@pytest.mark.parametrize(
    ("key", "value", "field", "what"),
    [
        ("inner_size", 161, "qwen35.ssm.inner_size", "= 161 must be a multiple of qwen35.ssm.time"),
        ("time_step_rank", 0, "qwen35.ssm.inner_size", "qwen35.ssm.time_step_rank = 0"),
        ("group_count", 3, "linear_num_value_heads", 'a multiple of "linear_num_key_heads" = 3'),
        ("group_count", 1 << 31, "linear_num_key_heads", "[1, 1024]"),
        ("state_size", 64, "model.layers.0.linear_attn.conv1d.weight", "of 4 value heads"),
        ("state_size", 22, "model.layers.0.linear_attn.in_proj_qkv.weight", "asks for [248, 64]"),
        ("conv_kernel", 3, "model.layers.0.linear_attn.conv1d.weight", "shape [256, 1, 4]"),
    ],
)
def test_sizes_of_linear_attention_are_named(
    tmp_path: Path, key: str, value: int, field: str, what: str
) -> None:
    source = make_checkpoint("tiny-qwen3_5_text", tmp_path / "source")
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32,
                      metadata={f"qwen35.ssm.{key}": value})  # fmt: skip
    damaged(path, field, what)


def test_a_rate_of_decay_that_grows_is_named(tmp_path: Path) -> None:
    source = make_checkpoint("tiny-qwen3_5_text", tmp_path / "source")
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32)
    (tensor,) = [t for t in gguf.GGUFReader(path).tensors if t.name == "blk.1.ssm_a"]
    content = bytearray(path.read_bytes())
    content[tensor.data_offset : tensor.data_offset + 4] = np.float32(0.5).tobytes()
    path.write_bytes(content)
    damaged(path, "model.layers.1.linear_attn.A_log", "has 0.5", "not below 0")


def test_what_is_not_supported_is_named(tmp_path: Path) -> None:
    source = make_checkpoint("tiny-qwen2", tmp_path / "source",
                             overrides={"hidden_size": 256, "intermediate_size": 256})  # fmt: skip
    path = tmp_path / "x.gguf"
    write_gguf(source, path, lambda _: Type.F32)
    content = path.read_bytes()

    def replace(old: bytes, new: bytes) -> None:
        assert old in content
        assert len(old) == len(new)
        path.write_bytes(content.replace(old, new, 1))

    replace(b"qwen2", b"qwen9")
    damaged(path, "general.architecture", '"qwen9" is not supported', "qwen2, qwen2moe")
    replace(b"blk.1.attn_k.weight", b"blk.1.attn_x.weight")
    name = "model.layers.1.self_attn.k_proj.weight"
    damaged(path, name, "lacks tensors of Qwen2ForCausalLM", name)
    replace(b"qwen2.embedding_length", b"qwen2.embedding_lengtx")
    damaged(path, "hidden_size", "config.json", "got nothing")
    # Of the type IQ3_S, whose tensor needs fewer bytes than are there.
    place = content.index(b"blk.0.attn_k.weight") + len(b"blk.0.attn_k.weight") + 4 + 16
    path.write_bytes(content[:place] + (21).to_bytes(4, "little") + content[place + 4 :])
    damaged(path, "model.layers.0.self_attn.k_proj.weight", "dtype IQ3_S", "Q8_0, Q4_0, Q5_0")
