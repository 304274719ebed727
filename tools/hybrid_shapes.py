"""Tiny models of families with linear attention in most layers.

For make_random_checkpoint.py, as those of dense_shapes.py.
"""

from __future__ import annotations

from typing import Any

from dense_shapes import QWEN_VISION, TINY

DELTA: dict[str, Any] = {
    "num_hidden_layers": 4, "head_dim": 32, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 24, "linear_value_head_dim": 40,
    "linear_conv_kernel_dim": 4,
}  # fmt: skip
DELTA_EXPERTS: dict[str, Any] = {
    "moe_intermediate_size": 48, "num_experts": 9, "num_experts_per_tok": 3,
    "shared_expert_intermediate_size": 80,
}  # fmt: skip
MROPE: dict[str, Any] = {
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 1, 1],
        "mrope_interleaved": True, "partial_rotary_factor": 0.25,
    },
}  # fmt: skip
# LFM2: the last layer has a convolution.
CONVOLUTIONS: dict[str, Any] = {
    **TINY, "num_hidden_layers": 5, "norm_eps": 1e-5,
    "layer_types": ["conv", "conv", "full_attention", "conv", "conv"],
}  # fmt: skip
KINDS_OF_LAYERS = ["full_attention", "linear_attention", "linear_attention"]

HYBRID_SHAPES: dict[str, dict[str, Any]] = {
    "qwen3.5-0.8b": {
        "model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 1024,
        "intermediate_size": 3584, "num_hidden_layers": 24, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "linear_num_key_heads": 16,
        "linear_num_value_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
        },
    },
    "tiny-qwen3_5_text": {
        "model_type": "qwen3_5_text", **TINY, **DELTA, **MROPE, "tie_word_embeddings": True,
    },
    "tiny-lfm2": {
        "model_type": "lfm2", **CONVOLUTIONS, "intermediate_size": 200, "block_multiple_of": 48,
        "block_ffn_dim_multiplier": 1.1, "tie_word_embeddings": True,
    },
    "tiny-lfm2_moe": {
        "model_type": "lfm2_moe", **CONVOLUTIONS, "conv_L_cache": 4, "num_dense_layers": 1,
        "layer_types": ["conv", "full_attention", "conv", "conv", "full_attention"],
        "moe_intermediate_size": 48, "num_experts": 10, "num_experts_per_tok": 3,
        "routed_scaling_factor": 1.5, "tie_word_embeddings": False,
    },
    # The last layer is recurrent, and each value head has queries of its own.
    "tiny-qwen3_5": {
        "model_type": "qwen3_5",
        "vision_config": {**QWEN_VISION, "num_position_embeddings": 16},
        "text_config": {
            **TINY, **DELTA, **MROPE, "num_hidden_layers": 3, "layer_types": KINDS_OF_LAYERS,
            "linear_num_key_heads": 4, "linear_conv_kernel_dim": 3, "attention_bias": True,
        },
        "tie_word_embeddings": False,
    },
    "tiny-qwen3_5_moe_text": {
        "model_type": "qwen3_5_moe_text", **TINY, **DELTA, **DELTA_EXPERTS, **MROPE,
        "tie_word_embeddings": False,
    },
    "tiny-qwen3_5_moe": {
        "model_type": "qwen3_5_moe",
        "vision_config": {**QWEN_VISION, "num_position_embeddings": 16},
        "text_config": {
            **TINY, **DELTA, **DELTA_EXPERTS, **MROPE, "num_hidden_layers": 3,
            "layer_types": KINDS_OF_LAYERS,
        },
        "tie_word_embeddings": True,
    },
    "tiny-qwen3_next": {
        "model_type": "qwen3_next", **TINY, **DELTA, **DELTA_EXPERTS, "mlp_only_layers": [1],
        "tie_word_embeddings": False,
    },
}  # fmt: skip
