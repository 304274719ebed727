"""Write a Hugging Face checkpoint with random weights: a real shape, or a tiny model of a family.

    python tools/make_random_checkpoint.py --like qwen3-0.6b --dtype bfloat16 --out /tmp/qwen3
    python tools/make_random_checkpoint.py --like tiny-gemma2 --seed 3 --shards 2 --out /tmp/g2

The folder holds config.json, the weights (model.safetensors, or N shards with an index), a
byte-level tokenizer of 256 byte tokens and five special ones, and generation_config.json. Token
ids above the tokenizer's are valid for the model and decode to nothing.

The weights are drawn and written piece by piece, so that a model needs disk and not memory. They
never pass through `transformers`' own initialisation, which is slow for big shapes and leaves every
norm at 1 and every bias at 0, where a kernel that forgets them goes unnoticed.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import torch
import transformers
from dense_shapes import DENSE_SHAPES
from dense_shapes import TINY as _TINY
from expert_shapes import EXPERT_SHAPES
from hybrid_shapes import HYBRID_SHAPES
from image_shapes import IMAGE_SHAPES
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

SPECIAL_TOKENS = ("<|bos|>", "<|eos|>", "<|pad|>", "<|im_start|>", "<|im_end|>")
BOS_ID, EOS_ID, PAD_ID = 256, 257, 258
DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}  # ours to safetensors'
PIECE = 1 << 24  # elements drawn at a time
ZERO_CENTRED = ("gemma", "nemotron", "vaultgemma", "qwen3_5", "qwen3_next")
QK_NORMS = ("q_norm.weight", "k_norm.weight")
CONSTANTS = {"act_fn.beta": 0.5, "act_fn.eps": -1e-6}  # of xIELU

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {
        "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024,
        "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
        "rope_theta": 1e6, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
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
    **HYBRID_SHAPES,
}  # fmt: skip


# How the hub spells what the models of transformers call otherwise: where a parameter has the name
# of a key, the checkpoint has these, with a number for each expert if there is a place for it. Two
# names share the rows of the parameter. Of a name with TRANSPOSED behind it, rows are columns.
TRANSPOSED = "^T"
_QWEN_EXPERTS = {
    "mlp.experts.gate_up_proj": (
        "mlp.experts.{}.gate_proj.weight",
        "mlp.experts.{}.up_proj.weight",
    ),
    "mlp.experts.down_proj": ("mlp.experts.{}.down_proj.weight",),
}
_MIXTRAL_EXPERTS = {
    "mlp.gate.weight": ("block_sparse_moe.gate.weight",),
    "mlp.experts.gate_up_proj": (
        "block_sparse_moe.experts.{}.w1.weight",
        "block_sparse_moe.experts.{}.w3.weight",
    ),
    "mlp.experts.down_proj": ("block_sparse_moe.experts.{}.w2.weight",),
}
_GRANITE_EXPERTS = {
    "block_sparse_moe.router.weight": ("block_sparse_moe.router.layer.weight",),
    "block_sparse_moe.experts.gate_up_proj": ("block_sparse_moe.input_linear.weight",),
    "block_sparse_moe.experts.down_proj": ("block_sparse_moe.output_linear.weight",),
}
_PHI_EXPERTS = {
    "mlp.router.weight" if name == "mlp.gate.weight" else name: spelled
    for name, spelled in _MIXTRAL_EXPERTS.items()
}
_MINIMAX_EXPERTS = _MIXTRAL_EXPERTS | {
    "mlp.e_score_correction_bias": ("block_sparse_moe.e_score_correction_bias",)
}
_ERNIE_EXPERTS = _QWEN_EXPERTS | {
    "mlp.gate.moe_statics.e_score_correction_bias": ("mlp.moe_statics.e_score_correction_bias",)
}
_HY3_EXPERTS = _QWEN_EXPERTS | {
    "mlp.gate.weight": ("mlp.router.gate.weight",),
    "mlp.e_score_correction_bias": ("mlp.expert_bias",),
    "mlp.shared_experts.gate_proj.weight": ("mlp.shared_mlp.gate_proj.weight",),
    "mlp.shared_experts.up_proj.weight": ("mlp.shared_mlp.up_proj.weight",),
    "mlp.shared_experts.down_proj.weight": ("mlp.shared_mlp.down_proj.weight",),
    "mlp.shared_experts.gate_proj.bias": ("mlp.shared_mlp.gate_proj.bias",),
    "mlp.shared_experts.up_proj.bias": ("mlp.shared_mlp.up_proj.bias",),
    "mlp.shared_experts.down_proj.bias": ("mlp.shared_mlp.down_proj.bias",),
}
_LFM2_EXPERTS = {
    "experts.gate_up_proj": ("experts.{}.w1.weight", "experts.{}.w3.weight"),
    "experts.down_proj": ("experts.{}.w2.weight",),
}
_NEMOTRON_EXPERTS = {
    "experts.up_proj": ("experts.{}.up_proj.weight",),
    "experts.down_proj": ("experts.{}.down_proj.weight",),
}
HUB_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "lfm2_moe": _LFM2_EXPERTS,
    "qwen3_moe": _QWEN_EXPERTS,
    "olmoe": _QWEN_EXPERTS,
    "qwen2_moe": _QWEN_EXPERTS,
    "glm4_moe": _QWEN_EXPERTS,
    "deepseek_v3": _QWEN_EXPERTS,
    "deepseek_v2": _QWEN_EXPERTS,
    "glm4_moe_lite": _QWEN_EXPERTS,
    "ernie4_5_moe": _ERNIE_EXPERTS,
    "mixtral": _MIXTRAL_EXPERTS,
    "minimax_m2": _MINIMAX_EXPERTS,
    "phimoe": _PHI_EXPERTS,
    "gpt_neox": {"lm_head.weight": ("embed_out.weight",)},
    "granitemoe": _GRANITE_EXPERTS,
    "granitemoeshared": _GRANITE_EXPERTS,
    "granitemoehybrid": _GRANITE_EXPERTS,
    "nemotron_h": _NEMOTRON_EXPERTS,
    "dots1": _QWEN_EXPERTS,
    "hunyuan_v1_moe": _QWEN_EXPERTS,
    "glm4v_moe": _QWEN_EXPERTS,
    "solar_open": _QWEN_EXPERTS,
    "kimi_k25": _QWEN_EXPERTS,
    "flex_olmo": _QWEN_EXPERTS,
    "mellum": _QWEN_EXPERTS,
    "hy_v3": _HY3_EXPERTS,
    "qwen3_next": _QWEN_EXPERTS,
    "qwen3_5_moe": _QWEN_EXPERTS,
    "qwen3_5_moe_text": _QWEN_EXPERTS,
    "exaone_moe": _QWEN_EXPERTS
    | {"mlp.gate.e_score_correction_bias": ("mlp.e_score_correction_bias",)},
    "axk1": _QWEN_EXPERTS
    | {"mlp.post_mlp_layernorm.weight": ("post_mlp_layernorm.weight",)},
    "qwen3_vl_moe": {
        "mlp.experts.gate_up_proj": ("mlp.experts.gate_up_proj" + TRANSPOSED,),
        "mlp.experts.down_proj": ("mlp.experts.down_proj" + TRANSPOSED,),
    },
}
# How names begin in transformers, and on the hub.
HUB_PREFIXES = {"nemotron_h": ("model.", "backbone.")}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with one token per byte and the special tokens above, no merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: index for index, symbol in enumerate(alphabet)}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<|bos|>", eos_token="<|eos|>", pad_token="<|pad|>"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_checkpoint(
    like: str,
    out: str | Path,
    dtype: str = "float32",
    seed: int = 0,
    *,
    shards: int = 1,
    std: float | None = None,
    overrides: Mapping[str, Any] | None = None,
    hub_names: bool = True,
    mxfp4: bool = False,
    device: str = "cpu",
) -> Path:
    """Write a random checkpoint shaped like `like` (a key of SHAPES) into the folder `out`.

    Args:
        dtype: "float32", "bfloat16" or "float16": type of the stored weights.
        seed: the same seed, shape, dtype and kind of device give the same bytes.
        shards: number of weight files, at most one per tensor.
        std: standard deviation of the matrices; None is 0.02 for real shapes and 0.15 for tiny
            ones, where attention and logits would otherwise be almost uniform.
        overrides: config fields to set over the row, e.g. {"tie_word_embeddings": True}.
        hub_names: whether experts have a tensor each, as on the hub, or share one, as in
            transformers (`save_original_format=False`).
        mxfp4: experts are stored as MXFP4, as those of gpt-oss on the hub.
        device: where torch draws; a GPU makes 16 GB in seconds.

    Raises:
        ValueError: unknown `like` or dtype, or an impossible number of shards.
    """
    if like not in SHAPES:
        raise ValueError(f"like={like!r} is none of: {', '.join(SHAPES)}")
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r} is none of: {', '.join(DTYPES)}")
    fields = deepcopy({**SHAPES[like], **(overrides or {})})  # configs change what is nested
    fields |= {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": PAD_ID}
    config = AutoConfig.for_model(**fields)
    with torch.device("meta"):
        model = model_class(config).from_config(config)
    if std is None:
        std = 0.15 if like.startswith("tiny-") else 0.02
    names = HUB_NAMES.get(fields["model_type"], {}) if hub_names else {}
    weights = _spelled(_weights(model, dtype, std), names)
    if hub_names and fields["model_type"] in HUB_PREFIXES:
        own, spelled = HUB_PREFIXES[fields["model_type"]]
        weights = [replace(w, name=w.name.replace(own, spelled, 1)) for w in weights]
    if mxfp4:
        weights = [part for weight in weights for part in _in_mxfp4(weight)]
        config.quantization_config = {"quant_method": "mxfp4"}
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    _write_weights(out, _split(weights, shards), torch.Generator(device).manual_seed(seed))
    config.architectures = [type(model).__name__]
    config.dtype = dtype
    config.save_pretrained(out)
    if model.generation_config is not None:
        model.generation_config.save_pretrained(out)
    byte_tokenizer().save_pretrained(out, save_jinja_files=False)
    return out


def model_class(config: PreTrainedConfig) -> Any:
    """The auto class for a model that makes texts, which may be one that sees images, too."""
    if config.model_type == "mistral4":  # which transformers registers with images alone
        own = transformers.Mistral4ForCausalLM
        AutoModelForCausalLM.register(type(config), own, exist_ok=True)
    sees = hasattr(config, "vision_config")
    return AutoModelForImageTextToText if sees else AutoModelForCausalLM


@dataclass
class Weight:
    """A tensor to be drawn from the normal distribution (mean, std)."""

    name: str
    shape: list[int]
    dtype: str
    mean: float
    std: float

    @property
    def num_bytes(self) -> int:
        """Size in the file."""
        return math.prod(self.shape) * getattr(torch, self.dtype).itemsize

    def draw(self, generator: torch.Generator) -> Iterator[torch.Tensor]:
        """The values in order, in pieces."""
        left = math.prod(self.shape)
        while left > 0:
            dtype = getattr(torch, self.dtype)
            piece = torch.empty(min(left, PIECE), dtype=dtype, device=generator.device)
            yield piece.normal_(self.mean, self.std, generator=generator).cpu()
            left -= piece.numel()


@dataclass
class Bytes(Weight):
    """A tensor of bytes that are drawn uniformly from [mean - std, mean + std]."""

    def draw(self, generator: torch.Generator) -> Iterator[torch.Tensor]:
        """The values in order, in pieces."""
        left = math.prod(self.shape)
        low, high = int(self.mean - self.std), int(self.mean + self.std) + 1
        while left > 0:
            piece = torch.empty(min(left, PIECE), dtype=torch.uint8, device=generator.device)
            yield piece.random_(low, high, generator=generator).cpu()
            left -= piece.numel()


def _in_mxfp4(weight: Weight) -> list[Weight]:
    """The blocks and scales of a tensor [experts, columns, rows]; other weights as they are."""
    if not weight.name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return [weight]
    experts, columns, rows = weight.shape
    groups = [experts, rows, columns // 32]
    exponent = 127 + round(math.log2(weight.std)) - 1
    return [
        Bytes(f"{weight.name}_blocks", [*groups, 16], "uint8", 127.5, 127.5),
        Bytes(f"{weight.name}_scales", groups, "uint8", exponent, 1),
    ]


def _stored(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters, and the buffers that a checkpoint has."""
    yield from model.named_parameters()
    stored = model.state_dict(keep_vars=True)
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name in stored)


def _weights(model: torch.nn.Module, dtype: str, std: float) -> list[Weight]:
    """The weights of a model, tied ones once; some families' norms are 1 + weight."""
    model_type = model.config.model_type
    scaled = model_type.startswith(ZERO_CENTRED)
    zero_centred = scaled and not model_type.startswith("gemma4")
    weights = []
    for name, parameter in _stored(model):
        mean, spread = 0.0, std
        if scaled and "embed_tokens" in name:
            # Scaled by sqrt(hidden) on entry and tied to the head: at full size every token would
            # predict itself.
            spread = std / 4
        elif name.endswith(tuple(CONSTANTS)):
            mean, spread = next(v for end, v in CONSTANTS.items() if name.endswith(end)), 0.0
        elif name.endswith("sinks"):
            spread = 2.0  # as far apart as scores are
        elif name.endswith(".A_log"):
            spread = 1.0
        elif name.endswith(".dt_bias"):
            mean, spread = -4.0, 1.0  # heads remember tens to hundreds of tokens
        elif name.endswith("linear_attn.norm.weight"):
            mean, spread = 1.0, 0.2
        elif name.endswith("conv1d.weight"):
            spread = 0.5
        elif name.endswith("conv.conv.weight"):  # of products, which are multiplied once more
            spread = 0.35
        elif model_type.startswith("gemma4") and name.endswith(QK_NORMS):
            mean, spread = 0.4, 0.2  # scores are not divided by the root of the size of a head
        elif parameter.dim() < 2 or name.endswith(QK_NORMS):
            is_norm = not name.endswith("bias")
            mean, spread = 1.0 if is_norm and not zero_centred else 0.0, 0.2
        weights.append(Weight(name, list(parameter.shape), dtype, mean, spread))
    return weights


def _spelled(weights: list[Weight], names: Mapping[str, tuple[str, ...]]) -> list[Weight]:
    """The same weights under the names that HUB_NAMES has for them."""
    spelled = []
    for weight in weights:
        own = next((own for own in names if weight.name.endswith(own)), None)
        if own is None:
            spelled.append(weight)
            continue
        before = weight.name.removesuffix(own)
        numbered = "{}" in names[own][0]
        shape = weight.shape[1:] if numbered else list(weight.shape)
        shape[0] //= len(names[own])
        if names[own][0].endswith(TRANSPOSED):
            shape[-2:] = reversed(shape[-2:])
        spelled += [
            replace(
                weight, name=before + name.format(expert).removesuffix(TRANSPOSED), shape=shape
            )
            for expert in range(weight.shape[0] if numbered else 1)
            for name in names[own]
        ]
    return spelled


def _split(weights: list[Weight], shards: int) -> list[list[Weight]]:
    """Consecutive weights of about equal size in bytes."""
    if not 1 <= shards <= len(weights):
        raise ValueError(f"shards={shards}: there are {len(weights)} tensors to split")
    total = sum(weight.num_bytes for weight in weights)
    parts: list[list[Weight]] = [[]]
    done = 0
    for i, weight in enumerate(weights):
        needed = shards - len(parts)  # after this one
        full = done * shards >= total * len(parts) or len(weights) - i <= needed
        if parts[-1] and needed and full:
            parts.append([])
        parts[-1].append(weight)
        done += weight.num_bytes
    return parts


def _write_weights(out: Path, parts: list[list[Weight]], generator: torch.Generator) -> None:
    """model.safetensors, or several files with an index."""
    count = len(parts)
    names = [f"model-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]
    if count == 1:
        names = ["model.safetensors"]
    for name, part in zip(names, parts, strict=True):
        with open(out / name, "wb") as file:
            _write_safetensors(file, part, generator)
    if count > 1:
        index = {
            "metadata": {"total_size": sum(w.num_bytes for part in parts for w in part)},
            "weight_map": {
                w.name: name for name, part in zip(names, parts, strict=True) for w in part
            },
        }
        (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def _write_safetensors(file: BinaryIO, part: list[Weight], generator: torch.Generator) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for w in part:
        header[w.name] = {"dtype": {**DTYPES, "uint8": "U8"}[w.dtype], "shape": w.shape,
                          "data_offsets": [end, end + w.num_bytes]}  # fmt: skip
        end += w.num_bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # aligns the data
    file.write(struct.pack("<Q", len(text)) + text)
    for w in part:
        for piece in w.draw(generator):
            file.write(piece.view(torch.uint8).numpy())


def main() -> None:
    """Command line: parse, write, say what was written."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--like", required=True, choices=list(SHAPES))
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--dtype", default="float32", choices=list(DTYPES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--vocab", type=int, help="vocab_size in place of the shape's")
    parser.add_argument("--mxfp4", action="store_true", help="experts as gpt-oss has them")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=JSON",
                        help="a config field, e.g. --set tie_word_embeddings=true")  # fmt: skip
    args = parser.parse_args()
    overrides = {key: json.loads(value) for key, value in (s.split("=", 1) for s in args.set)}
    if args.vocab is not None:
        overrides["vocab_size"] = args.vocab
    make_checkpoint(args.like, args.out, args.dtype, args.seed,
                    shards=args.shards, overrides=overrides, mxfp4=args.mxfp4)  # fmt: skip
    size = sum(path.stat().st_size for path in args.out.glob("*.safetensors"))
    print(f"{args.out}: {args.like}, {args.dtype}, {math.ceil(size / 2**20)} MiB of weights")


if __name__ == "__main__":
    main()
