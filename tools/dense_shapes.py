"""Tiny models of dense families that differ from Llama in more than sizes.

For make_random_checkpoint.py. Windows, original contexts of ropes and periods of scaled queries are
short, so that a prompt of a few hundred tokens exceeds them.
"""

from __future__ import annotations

from typing import Any

# The numbers are small and differ from one another, so that a mix-up of two dimensions changes a
# shape.
TINY: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}

MINISTRAL3: dict[str, Any] = {
    "model_type": "ministral3", **TINY, "head_dim": 32, "tie_word_embeddings": False,
    "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "beta_fast": 4.0, "beta_slow": 1.0,
        "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 64,
        "llama_4_scaling_beta": 0.3,
    },
}  # fmt: skip

QWEN_VISION = {
    "depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "out_hidden_size": 64,
    "patch_size": 4,
}  # fmt: skip

HEARING = {
    "d_model": 32, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 48,
    "num_mel_bins": 16, "max_source_positions": 64, "output_dim": 64,
}  # fmt: skip

VISION = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
    "image_size": 16, "patch_size": 4,
}  # fmt: skip

# Sizes of layers without a window are their own; the layers share nothing.
GEMMA4: dict[str, Any] = {
    "model_type": "gemma4_text", **TINY, "num_hidden_layers": 5, "head_dim": 24,
    "global_head_dim": 32, "num_global_key_value_heads": 1, "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0, "sliding_window": 40, "final_logit_softcapping": 8.0,
    "layer_types": ["sliding_attention"] * 2
    + ["full_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {
            "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6,
        },
    },
    "tie_word_embeddings": True,
}  # fmt: skip
# The last layers read the keys and values of others, and have wider feed-forward blocks.
GEMMA4_SHARING: dict[str, Any] = {
    "num_hidden_layers": 7, "num_kv_shared_layers": 3, "use_double_wide_mlp": True,
    "attention_k_eq_v": False,
    "layer_types": ["sliding_attention", "full_attention"]
    + ["sliding_attention"] * 4 + ["full_attention"],
}  # fmt: skip
# The layers have inputs of their own.
GEMMA4_INPUTS: dict[str, Any] = {
    **GEMMA4, **GEMMA4_SHARING, "hidden_size_per_layer_input": 20,
    "vocab_size_per_layer_input": 520, "use_bidirectional_attention": "vision",
}  # fmt: skip
GEMMA4_UNIFIED: dict[str, Any] = {**GEMMA4, "model_type": "gemma4_unified_text"}
del GEMMA4_UNIFIED["hidden_size_per_layer_input"]
# Three residual streams, of which layers read the second one. Some layers cut their gates, and
# blocks have several sizes; the last three layers read the keys and values of others. Fewer tokens
# have inputs of the layers than there are.
GEMMA3N: dict[str, Any] = {
    "model_type": "gemma3n_text", **TINY, "num_hidden_layers": 8, "head_dim": 24,
    "intermediate_size": [144, 144, 96, 144, 144, 144, 192, 144], "sliding_window": 40,
    "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 480,
    "altup_num_inputs": 3, "altup_active_idx": 1, "laurel_rank": 8, "num_kv_shared_layers": 3,
    "activation_sparsity_pattern": [0.9, 0.3, 0.0, 0.5, 0.0, 0.0, 0.95, 0.0],
    "final_logit_softcapping": 8.0, "rms_norm_eps": 1e-5,
    "layer_types": ["sliding_attention", "full_attention"]
    + ["sliding_attention"] * 5 + ["full_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
        "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5},
    },
    "tie_word_embeddings": True,
}  # fmt: skip
GEMMA4_VISION: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 16, "patch_size": 4, "position_embedding_size": 8,
}  # fmt: skip
GEMMA4_AUDIO: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "output_proj_dims": 16,
    "subsampling_conv_channels": [8, 4],
}  # fmt: skip

DENSE_SHAPES: dict[str, dict[str, Any]] = {
    "tiny-gemma3n_text": GEMMA3N,
    "tiny-gemma4_text": GEMMA4,
    "tiny-gemma4": {
        "model_type": "gemma4", "text_config": GEMMA4_INPUTS, "vision_config": GEMMA4_VISION,
        "audio_config": GEMMA4_AUDIO, "tie_word_embeddings": True,
    },
    "tiny-gemma4_unified_text": {**GEMMA4_UNIFIED, **GEMMA4_SHARING, "attention_bias": True},
    "tiny-gemma4_unified": {
        "model_type": "gemma4_unified",
        "text_config": {
            **GEMMA4_UNIFIED, "attention_k_eq_v": False, "final_logit_softcapping": None,
        },
        "vision_config": {"mm_embed_dim": 32, "output_proj_dims": 64},
        "tie_word_embeddings": False,
    },
    "tiny-glm": {"model_type": "glm", **TINY, "head_dim": 16, "tie_word_embeddings": False},
    "tiny-glm4": {"model_type": "glm4", **TINY, "head_dim": 24, "tie_word_embeddings": False},
    "tiny-ministral3": MINISTRAL3,
    "tiny-mistral3": {
        "model_type": "mistral3", "text_config": MINISTRAL3, "tie_word_embeddings": False,
        "vision_config": {"model_type": "pixtral", **VISION, "head_dim": 16},
    },
    "tiny-seed_oss": {
        "model_type": "seed_oss", **TINY, "head_dim": 32, "attention_out_bias": True,
        "mlp_bias": True, "tie_word_embeddings": False,
    },
    "tiny-exaone4": {
        "model_type": "exaone4", **TINY, "num_hidden_layers": 4, "sliding_window": 40,
        "tie_word_embeddings": False,
        "layer_types": ["sliding_attention"] * 2 + ["full_attention", "sliding_attention"],
    },
    "tiny-ernie4_5": {
        "model_type": "ernie4_5", **TINY, "head_dim": 32, "use_bias": True,
        "tie_word_embeddings": True,
    },
    "tiny-bitnet": {"model_type": "bitnet", **TINY, "tie_word_embeddings": True},
    "tiny-hunyuan_v1_dense": {
        "model_type": "hunyuan_v1_dense", **TINY, "head_dim": 16, "attention_bias": True,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "dynamic", "rope_theta": 1e4, "alpha": 50.0, "factor": 1.0,
        },
    },
    "tiny-internlm3": {
        "model_type": "internlm3", **TINY, "head_dim": 16, "attention_bias": True,
        "mlp_bias": True, "tie_word_embeddings": False,
    },
    "tiny-qwen2_5_vl": {
        "model_type": "qwen2_5_vl", "vision_config": {**QWEN_VISION, "fullatt_block_indexes": [0]},
        "text_config": {
            **TINY, "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3],
            },
        },
        "tie_word_embeddings": True,
    },
    "tiny-qwen2_5_omni_thinker": {
        "model_type": "qwen2_5_omni_thinker",
        "vision_config": {**QWEN_VISION, "fullatt_block_indexes": [0]}, "audio_config": HEARING,
        "text_config": {
            **TINY, "tie_word_embeddings": False,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3],
            },
        },
        "tie_word_embeddings": False,
    },
    "tiny-qwen3_vl": {
        "model_type": "qwen3_vl",
        "vision_config": {**QWEN_VISION, "deepstack_visual_indexes": [0]},
        "text_config": {
            **TINY, "head_dim": 32,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e6, "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
        },
        "tie_word_embeddings": False,
    },
    "tiny-arcee": {
        "model_type": "arcee", **TINY, "mlp_bias": True, "tie_word_embeddings": False,
    },
    "tiny-nemotron": {
        "model_type": "nemotron", **TINY, "head_dim": 24, "attention_bias": True,
        "mlp_bias": True, "tie_word_embeddings": False,
    },
    "tiny-starcoder2": {
        "model_type": "starcoder2", **TINY, "sliding_window": 40, "tie_word_embeddings": True,
    },
    "tiny-apertus": {
        "model_type": "apertus", **TINY, "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        },
    },
    "tiny-cohere": {
        "model_type": "cohere", **TINY, "use_qk_norm": True, "logit_scale": 0.3,
        "tie_word_embeddings": True,
    },
    "tiny-cohere2": {
        "model_type": "cohere2", **TINY, "num_hidden_layers": 4, "sliding_window": 40,
        "logit_scale": 0.3, "tie_word_embeddings": True,
        "layer_types": ["sliding_attention"] * 2 + ["full_attention", "sliding_attention"],
    },
    "tiny-ministral": {
        "model_type": "ministral", **TINY, "num_hidden_layers": 4, "head_dim": 16,
        "sliding_window": 40,
        "tie_word_embeddings": False,
        "layer_types": ["sliding_attention"] * 2 + ["full_attention", "sliding_attention"],
    },
    "tiny-helium": {
        "model_type": "helium", **TINY, "head_dim": 16, "attention_bias": True,
        "mlp_bias": True, "tie_word_embeddings": False,
    },
    "tiny-cwm": {
        "model_type": "cwm", **TINY, "num_hidden_layers": 5, "head_dim": 32,
        "sliding_window": 40, "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 1e4, "factor": 16.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        },
    },
    "tiny-vaultgemma": {
        "model_type": "vaultgemma", **TINY, "num_hidden_layers": 4, "head_dim": 32,
        "query_pre_attn_scalar": 24, "sliding_window": 40, "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 8.0, "tie_word_embeddings": True,
    },
    "tiny-hyperclovax": {
        "model_type": "hyperclovax", **TINY, "head_dim": 24, "embedding_multiplier": 6.0,
        "residual_multiplier": 0.4, "logits_scaling": 3.0, "tie_word_embeddings": False,
    },
    "tiny-granite_swa": {
        "model_type": "granite_swa", **TINY, "num_hidden_layers": 5, "sliding_window": 40,
        "embedding_multiplier": 6.0, "residual_multiplier": 0.4, "attention_multiplier": 0.15,
        "logits_scaling": 3.0, "layer_rope_theta": [0, 1e4, 1e4, 5e5, 1e6],
        "tie_word_embeddings": True,
    },
    "tiny-jais2": {"model_type": "jais2", **TINY, "head_dim": 24, "tie_word_embeddings": False},
    "tiny-phi": {
        "model_type": "phi", **TINY, "partial_rotary_factor": 0.5, "tie_word_embeddings": False,
    },
    "tiny-olmo": {"model_type": "olmo", **TINY, "tie_word_embeddings": False},
    "tiny-nanochat": {
        "model_type": "nanochat", **TINY, "final_logit_softcapping": 5.0,
        "tie_word_embeddings": False,
    },
    "tiny-gpt_neox": {
        "model_type": "gpt_neox", **TINY, "num_key_value_heads": None,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
        },
        "tie_word_embeddings": False,
    },
    "tiny-youtu": {
        "model_type": "youtu", **TINY, "num_key_value_heads": 4, "q_lora_rank": 48,
        "kv_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 32,
        "tie_word_embeddings": True,
    },
    "tiny-minicpm3": {
        "model_type": "minicpm3", **TINY, "num_key_value_heads": 4, "q_lora_rank": 48,
        "kv_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 24,
        "scale_emb": 6.0, "scale_depth": 0.8, "dim_model_base": 16, "tie_word_embeddings": True,
    },
    "tiny-qwen2_vl": {
        "model_type": "qwen2_vl", "vision_config": {**QWEN_VISION, "embed_dim": 32},
        "text_config": {
            **TINY, "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3],
            },
        },
        "tie_word_embeddings": False,
    },
    "tiny-glm4v": {
        "model_type": "glm4v", "vision_config": QWEN_VISION,
        "text_config": {
            **TINY, "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
                "mrope_section": [2, 1, 1],
            },
        },
        "tie_word_embeddings": False,
    },
    "tiny-glm46v": {
        "model_type": "glm46v", "vision_config": {"model_type": "glm4v_vision", **QWEN_VISION},
        "text_config": {
            "model_type": "glm4v_text", **TINY, "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3],
            },
        },
        "tie_word_embeddings": True,
    },
    "tiny-glm_ocr": {
        "model_type": "glm_ocr", "vision_config": QWEN_VISION,
        "text_config": {
            **TINY, "head_dim": 24, "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 4, 4],
            },
        },
        "tie_word_embeddings": False,
    },
    "tiny-paddleocr_vl": {
        "model_type": "paddleocr_vl",
        "vision_config": VISION,
        "text_config": {
            **TINY, "head_dim": 32, "use_bias": True, "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 5e5, "mrope_section": [4, 6, 6],
            },
        },
        "tie_word_embeddings": True,
    },
    "tiny-llava": {
        "model_type": "llava", "vision_config": {"model_type": "clip_vision_model", **VISION},
        "text_config": {"model_type": "llama", **TINY, "head_dim": 32},
        "tie_word_embeddings": False,
    },
    "tiny-stablelm": {
        "model_type": "stablelm", **TINY, "num_key_value_heads": 4, "partial_rotary_factor": 0.5,
        "use_qkv_bias": True, "qk_layernorm": True, "tie_word_embeddings": False,
    },
}  # fmt: skip
