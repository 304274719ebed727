"""Shapes of encoders, which embed and classify texts; see model_shapes.py."""

from __future__ import annotations

from typing import Any

ENCODER_SHAPES: dict[str, dict[str, Any]] = {
    "bge-small-en": {
        "model_type": "bert", "vocab_size": 30522, "hidden_size": 384, "intermediate_size": 1536,
        "num_hidden_layers": 12, "num_attention_heads": 12, "max_position_embeddings": 512,
    },
    "bge-base-en": {
        "model_type": "bert", "vocab_size": 30522, "hidden_size": 768, "intermediate_size": 3072,
        "num_hidden_layers": 12, "num_attention_heads": 12, "max_position_embeddings": 512,
    },
    "bge-m3": {
        "model_type": "xlm-roberta", "vocab_size": 250002, "hidden_size": 1024,
        "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "max_position_embeddings": 8194, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
    },
    "all-mpnet-base-v2": {
        "model_type": "mpnet", "vocab_size": 30527, "hidden_size": 768, "intermediate_size": 3072,
        "num_hidden_layers": 12, "num_attention_heads": 12, "max_position_embeddings": 514,
        "layer_norm_eps": 1e-5,
    },
    "deberta-v3-base": {
        "model_type": "deberta-v2", "vocab_size": 128100, "hidden_size": 768,
        "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "max_position_embeddings": 512, "relative_attention": True, "position_buckets": 256,
        "pos_att_type": ["p2c", "c2p"], "share_att_key": True, "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
    },
    "modernbert-base": {
        "model_type": "modernbert", "vocab_size": 50368, "hidden_size": 768,
        "intermediate_size": 1152, "num_hidden_layers": 22, "num_attention_heads": 12,
        "max_position_embeddings": 8192,
    },
}  # fmt: skip
