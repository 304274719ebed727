"""Tiny models with images whose text model is one of another family. For make_random_checkpoint.py.

Windows and original contexts of ropes are short, as in dense_shapes.py.
"""

from __future__ import annotations

from typing import Any

from dense_shapes import QWEN_VISION, TINY, VISION

CLIP = {"model_type": "clip_vision_model", **VISION}
SIGLIP = {"model_type": "siglip_vision_model", **VISION}
PIXTRAL = {"model_type": "pixtral", **VISION, "head_dim": 16}

LLAMA: dict[str, Any] = {
    "model_type": "llama", **TINY, "head_dim": 32,
    "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
    },
}  # fmt: skip
MISTRAL = {"model_type": "mistral", **TINY, "head_dim": 16, "sliding_window": 48}
QWEN2 = {"model_type": "qwen2", **TINY}
QWEN3 = {"model_type": "qwen3", **TINY, "head_dim": 32}
GRANITE = {
    "model_type": "granite", **TINY, "embedding_multiplier": 6.0, "residual_multiplier": 0.4,
    "attention_multiplier": 0.15, "logits_scaling": 3.0,
}  # fmt: skip
GPT_OSS = {
    "model_type": "gpt_oss", **TINY, "intermediate_size": 96, "head_dim": 32,
    "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 40,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1.5e5},
}  # fmt: skip
COHERE = {"model_type": "cohere", **TINY, "use_qk_norm": True, "logit_scale": 0.3}
COHERE2 = {
    "model_type": "cohere2", **TINY, "num_hidden_layers": 4, "sliding_window": 40,
    "logit_scale": 0.3,
}  # fmt: skip
LFM2 = {
    "model_type": "lfm2", **TINY, "intermediate_size": 200, "block_multiple_of": 48,
    "layer_types": ["conv", "full_attention", "conv"],
}  # fmt: skip
LFM3 = {
    "model_type": "lfm3", **TINY, "head_dim": 16, "norm_eps": 1e-5, "pad_token_id": 2,
    "layer_types": ["conv", "full_attention", "conv"],
}  # fmt: skip
QWEN3_5 = {
    "model_type": "qwen3_5_text", **TINY, "num_hidden_layers": 4, "head_dim": 32,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 24,
    "linear_value_head_dim": 40, "linear_conv_kernel_dim": 4,
}  # fmt: skip
GEMMA3 = {
    "model_type": "gemma3_text", **TINY, "num_hidden_layers": 4, "head_dim": 32,
    "query_pre_attn_scalar": 24, "sliding_window": 40, "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
    "layer_types": ["sliding_attention"] * 2 + ["full_attention", "sliding_attention"],
}  # fmt: skip
EXAONE4 = {
    "model_type": "exaone4", **TINY, "num_hidden_layers": 4, "sliding_window": 40,
    "layer_types": ["sliding_attention"] * 2 + ["full_attention", "sliding_attention"],
}  # fmt: skip
HYPERCLOVAX = {
    "model_type": "hyperclovax", **TINY, "residual_multiplier": 0.4, "logits_scaling": 3.0,
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", **TINY, "num_key_value_heads": 4, "q_lora_rank": 24,
    "kv_lora_rank": 40, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 32,
    "moe_intermediate_size": 48, "n_routed_experts": 12, "num_experts_per_tok": 3,
    "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1,
}  # fmt: skip


def _shape(
    model_type: str, vision: dict[str, Any], text: dict[str, Any], tied: bool, **other: Any
) -> dict[str, Any]:
    return {
        "model_type": model_type, "vision_config": vision, "text_config": text,
        "tie_word_embeddings": tied, **other,
    }  # fmt: skip


IMAGE_SHAPES: dict[str, dict[str, Any]] = {
    "image-llava-mistral": _shape("llava", CLIP, MISTRAL, False),
    "image-llava_next-granite": _shape("llava_next", SIGLIP, GRANITE, True),
    "image-llava_next_video": _shape("llava_next_video", CLIP, LLAMA, False),
    "image-llava_onevision": _shape("llava_onevision", SIGLIP, QWEN2, True),
    "image-vipllava": _shape("vipllava", {**CLIP, "num_hidden_layers": 9}, LLAMA, False),
    "image-internvl": _shape("internvl", VISION, QWEN3, False),
    "image-internvl-gpt_oss": _shape("internvl", VISION, GPT_OSS, False),
    "image-qianfan_ocr": _shape("qianfan_ocr", VISION, QWEN3, True),
    "image-aya_vision-cohere": _shape("aya_vision", SIGLIP, COHERE, True),
    "image-cohere2_vision": _shape("cohere2_vision", SIGLIP, COHERE2, True),
    "image-deepseek_vl": _shape("deepseek_vl", SIGLIP, LLAMA, True),
    "image-exaone4_5": _shape(
        "exaone4_5",
        {**QWEN_VISION, "num_key_value_heads": 1, "fullatt_block_indexes": [0]},
        EXAONE4,
        False,
    ),
    "image-gemma3": _shape(
        "gemma3", {**SIGLIP, "image_size": 32}, GEMMA3, True, mm_tokens_per_image=16
    ),
    "image-idefics3": _shape("idefics3", VISION, LLAMA, False),
    "image-smolvlm": _shape("smolvlm", VISION, LLAMA, True),
    "image-idefics2": _shape(
        "idefics2", VISION, MISTRAL, False,
        perceiver_config={"hidden_size": 64, "resampler_n_latents": 4, "resampler_depth": 1,
                          "resampler_n_heads": 4, "resampler_head_dim": 16,
                          "num_key_value_heads": 2},
    ),
    "image-janus": _shape(
        "janus", {**VISION, "projection_dim": 64}, LLAMA, False,
        vq_config={"embed_dim": 8, "num_embeddings": 32, "base_channels": 32,
                   "channel_multiplier": [1], "num_res_blocks": 1, "latent_channels": 8,
                   "projection_dim": 64, "image_token_embed_dim": 64},
    ),
    "image-lfm2_vl": _shape("lfm2_vl", VISION, LFM2, True),
    "image-lfm3_vl": _shape("lfm3_vl", VISION, LFM3, True),
    "image-minicpmv4_6": _shape("minicpmv4_6", VISION, QWEN3_5, True),
    "image-minicpmv4_7": _shape("minicpmv4_7", VISION, QWEN3_5, False),
    "image-minicpm_ocr": _shape("minicpm_ocr", VISION, QWEN3_5, False),
    "image-video_llava": _shape("video_llava", CLIP, LLAMA, False),
    "image-deepseek_vl_hybrid": _shape(
        "deepseek_vl_hybrid", SIGLIP, LLAMA, True,
        high_res_vision_config={**VISION, "output_channels": 16, "mlp_dim": 48,
                                "global_attn_indexes": [0]},
    ),
    "image-lighton_ocr": _shape("lighton_ocr", PIXTRAL, QWEN3, True),
    "image-got_ocr2": _shape(
        "got_ocr2",
        {**VISION, "output_channels": 16, "mlp_dim": 48, "global_attn_indexes": [0]},
        QWEN2,
        True,
    ),
    "image-ovis2": _shape(
        "ovis2", {**VISION, "vocab_size": 64}, QWEN2, False, vocab_size=512, hidden_size=64
    ),
    "image-video_llama_3": _shape("video_llama_3", VISION, QWEN2, False),
    "image-hyperclovax_vision_v2": _shape(
        "hyperclovax_vision_v2",
        {"model_type": "qwen2_5_vl_vision", **QWEN_VISION, "fullatt_block_indexes": [0]},
        HYPERCLOVAX,
        False,
    ),
    "image-kimi_k25": _shape(
        "kimi_k25",
        {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 48,
         "num_attention_heads": 2, "patch_size": 4, "pos_emb_height": 4, "pos_emb_width": 4},
        DEEPSEEK_V3,
        False,
        projection_hidden_size=32,
    ),
}  # fmt: skip
