"""Tiny models of families with mixtures of experts that combine what others have.

For make_random_checkpoint.py, as those of dense_shapes.py.
"""

from __future__ import annotations

from typing import Any

from dense_shapes import GEMMA4, HEARING, QWEN_VISION, TINY, VISION

LATENT: dict[str, Any] = {
    "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 40, "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 16, "v_head_dim": 32, "moe_intermediate_size": 48, "n_routed_experts": 12,
    "num_experts_per_tok": 3, "n_shared_experts": 2, "n_group": 4, "topk_group": 2,
    "routed_scaling_factor": 1.7, "first_k_dense_replace": 1,
}  # fmt: skip
GLM_EXPERTS: dict[str, Any] = {
    "moe_intermediate_size": 48, "n_routed_experts": 12, "num_experts_per_tok": 3,
    "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7,
}  # fmt: skip
LLAMA4: dict[str, Any] = {
    **TINY, "num_hidden_layers": 4, "head_dim": 32, "intermediate_size": 48,
    "intermediate_size_mlp": 96, "num_local_experts": 6, "interleave_moe_layer_step": 2,
    "no_rope_layers": [1, 0, 1, 1], "attention_chunk_size": 40, "floor_scale": 32,
    "attn_scale": 0.3, "tie_word_embeddings": False,
    "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 16.0, "low_freq_factor": 1.0,
        "high_freq_factor": 1.0, "original_max_position_embeddings": 64,
    },
}  # fmt: skip
KINDS_OF_LAYERS = ["sliding_attention"] * 2 + ["full_attention", "sliding_attention"]

EXPERT_SHAPES: dict[str, dict[str, Any]] = {
    "tiny-gemma4_text-experts": {
        **GEMMA4, "enable_moe_block": True, "num_experts": 10, "top_k_experts": 3,
        "moe_intermediate_size": 48,
    },
    "tiny-flint": {
        "model_type": "flint", **TINY, "num_hidden_layers": 7, "head_dim": 32,
        "moe_intermediate_size": 48, "shared_expert_intermediate_size": 72, "num_experts": 9,
        "num_experts_per_tok": 3, "sliding_window": 41, "mlp_only_layers": [0, 2],
        "tie_word_embeddings": False,
    },
    "tiny-kolibri1": {
        "model_type": "kolibri1", **TINY, "num_hidden_layers": 5, "head_dim": 32,
        "moe_intermediate_size": 48, "shared_expert_intermediate_size": 72, "num_experts": 9,
        "num_experts_per_tok": 3, "norm_topk_prob": True, "sliding_window": 41,
        "tie_word_embeddings": False,
    },
    "tiny-qwen3_omni_moe_thinker": {
        "model_type": "qwen3_omni_moe_thinker",
        "vision_config": {**QWEN_VISION, "deepstack_visual_indexes": [0]},
        "audio_config": HEARING,
        "text_config": {
            **TINY, "moe_intermediate_size": 48, "num_experts": 9, "num_experts_per_tok": 3,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2],
                "mrope_interleaved": True,
            },
        },
    },
    "tiny-dots1": {
        "model_type": "dots1", **TINY, **GLM_EXPERTS, "num_hidden_layers": 4, "head_dim": 24,
        "first_k_dense_replace": 1, "norm_topk_prob": True, "attention_bias": True,
        "sliding_window": 40, "layer_types": KINDS_OF_LAYERS, "tie_word_embeddings": False,
    },
    "tiny-hunyuan_v1_moe": {
        "model_type": "hunyuan_v1_moe", **TINY, "intermediate_size": 48, "head_dim": 32,
        "num_experts": 10, "moe_topk": [3, 3, 3], "attention_bias": True,
        "rope_parameters": {
            "rope_type": "dynamic", "rope_theta": 1e4, "alpha": 50.0, "factor": 1.0,
        },
        "tie_word_embeddings": True,
    },
    "tiny-qwen3_vl_moe": {
        "model_type": "qwen3_vl_moe",
        "vision_config": {**QWEN_VISION, "deepstack_visual_indexes": [0]},
        "text_config": {
            **TINY, "num_hidden_layers": 4, "head_dim": 32, "moe_intermediate_size": 48,
            "num_experts": 9, "num_experts_per_tok": 3, "mlp_only_layers": [1],
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e6, "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
        },
        "tie_word_embeddings": False,
    },
    "tiny-glm4v_moe": {
        "model_type": "glm4v_moe",
        "vision_config": {**QWEN_VISION, "image_size": 16},
        "text_config": {
            **TINY, **GLM_EXPERTS, "head_dim": 32,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3],
                "partial_rotary_factor": 0.5,
            },
        },
        "tie_word_embeddings": False,
    },
    "tiny-exaone_moe": {
        "model_type": "exaone_moe", **TINY, "num_hidden_layers": 4, "head_dim": 32,
        "moe_intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 3,
        "num_shared_experts": 2, "n_group": 2, "topk_group": 1, "sliding_window": 40,
        "layer_types": KINDS_OF_LAYERS, "tie_word_embeddings": False,
    },
    "tiny-solar_open": {
        "model_type": "solar_open", **TINY, **GLM_EXPERTS, "head_dim": 24,
        "attention_bias": True, "tie_word_embeddings": False,
    },
    "tiny-kimi_k25": {
        "model_type": "kimi_k25",
        "vision_config": {
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
            "num_attention_heads": 2, "pos_emb_height": 4, "pos_emb_width": 4, "patch_size": 4,
        },
        "text_config": {
            **TINY, **LATENT,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 5e4, "factor": 8.0, "mscale": 1.0,
                "mscale_all_dim": 1.0, "original_max_position_embeddings": 64,
            },
        },
        "projection_hidden_size": 32, "tie_word_embeddings": False,
    },
    "tiny-axk1": {
        "model_type": "axk1", **TINY, **LATENT, "n_group": 3, "tie_word_embeddings": False,
    },
    "tiny-flex_olmo": {
        "model_type": "flex_olmo", **TINY, "intermediate_size": 48, "num_experts": 7,
        "num_experts_per_tok": 3, "norm_topk_prob": True, "tie_word_embeddings": False,
    },
    "tiny-hy_v3": {
        "model_type": "hy_v3", **TINY, "head_dim": 32, "moe_intermediate_size": 48,
        "num_experts": 10, "num_experts_per_tok": 3, "num_shared_experts": 2, "mlp_bias": True,
        "tie_word_embeddings": False,
    },
    "tiny-granitemoe_swa": {
        "model_type": "granitemoe_swa", **TINY, "num_hidden_layers": 5, "intermediate_size": 48,
        "num_local_experts": 7, "num_experts_per_tok": 3, "shared_intermediate_size": 72,
        "sliding_window": 40, "layer_rope_theta": [1e4, 0, 5e4, 1e4, 0],
        "embedding_multiplier": 6.0, "residual_multiplier": 0.4, "attention_multiplier": 0.15,
        "logits_scaling": 3.0, "tie_word_embeddings": True,
    },
    "tiny-glm46v_moe": {
        "model_type": "glm46v",
        "vision_config": {"model_type": "glm4v_moe_vision", **QWEN_VISION, "image_size": 16},
        "text_config": {
            "model_type": "glm4v_moe_text", **TINY, **GLM_EXPERTS, "first_k_dense_replace": 0,
            "attention_bias": False,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2],
                "partial_rotary_factor": 0.5,
            },
        },
        "tie_word_embeddings": False,
    },
    "tiny-afmoe": {
        "model_type": "afmoe", **TINY, "num_hidden_layers": 5, "head_dim": 24,
        "moe_intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 3,
        "num_shared_experts": 2, "route_scale": 1.7, "num_dense_layers": 2, "mup_enabled": True,
        "sliding_window": 40, "global_attn_every_n_layers": 2, "tie_word_embeddings": False,
    },
    "tiny-cohere2_moe": {
        "model_type": "cohere2_moe", **TINY, "num_hidden_layers": 6, "head_dim": 32,
        "intermediate_size": 48, "prefix_dense_intermediate_size": 160, "num_experts": 9,
        "num_experts_per_tok": 3, "num_shared_experts": 2, "expert_selection_fn": "sigmoid",
        "norm_topk_prob": False, "first_k_dense_replace": 1, "sliding_window": 41,
        "sliding_window_pattern": 3, "rms_norm_eps": 1e-5, "logit_scale": 0.3,
    },
    "tiny-mimo_v2_flash": {
        "model_type": "mimo_v2_flash", **TINY, "num_hidden_layers": 7, "head_dim": 24,
        "v_head_dim": 16, "attention_value_scale": 0.6, "sliding_window": 41,
        "moe_intermediate_size": 48, "n_routed_experts": 12, "num_experts_per_tok": 3,
        "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7,
        "mlp_layer_types": ["dense", "sparse", "dense", "sparse", "sparse", "sparse", "sparse"],
        "rope_parameters": {
            "full_attention": {
                "rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.5,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    "tiny-laguna": {
        "model_type": "laguna", **TINY, "num_hidden_layers": 5, "head_dim": 16,
        "num_attention_heads": 8, "num_attention_heads_per_layer": [8, 16, 8, 24, 16],
        "layer_types": ["full_attention", *KINDS_OF_LAYERS],
        "mlp_layer_types": ["dense", "sparse", "sparse", "dense", "sparse"],
        "moe_intermediate_size": 48, "shared_expert_intermediate_size": 72, "num_experts": 9,
        "num_experts_per_tok": 3, "moe_routed_scaling_factor": 1.7,
        "moe_router_logit_softcapping": 0.9, "sliding_window": 41,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn", "rope_theta": 1e5, "factor": 8.0, "beta_fast": 64.0,
                "original_max_position_embeddings": 64, "partial_rotary_factor": 0.5,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    "tiny-llama4_text": {"model_type": "llama4_text", **LLAMA4},
    "tiny-llama4": {
        "model_type": "llama4", "text_config": LLAMA4,
        "vision_config": {**VISION, "vision_output_dim": 32, "projector_input_dim": 32,
                          "projector_output_dim": 32},
    },
    "tiny-mellum": {
        "model_type": "mellum", **TINY, "num_hidden_layers": 4, "head_dim": 32,
        "moe_intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 3,
        "sliding_window": 40, "layer_types": KINDS_OF_LAYERS,
        "mlp_layer_types": ["sparse", "dense", "sparse", "sparse"],
        "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn", "rope_theta": 5e5, "factor": 8.0,
                "original_max_position_embeddings": 128,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
        "tie_word_embeddings": False,
    },
}  # fmt: skip
