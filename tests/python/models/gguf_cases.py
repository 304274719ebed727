"""Families that GGUF files of the tests have, types of their tensors, and what reads both."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from paged_driver import (
    PagedModel,
    PagedSequence,
    random_tokens,
)

from mlc_native._core import LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from model_shapes import SHAPES

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
    "tiny-gemma3n_text": {
        "intermediate_size": [160, 160, 96, 160, 160, 160, 192, 160],
        "hidden_size_per_layer_input": 32,
        "vocab_size_per_layer_input": 512,
        "laurel_rank": 32,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
            "full_attention": {"rope_type": "default", "rope_theta": 5e5},
        },
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
    "tiny-kimi_linear": {
        "linear_head_dim": 32,
        "qk_nope_head_dim": 32,
        "kv_lora_rank": 64,
        "moe_intermediate_size": 64,
    },
    "tiny-glm4_moe_lite": {
        "q_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "moe_intermediate_size": 64,
    },
    "tiny-glm_moe_dsa": {
        "q_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "moe_intermediate_size": 64,
        "index_head_dim": 32,
        "index_topk": 9,
    },
    "tiny-mistral4": {
        "q_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "moe_intermediate_size": 64,
    },
    "tiny-minimax_m2": {"intermediate_size": 64},
    "tiny-llama4_text": {
        "intermediate_size": 64,
        "no_rope_layers": None,
        "attention_chunk_size": 8192,
        "floor_scale": 8192,
        "attn_scale": 0.1,
    },
    "tiny-afmoe": {"moe_intermediate_size": 64, "global_attn_every_n_layers": 4},
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
    "tiny-gpt2": {},
    "tiny-gpt_bigcode": {},
    "tiny-gpt_neox": {},
    "tiny-falcon": {},
    "tiny-falcon_new": {},
    "tiny-bloom": {},
    "tiny-mpt": {},
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
    "falcon-one-norm": (
        "tiny-falcon_new",
        {"num_ln_in_parallel_attn": 1, "bias": False, "tie_word_embeddings": True},
    ),
    "gpt_neox-one-after-the-other": ("tiny-gpt_neox", {"use_parallel_residual": False}),
    "mpt-other-slopes": ("tiny-mpt", {"attn_config": {"alibi_bias_max": 4}}),
    "gpt2-own-head": ("tiny-gpt2", {"tie_word_embeddings": False}),
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
    Type.NVFP4: (5, "nvfp4"),
    Type.Q4_1: (5, "q4"),
    Type.Q5_1: (7, "q6"),
    Type.Q2_K: (4, "q2"),
    Type.Q3_K: (5, "q4"),
    Type.Q4_K: (5, "q4"),
    Type.Q5_K: (7, "q6"),
    Type.Q6_K: (7, "q6"),
    Type.IQ1_S: (4, "q2"),
    Type.IQ1_M: (5, "iq2"),
    Type.IQ2_XXS: (5, "iq2"),
    Type.IQ2_XS: (5, "iq2"),
    Type.IQ2_S: (5, "iq2"),
    Type.IQ3_XXS: (4.5, "iq3"),
    Type.IQ3_S: (5, "q4"),
    Type.TQ1_0: (2.25, "q2"),
    Type.TQ2_0: (2.25, "q2"),
}
SUPER_BLOCKS = [kind for kind in KEPT if gguf.GGML_QUANT_SIZES[kind][0] > 32]
ROUNDED = [  # their scales, to float16
    Type.Q4_1,
    Type.Q5_1,
    *(kind for kind in SUPER_BLOCKS if kind not in (Type.TQ1_0, Type.TQ2_0)),
]
EXACT = [Type.F32, Type.F16, Type.BF16, *(kind for kind in KEPT if kind not in SUPER_BLOCKS)]


def logits(path: Path, dtype: str = "float32", quantization: str = "off") -> np.ndarray:
    model = PagedModel(path, dtype, quantization=quantization)
    return model.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")


def in_turn(kinds: list[Type]) -> Any:
    """A type for each matrix, all of them in turn."""
    turn = itertools.cycle(kinds)
    return lambda _name: next(turn)


def damaged(path: Path, field: str, *parts: str) -> None:
    with pytest.raises(LoadError) as error:
        PagedModel(path)
    message = str(error.value)
    assert all(part in message for part in parts), message
    assert error.value.field == field
