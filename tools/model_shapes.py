"""The shapes that make_random_checkpoint.py knows: fields of config.json, by the shape's name.

Here are real shapes and the tiny models of the families that came first. The others have files of
their own, by kind.
"""

from __future__ import annotations

from typing import Any

from dense_shapes import DENSE_SHAPES
from dense_shapes import TINY as _TINY
from encoder_shapes import ENCODER_SHAPES
from expert_shapes import EXPERT_SHAPES
from gpt_shapes import GPT_SHAPES
from hybrid_shapes import HYBRID_SHAPES
from image_shapes import IMAGE_SHAPES

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {
        "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024,
        "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
        "rope_theta": 1e6, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
    },
    "embeddinggemma-300m": {
        "model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 768,
        "intermediate_size": 1152, "num_hidden_layers": 24, "num_attention_heads": 3,
        "num_key_value_heads": 1, "head_dim": 256, "max_position_embeddings": 2048,
        "query_pre_attn_scalar": 256, "sliding_window": 512, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True, "use_bidirectional_attention": True,
    },
    "qwen3-4b": {
        "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 2560,
        "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
        "rope_theta": 1e6, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048,
        "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 40960,
        "rope_theta": 1e6, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
        "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
        "norm_topk_prob": True,
    },
    "llama-3.2-1b": {
        "model_type": "llama", "vocab_size": 128256, "hidden_size": 2048,
        "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072,
        "rope_theta": 5e5, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        },
    },
    "bitnet-2b": {
        "model_type": "bitnet", "vocab_size": 128256, "hidden_size": 2560,
        "intermediate_size": 6912, "num_hidden_layers": 30, "num_attention_heads": 20,
        "num_key_value_heads": 5, "max_position_embeddings": 4096, "rope_theta": 5e5,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
    },
    "llama-3.1-8b": {
        "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
        "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072,
        "rope_theta": 5e5, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        },
    },
    "tiny-llama": {
        "model_type": "llama", **_TINY, "rope_theta": 1e4, "tie_word_embeddings": False,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        },
    },
    "tiny-mistral": {
        "model_type": "mistral", **_TINY, "head_dim": 16, "sliding_window": 48,
        "tie_word_embeddings": False,
    },
    "tiny-qwen2": {"model_type": "qwen2", **_TINY, "tie_word_embeddings": True},
    "tiny-qwen3": {
        "model_type": "qwen3", **_TINY, "head_dim": 32, "tie_word_embeddings": True,
    },
    "tiny-qwen3_moe": {
        "model_type": "qwen3_moe", **_TINY, "num_hidden_layers": 4, "head_dim": 32,
        "moe_intermediate_size": 48, "num_experts": 12, "num_experts_per_tok": 3,
        "norm_topk_prob": True, "mlp_only_layers": [1], "tie_word_embeddings": False,
    },
    "tiny-olmoe": {
        "model_type": "olmoe", **_TINY, "intermediate_size": 48, "num_experts": 10,
        "num_experts_per_tok": 4, "tie_word_embeddings": False,
    },
    "tiny-mixtral": {
        "model_type": "mixtral", **_TINY, "head_dim": 16, "intermediate_size": 96,
        "num_local_experts": 5, "sliding_window": 48, "tie_word_embeddings": False,
    },
    "tiny-qwen2_moe": {
        "model_type": "qwen2_moe", **_TINY, "moe_intermediate_size": 48, "num_experts": 9,
        "num_experts_per_tok": 2, "shared_expert_intermediate_size": 80,
        "tie_word_embeddings": False,
    },
    "tiny-granitemoe": {
        "model_type": "granitemoe", **_TINY, "intermediate_size": 48, "num_local_experts": 7,
        "num_experts_per_tok": 3, "embedding_multiplier": 6.0, "residual_multiplier": 0.4,
        "attention_multiplier": 0.15, "logits_scaling": 3.0, "tie_word_embeddings": True,
    },
    "tiny-granitemoeshared": {
        "model_type": "granitemoeshared", **_TINY, "intermediate_size": 48, "num_local_experts": 7,
        "num_experts_per_tok": 2, "shared_intermediate_size": 72, "residual_multiplier": 0.4,
        "attention_multiplier": 0.2, "tie_word_embeddings": True,
    },
    "tiny-phimoe": {
        "model_type": "phimoe", **_TINY, "intermediate_size": 48, "num_local_experts": 6,
        "attention_bias": True, "lm_head_bias": True, "router_jitter_noise": 0.2,
        "tie_word_embeddings": False,
    },
    "tiny-glm4_moe": {
        "model_type": "glm4_moe", **_TINY, "head_dim": 16, "moe_intermediate_size": 48,
        "n_routed_experts": 12, "num_experts_per_tok": 3, "n_shared_experts": 2, "n_group": 4,
        "topk_group": 2, "routed_scaling_factor": 1.7, "attention_bias": True,
        "use_qk_norm": True, "tie_word_embeddings": False,
    },
    "tiny-deepseek_v3": {
        "model_type": "deepseek_v3", **_TINY, "num_key_value_heads": 4, "q_lora_rank": 24,
        "kv_lora_rank": 40, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 32,
        "moe_intermediate_size": 48, "n_routed_experts": 12, "num_experts_per_tok": 3,
        "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1,
        "routed_scaling_factor": 1.7, "attention_bias": True, "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "mscale": 1.0,
            "mscale_all_dim": 0.8, "original_max_position_embeddings": 128,
        },
    },
    # So many heads of the index that no scores are zeros, of which any may be taken.
    "tiny-deepseek_v32": {
        "model_type": "deepseek_v32", **_TINY, "num_key_value_heads": 4, "q_lora_rank": 24,
        "kv_lora_rank": 40, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 32,
        "moe_intermediate_size": 48, "n_routed_experts": 12, "num_experts_per_tok": 3,
        "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1,
        "routed_scaling_factor": 1.7, "attention_bias": True, "tie_word_embeddings": False,
        "index_topk": 40, "index_head_dim": 24, "index_n_heads": 21,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "mscale": 1.0,
            "mscale_all_dim": 0.8, "original_max_position_embeddings": 128,
        },
    },
    # All kinds of layers twice, with windows and entries that end within a page and behind it.
    "tiny-deepseek_v4": {
        "model_type": "deepseek_v4", "vocab_size": 261, "hidden_size": 64,
        "max_position_embeddings": 512, "moe_intermediate_size": 48, "num_hidden_layers": 6,
        "num_attention_heads": 6, "head_dim": 40, "q_lora_rank": 24, "num_experts_per_tok": 3,
        "n_routed_experts": 8, "partial_rotary_factor": 0.4, "sliding_window": 21, "o_groups": 3,
        "o_lora_rank": 20, "index_n_heads": 21, "index_head_dim": 24, "index_topk": 7,
        "hc_sinkhorn_iters": 4, "swiglu_limit": 1.5, "routed_scaling_factor": 1.7,
        "tie_word_embeddings": False,
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 24},
        "layer_types": [
            "sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention",
            "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
        ],
        "mlp_layer_types": ["hash_moe", "moe", "hash_moe", "moe", "moe", "moe"],
        "rope_parameters": {
            "main": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.4},
            "compress": {
                "rope_type": "yarn", "rope_theta": 1.6e5, "partial_rotary_factor": 0.4,
                "factor": 8.0, "original_max_position_embeddings": 64, "attention_factor": 1.0,
                "beta_fast": 32.0, "beta_slow": 1.0,
            },
        },
    },
    "tiny-glm_moe_dsa": {
        "model_type": "glm_moe_dsa", **_TINY, "num_hidden_layers": 4, "num_key_value_heads": 4,
        "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
        "v_head_dim": 32, "moe_intermediate_size": 48, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 2,
        "index_topk": 56, "index_head_dim": 16, "index_n_heads": 24,
        "indexer_types": ["full", "shared", "full", "shared"], "tie_word_embeddings": False,
    },
    "tiny-deepseek_v2": {
        "model_type": "deepseek_v2", **_TINY, "num_key_value_heads": 4, "q_lora_rank": None,
        "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
        "moe_intermediate_size": 48, "n_routed_experts": 8, "num_experts_per_tok": 3,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "topk_method": "greedy",
        "tie_word_embeddings": False,
    },
    "tiny-glm4_moe_lite": {
        "model_type": "glm4_moe_lite", **_TINY, "num_key_value_heads": 4, "q_lora_rank": 48,
        "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 32,
        "moe_intermediate_size": 48, "n_routed_experts": 8, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "tie_word_embeddings": False,
    },
    "tiny-mistral4": {
        "model_type": "mistral4", **_TINY, "num_key_value_heads": 4, "q_lora_rank": 48,
        "kv_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 32,
        "moe_intermediate_size": 48, "n_routed_experts": 8, "num_experts_per_tok": 3,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 64,
            "llama_4_scaling_beta": 0.1,
        },
    },
    "tiny-minimax_m2": {
        "model_type": "minimax_m2", **_TINY, "head_dim": 32, "intermediate_size": 48,
        "num_local_experts": 8, "num_experts_per_tok": 3, "rotary_dim": 16,
        "tie_word_embeddings": False,
    },
    "tiny-ernie4_5_moe": {
        "model_type": "ernie4_5_moe", **_TINY, "num_hidden_layers": 4, "moe_intermediate_size": 48,
        "moe_num_experts": 8, "moe_k": 3, "moe_layer_start_index": 1, "moe_layer_end_index": 2,
        "tie_word_embeddings": True,
    },
    "tiny-phi3": {
        "model_type": "phi3", **_TINY, "tie_word_embeddings": False, "sliding_window": None,
        "original_max_position_embeddings": 1024,
    },
    "tiny-gemma": {
        "model_type": "gemma", **_TINY, "head_dim": 32, "tie_word_embeddings": True,
    },
    "tiny-gemma2": {
        "model_type": "gemma2", **_TINY, "num_hidden_layers": 4, "head_dim": 32,
        "query_pre_attn_scalar": 24, "sliding_window": 40, "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 8.0, "tie_word_embeddings": True,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "tiny-gemma3_text": {
        "model_type": "gemma3_text", **_TINY, "num_hidden_layers": 4, "head_dim": 32,
        "query_pre_attn_scalar": 24, "sliding_window": 40, "rope_theta": 1e6,
        "rope_local_base_freq": 1e4, "tie_word_embeddings": True,
        "layer_types": ["sliding_attention"] * 2 + ["full_attention", "sliding_attention"],
    },
    "tiny-olmo2": {"model_type": "olmo2", **_TINY, "tie_word_embeddings": False},
    "tiny-olmo3": {
        "model_type": "olmo3", **_TINY, "num_hidden_layers": 4, "tie_word_embeddings": False,
        "sliding_window": 40, "rope_theta": 1e4,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 128,
        },
        "layer_types": ["sliding_attention"] * 2 + ["full_attention", "sliding_attention"],
    },
    "tiny-granite": {
        "model_type": "granite", **_TINY, "tie_word_embeddings": False,
        "embedding_multiplier": 6.0, "residual_multiplier": 0.4, "attention_multiplier": 0.15,
        "logits_scaling": 3.0,
    },
    "tiny-granitemoehybrid": {
        "model_type": "granitemoehybrid", **_TINY, "num_hidden_layers": 3,
        "layer_types": ["attention"] * 3, "num_local_experts": 0, "num_experts_per_tok": 0,
        "shared_intermediate_size": 72, "position_embedding_type": "rope",
        "embedding_multiplier": 6.0, "residual_multiplier": 0.4, "attention_multiplier": 0.15,
        "logits_scaling": 3.0, "tie_word_embeddings": True,
    },
    "tiny-smollm3": {
        "model_type": "smollm3", **_TINY, "num_hidden_layers": 4, "no_rope_layers": [1, 0, 1, 0],
        "use_sliding_window": True, "sliding_window": 40, "tie_word_embeddings": True,
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss", "vocab_size": 201088, "hidden_size": 2880,
        "intermediate_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 32,
        "num_experts_per_tok": 4, "sliding_window": 128, "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    },
    "deepseek-v2-lite": {
        "model_type": "deepseek_v2", "vocab_size": 102400, "hidden_size": 2048,
        "intermediate_size": 10944, "num_hidden_layers": 27, "num_attention_heads": 16,
        "num_key_value_heads": 16, "q_lora_rank": None, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "moe_intermediate_size": 1408, "n_routed_experts": 64, "num_experts_per_tok": 6,
        "n_shared_experts": 2, "first_k_dense_replace": 1, "topk_method": "greedy",
        "max_position_embeddings": 163840, "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "mscale": 0.707, "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 4096,
        },
    },
    "deepseek-v32-layer": {  # attention of one layer, and little else
        "model_type": "deepseek_v32", "vocab_size": 512, "hidden_size": 2048,
        "intermediate_size": 2048, "num_hidden_layers": 1, "num_attention_heads": 128,
        "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "index_topk": 2048,
        "index_head_dim": 128, "index_n_heads": 64, "first_k_dense_replace": 1,
        "moe_intermediate_size": 48, "n_routed_experts": 12, "num_experts_per_tok": 3,
        "n_group": 4, "topk_group": 2, "max_position_embeddings": 163840,
        "tie_word_embeddings": False,
    },
    "tiny-gpt_oss": {
        "model_type": "gpt_oss", **_TINY, "intermediate_size": 96, "num_hidden_layers": 4,
        "head_dim": 32, "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 40,
        "swiglu_limit": 1.5, "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1.5e5, "factor": 8.0, "beta_fast": 4.0,
            "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 128,
        },
    },
    **DENSE_SHAPES,
    **IMAGE_SHAPES,
    **EXPERT_SHAPES,
    **GPT_SHAPES,
    **ENCODER_SHAPES,
    **HYBRID_SHAPES,
}  # fmt: skip
