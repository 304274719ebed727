"""Tiny models of families whose layers mostly have states in place of keys and values.

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
# Mamba-2, of whose heads no vector divides the size.
MAMBA: dict[str, Any] = {
    **TINY, "num_hidden_layers": 5, "mamba_expand": 3, "mamba_n_heads": 8, "mamba_d_head": 24,
    "mamba_n_groups": 2, "mamba_d_state": 20, "mamba_d_conv": 4,
}  # fmt: skip
GRANITE_MAMBA: dict[str, Any] = {
    **MAMBA, "layer_types": ["mamba", "mamba", "attention", "mamba", "mamba"],
    "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 72,
    "position_embedding_type": "nope", "embedding_multiplier": 6.0, "residual_multiplier": 0.4,
    "attention_multiplier": 0.15, "logits_scaling": 3.0, "tie_word_embeddings": False,
}  # fmt: skip
# Attention beside Mamba-2, of which no size follows from others, and all multipliers.
FALCON_H1: dict[str, Any] = {
    "model_type": "falcon_h1", **TINY, "mamba_d_ssm": 96, "mamba_n_heads": 8, "mamba_d_head": 12,
    "mamba_n_groups": 2, "mamba_d_state": 20, "mamba_d_conv": 4, "mamba_rms_norm": False,
    "embedding_multiplier": 3.0, "lm_head_multiplier": 0.4, "key_multiplier": 0.7,
    "attention_in_multiplier": 1.3, "attention_out_multiplier": 0.8, "ssm_in_multiplier": 1.2,
    "ssm_out_multiplier": 0.6, "ssm_multipliers": [0.7, 0.9, 1.1, 1.4, 0.8],
    "mlp_multipliers": [0.9, 0.7], "tie_word_embeddings": False,
}  # fmt: skip
# Each layer is one block alone. transformers would raise short steps to time_step_min, which
# NVIDIA's own code does not.
NEMOTRON_H: dict[str, Any] = {
    "model_type": "nemotron_h", **TINY, "head_dim": 24, "mamba_num_heads": 8, "mamba_head_dim": 24,
    "n_groups": 2, "ssm_state_size": 20, "conv_kernel": 4, "time_step_min": 1e-30,
}  # fmt: skip
# Mamba-1, of whose channels, states and ranks no vector divides the number.
SCAN: dict[str, Any] = {
    "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 3, "state_size": 7,
    "conv_kernel": 3, "time_step_rank": 5,
}  # fmt: skip
JAMBA: dict[str, Any] = {
    "model_type": "jamba", **TINY, "num_hidden_layers": 6, "mamba_expand": 3, "mamba_d_state": 12,
    "attn_layer_period": 4, "attn_layer_offset": 1, "expert_layer_period": 3,
    "expert_layer_offset": 2, "num_experts": 7, "num_experts_per_tok": 3,
    "tie_word_embeddings": False,
}  # fmt: skip
# Kimi Linear: latent attention without a rope, and linear attention of which each channel of the
# keys has a decay of its own. The last layer is recurrent.
KIMI: dict[str, Any] = {
    "model_type": "kimi_linear", **TINY, "num_key_value_heads": 4, "num_hidden_layers": 5,
    "kv_lora_rank": 40, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 32,
    "linear_num_heads": 4, "linear_head_dim": 24, "linear_conv_kernel_dim": 4,
    "moe_intermediate_size": 48, "num_local_experts": 12, "num_experts_per_tok": 3,
    "n_shared_experts": 2, "routed_scaling_factor": 1.7, "tie_word_embeddings": False,
}  # fmt: skip
KINDS_OF_LAYERS = ["full_attention", "linear_attention", "linear_attention"]

HYBRID_SHAPES: dict[str, dict[str, Any]] = {
    "tiny-mamba2": {
        "model_type": "mamba2", "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 3,
        "expand": 3, "num_heads": 8, "head_dim": 24, "n_groups": 2, "state_size": 20,
        "conv_kernel": 4,
    },
    "tiny-mamba": {
        "model_type": "mamba", **SCAN, "intermediate_size": 200, "use_bias": True,
        "tie_word_embeddings": True,
    },
    "tiny-falcon_mamba": {
        "model_type": "falcon_mamba", **SCAN, "expand": 3, "state_size": 16, "conv_kernel": 4,
        "time_step_rank": "auto", "mixer_rms_eps": 1e-3, "use_conv_bias": False,
        "tie_word_embeddings": False,
    },
    # The last layer has Mamba-1 and experts.
    "tiny-jamba": JAMBA,
    "tiny-jamba_dense": {
        **JAMBA, "num_experts": 1, "num_experts_per_tok": 1, "mamba_proj_bias": True,
        "mamba_dt_rank": 9, "attn_layer_offset": 3, "num_hidden_layers": 4,
        "tie_word_embeddings": True,
    },
    "mamba-130m": {
        "model_type": "mamba", "vocab_size": 50280, "hidden_size": 768, "num_hidden_layers": 24,
        "intermediate_size": 1536, "tie_word_embeddings": True,
    },
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
    "tiny-olmo_hybrid": {
        "model_type": "olmo_hybrid", **TINY, "num_hidden_layers": 5, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 24, "linear_value_head_dim": 40,
        "linear_conv_kernel_dim": 5,
        "rope_parameters": {"rope_type": "default", "rope_theta": None},
        "layer_types": [
            "linear_attention", "full_attention", "full_attention", "linear_attention",
            "linear_attention",
        ],
    },
    "tiny-lfm2": {
        "model_type": "lfm2", **CONVOLUTIONS, "intermediate_size": 200, "block_multiple_of": 48,
        "block_ffn_dim_multiplier": 1.1, "tie_word_embeddings": True,
    },
    "tiny-lfm3": {
        "model_type": "lfm3", **CONVOLUTIONS, "num_attention_heads": 8, "head_dim": 16,
        "conv_L_cache": 5, "sliding_window": 40, "tie_word_embeddings": True,
        "layer_types": ["conv", "sliding_attention", "full_attention", "conv", "sliding_attention"],
    },
    "tiny-lfm2_moe": {
        "model_type": "lfm2_moe", **CONVOLUTIONS, "conv_L_cache": 4, "num_dense_layers": 1,
        "layer_types": ["conv", "full_attention", "conv", "conv", "full_attention"],
        "moe_intermediate_size": 48, "num_experts": 10, "num_experts_per_tok": 3,
        "routed_scaling_factor": 1.5, "tie_word_embeddings": False,
    },
    # About as large as Granite 4.0 H 350M.
    "lfm3-1.7b": {
        "model_type": "lfm3", "vocab_size": 128000, "hidden_size": 2048, "intermediate_size": 7680,
        "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 4,
        "head_dim": 128, "max_position_embeddings": 32768, "tie_word_embeddings": True,
    },
    "granite-4-h-like": {
        "model_type": "granitemoehybrid", "vocab_size": 100352, "hidden_size": 768,
        "intermediate_size": 2048, "shared_intermediate_size": 2048, "num_hidden_layers": 32,
        "num_attention_heads": 12, "num_key_value_heads": 4, "max_position_embeddings": 32768,
        "layer_types": (["mamba"] * 7 + ["attention"]) * 4, "num_local_experts": 0,
        "num_experts_per_tok": 0, "position_embedding_type": "nope", "mamba_n_heads": 48,
        "mamba_d_head": 32, "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_expand": 2,
        "embedding_multiplier": 12.0, "residual_multiplier": 0.246,
        "attention_multiplier": 0.015625, "logits_scaling": 3.0, "tie_word_embeddings": True,
    },
    "tiny-granitemoehybrid_mamba": {"model_type": "granitemoehybrid", **GRANITE_MAMBA},
    "tiny-granitemoehybrid_moe": {
        "model_type": "granitemoehybrid", **GRANITE_MAMBA, "intermediate_size": 48,
        "num_local_experts": 7, "num_experts_per_tok": 3, "mamba_n_heads": 16, "mamba_d_head": 12,
        "mamba_n_groups": 1, "mamba_d_state": 40, "mamba_conv_bias": False,
        "layer_types": ["mamba", "attention", "mamba", "mamba", "attention"],
    },
    # Attention has a rope, and all sizes of the states are odd ones for vectors.
    "tiny-bamba": {
        "model_type": "bamba", **MAMBA, "attn_layer_indices": [1, 3], "mamba_n_heads": 32,
        "mamba_d_head": 6, "mamba_n_groups": 4, "mamba_d_state": 7, "mamba_d_conv": 3,
        "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False,
    },
    "tiny-falcon_h1": FALCON_H1,
    # The last block is an MLP, and blocks of one kind follow one another.
    "tiny-nemotron_h": {
        **NEMOTRON_H, "mlp_bias": True, "tie_word_embeddings": False,
        "layers_block_type": [
            "mlp", "linear_attention", "linear_attention", "mlp", "full_attention",
            "linear_attention", "mlp", "mlp",
        ],
    },
    "tiny-nemotron_h_moe": {
        **NEMOTRON_H, "mamba_num_heads": 16, "mamba_head_dim": 12, "n_groups": 1,
        "ssm_state_size": 36, "use_conv_bias": False, "n_routed_experts": 8, "n_group": 2,
        "topk_group": 1, "num_experts_per_tok": 3, "moe_intermediate_size": 48,
        "moe_shared_expert_intermediate_size": 80, "routed_scaling_factor": 1.5,
        "tie_word_embeddings": False,
        "layers_block_type": [
            "linear_attention", "moe", "full_attention", "mlp", "moe", "full_attention",
        ],
    },
    "tiny-kimi_linear": {
        **KIMI, "n_group": 4, "topk_group": 2,
        "layer_types": ["linear_attention", "full_attention", *["linear_attention"] * 3],
        "mlp_layer_types": ["dense", *["sparse"] * 4],
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
